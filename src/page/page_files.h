// Texts of pages, embedded when the program is built. Every room that makes a page has such a table.
#pragma once

#include <span>
#include <string_view>

namespace doppler::page {

struct PageFile {
  std::string_view name;  // with its ending, e.g. "page.css"
  std::string_view text;
};

// The parts that all pages share, sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const PageFile> page_files();

}  // namespace doppler::page
