// The page's files in src/diagnosis/report, embedded when the program is built.
#pragma once

#include <span>
#include <string_view>

namespace doppler::diagnosis {

struct ReportFile {
  std::string_view name;  // with its ending, e.g. "report.css"
  std::string_view text;
};

// Sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const ReportFile> report_files();

}  // namespace doppler::diagnosis
