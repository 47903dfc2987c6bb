// A Chromium for the harness: where it is, the profile that it keeps from run to run, and a run of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "system/child.h"

namespace doppler::cli {

// The path of `named`, or of DOPPLER_BROWSER, or of the first Chromium on the PATH. Errors: kNotFound,
// kUsage.
Result<std::filesystem::path> find_browser(const std::string& named);

// A folder with what the browser keeps of our page: downloaded models, which kernels a GPU computes rightly.
// Browsers keep that by address, so that port and path stay the same, too.
struct BrowserProfile {
  std::filesystem::path folder;
  std::uint16_t port = 0;  // 0: none yet
  std::string secret;      // the first part of the page's path
};
// Makes it if it is missing; `named` empty: a folder of the user's caches. Errors: kIo; kCorrupt for a folder
// that holds something else.
Result<BrowserProfile> open_profile(const std::string& named);
// Writes down which port it has got.
Status keep_port(const BrowserProfile& profile);

struct BrowserOptions {
  std::filesystem::path program;
  bool gpu = false, software = false;  // WebGPU; its adapter that is none
  std::vector<std::string> flags;      // more of the browser's own
};
// Shows the address in a browser without windows. Errors: kIo.
Result<system::Child> start_browser(const BrowserOptions& options, const BrowserProfile& profile,
                                    const std::string& address);

}  // namespace doppler::cli
