// A task that a page of a browser does with the WebAssembly build, while the program serves it the files and
// hears what comes of it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/flags.h"

namespace doppler::cli {

// The page, embedded when Doppler is built.
struct HarnessFile {
  std::string_view name;  // "harness.js"
  std::string_view text;
};
// The files of web/harness. cmake/embed_texts.cmake writes the table.
std::span<const HarnessFile> harness_files();

struct WebFlags {
  std::string folder = "build/web", browser, profile;
  std::vector<std::string> browser_flags;
  bool software = false;
  double timeout = 900;  // seconds; a first load on a software GPU takes minutes
};
void add_web_flags(Command& command, WebFlags& flags);

struct WebTask {
  std::string model;  // a path
  Json load, options, watch, prompts;
  std::vector<bool> runs;  // whether each is cold
  bool gpu = false;
};
// {"browser", "processors", "isolated", "runs": [...]}; what the page says meanwhile goes to stderr. Errors:
// the page's own, with its code; kNotFound for what is missing; kIo for a browser that ends; kLimit for one
// that does not come to an end.
Result<Json> run_in_browser(const WebFlags& flags, const WebTask& task, const CancelToken& cancel);

}  // namespace doppler::cli
