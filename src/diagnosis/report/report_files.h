// The sections and programs of the pages in src/diagnosis/report, embedded when the program is built.
#pragma once

#include <span>

#include "page/page_files.h"

namespace doppler::diagnosis {

// Sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const page::PageFile> report_files();

}  // namespace doppler::diagnosis
