// The flag --html: a page beside what a command prints.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/flags.h"

namespace doppler::cli {

// `what` completes "also write ... as an HTML page".
Option add_html_flag(Command& command, std::string& path, const std::string& what);

// Whether the page can be written at all, asked before the long work begins. No path: yes. Errors: those of
// OutputFile::create.
Status check_page(const std::string& path);

// Before the answer is printed, so that a reader who closes the pipe gets the page nevertheless.
Status write_page(const std::string& path, const std::string& html);
// After it: a line that says where the page is, if there is one.
void tell_page(const std::string& path);

}  // namespace doppler::cli
