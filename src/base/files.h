// Reading and writing files: mapped read-only bytes, whole small files, and outputs that appear only when
// complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler {

// A file's bytes, mapped read-only; cheap to copy, unmapped when the last copy dies.
// Errors: kNotFound (no such file), kIo (a folder, unreadable, cannot be mapped).
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::shared_ptr<const std::byte> data_;
  std::size_t size_ = 0;
  std::filesystem::path path_;
};

// A path as a person or a variable names it: a leading ~ is the user's home folder, where there is one.
std::filesystem::path typed_path(std::string_view text);

// The entries of a folder by name; none where it cannot be read.
std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder);

// A path as messages show it: untrusted names made fit to print, long ones cut.
std::string printable_path(const std::filesystem::path& path);

// A whole file as text, refused above max_bytes (kLimit) before anything is read.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// A file that appears under its name only after commit() has put every byte on disk; until then it is a
// neighbour named NAME.partial-PID, which the destructor removes. A link is followed, so that its target is
// replaced. Errors: kIo with the system's reason, or because the name belongs to a folder or a device;
// kNotFound for a folder that does not exist.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::filesystem::path& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Errors: kIo, also when an earlier write failed.
  Status commit();

 private:
  OutputFile(std::filesystem::path path, std::filesystem::path partial, std::FILE* file)
      : path_(std::move(path)), partial_(std::move(partial)), file_(file) {}
  std::filesystem::path path_, partial_;
  std::FILE* file_ = nullptr;
};

}  // namespace doppler
