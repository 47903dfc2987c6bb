// The sections and the program of a measurement's page, embedded when the program is built.
#pragma once

#include <span>

#include "page/page_files.h"

namespace doppler::bench {

// Sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const page::PageFile> bench_files();

}  // namespace doppler::bench
