// Helpers shared by all tests.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/result.h"

namespace doppler::testing {

// The value of an environment variable, else the build's own value `built_with`: tests may run on another
// machine than the one that built them (bench/on_gpu_machine does that).
inline std::string from_environment(const char* variable, const char* built_with) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : built_with;
}
// The checkout: source_path("demo").
inline std::filesystem::path source_path(const std::string& relative) {
  return std::filesystem::path(from_environment("DOPPLER_TEST_ROOT", DOPPLER_SOURCE_DIR)) / relative;
}
// The checked-in test data: data_path("models/gemma3").
inline std::filesystem::path data_path(const std::string& relative) {
  return source_path("tests/data") / relative;
}
// The program that users run.
inline std::string program_path() {
  return from_environment("DOPPLER_TEST_PROGRAM", DOPPLER_BINARY);
}

// An empty folder of the running test alone, removed when the object dies.
class TempDir {
 public:
  TempDir() {
    const std::filesystem::path parent = std::filesystem::temp_directory_path();
    for (int i = 0;; ++i) {  // the first name that no other test has
      path_ = parent / ("doppler-test-" + std::to_string(i));
      if (std::filesystem::create_directory(path_)) break;
    }
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The ending of a test's name: "models/gemma3" as "models_gemma3".
inline std::string as_test_name(std::string text) {
  for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return text;
}
inline std::string named_by_param(const ::testing::TestParamInfo<const char*>& test) {
  return as_test_name(test.param);
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace doppler::testing

// Unwraps a Result in a test, or fails it with the error's sentence.
#define ASSERT_OK(expr)                                                          \
  do {                                                                           \
    const auto& doppler_status_ = (expr);                                        \
    ASSERT_TRUE(doppler_status_.has_value()) << doppler_status_.error().message; \
  } while (0)
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(DOPPLER_CONCAT_(result_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(result, lhs, expr)        \
  auto result = (expr);                                      \
  ASSERT_TRUE(result.has_value()) << result.error().message; \
  lhs = std::move(*result)

// Expects an error whose sentence contains every given part.
inline void expect_error_parts(const doppler::Error& error, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(error.message.find(part), std::string::npos)
        << "message: " << error.message << "\nlacks: " << part;
  }
}
#define EXPECT_ERROR(expr, ...)                                                                   \
  do {                                                                                            \
    const auto& doppler_result_ = (expr);                                                         \
    EXPECT_FALSE(doppler_result_.has_value()) << "expected an error";                             \
    if (!doppler_result_.has_value()) expect_error_parts(doppler_result_.error(), {__VA_ARGS__}); \
  } while (0)
