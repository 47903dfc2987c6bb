// A folder that gets its name when it is whole.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace doppler::convert {

// A folder that is removed with all it holds, unless it was given its name.
class PartialFolder {
 public:
  explicit PartialFolder(const std::filesystem::path& name);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  // Errors: kUsage when one is left from an earlier try, kIo.
  Status make();
  Status commit();  // kIo
  const std::filesystem::path& path() const { return partial_; }

 private:
  std::filesystem::path name_, partial_;
  bool made_ = false;
};

}  // namespace doppler::convert
