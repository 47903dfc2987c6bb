// Variables of the environment, for a test that needs others than it finds.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "testing.h"

namespace doppler::testing {

// A variable of the environment that this process and the programs that it starts get, while this lives;
// null: none of that name.
class Environment {
 public:
  Environment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    set(value);
  }
  ~Environment() { set(old_ ? old_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) {
    EXPECT_EQ(value == nullptr ? unsetenv(name_.c_str()) : setenv(name_.c_str(), value, 1), 0);
  }
  std::string name_;
  std::optional<std::string> old_;
};

// The user's cache is this empty folder, while this lives: nobody knows what has passed a check, or was
// measured.
class EmptyCache {
 public:
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  TempDir folder_;
  Environment variable_{"XDG_CACHE_HOME", folder_.path().c_str()};
};

}  // namespace doppler::testing
