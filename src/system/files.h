// Files and folders as the system has them. Paths are followed through links unless it says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "system/result.h"

namespace doppler::system {

using Path = std::filesystem::path;

// An open file, closed when this dies.
class FileHandle {
 public:
  static constexpr std::intptr_t kNone = -1;
  explicit FileHandle(std::intptr_t value) : value_(value) {}
  FileHandle(FileHandle&& other) noexcept : value_(std::exchange(other.value_, kNone)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~FileHandle();
  std::intptr_t get() const { return value_; }
  std::intptr_t release() { return std::exchange(value_, kNone); }  // not closed

 private:
  std::intptr_t value_;  // a descriptor, or another system's handle
};

// A file that is read.
class InputFile {
 public:
  // Never waits for the other end of a pipe.
  static Expected<InputFile> open(const Path& path);

  // Nothing for anything but a regular file: a folder, a pipe, a device.
  Expected<std::optional<std::uint64_t>> regular_size() const;
  // The next bytes; fewer than asked for only at the end of the file.
  Expected<std::size_t> read(std::span<std::byte> into) const;
  // All the bytes from `offset` on, or an error (std::errc::io_error beyond the end). No error:
  // std::error_code(). From several threads at once, if none calls read().
  std::error_code read_at(std::uint64_t offset, std::span<std::byte> into) const;
  // The first `size` bytes (at least one) as memory that is read when touched; unmapped with the last copy.
  Expected<std::shared_ptr<const std::byte>> map(std::uint64_t size) const;

 private:
  explicit InputFile(FileHandle handle) : handle_(std::move(handle)) {}
  FileHandle handle_;
};

// Whether InputFile::map() reads only what is touched. Where it does not, it takes memory for the whole file.
bool maps_lazily();

// A file without a name, on the same disk as `beside`; gone with its handle, however the program ends.
class ScratchFile {
 public:
  static Expected<ScratchFile> create(const Path& beside);
  // Writes all bytes or none. No error: std::error_code().
  std::error_code write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  std::error_code read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  explicit ScratchFile(FileHandle handle) : handle_(std::move(handle)) {}
  FileHandle handle_;
};

// A new file for binary writing, which child processes do not inherit; std::errc::file_exists if there is
// one.
Expected<std::FILE*> create_file(const Path& path);
// The file for binary writing from its start (emptied) or its end.
Expected<std::FILE*> open_output(const Path& path, bool append);
// The same for a file that no other user may read, as far as the system can keep them from it.
Expected<std::FILE*> open_private_output(const Path& path, bool append);
// Returns when the bytes are on the disk.
std::error_code put_on_disk(std::FILE* file);
// Gives `from` the name `to`; a file that had it is replaced in one step.
std::error_code replace_file(const Path& from, const Path& to);

enum class PathKind : std::uint8_t { kMissing, kFile, kFolder, kOther };  // kOther: devices, pipes, …
// Errors: the system's, such as for a folder that may not be entered.
Expected<PathKind> kind_of(const Path& path);
// False also where the system denies access.
bool exists(const Path& path);
bool is_file(const Path& path);
bool is_folder(const Path& path);
// Whether both are there and name one file.
bool same_file(const Path& a, const Path& b);

// The entries of a folder, in no order.
Expected<std::vector<Path>> list_folder(const Path& folder);
// The folder and those above it, as far as they are missing.
std::error_code create_folders(const Path& folder);
std::error_code remove_file(const Path& path);

std::optional<std::uint64_t> file_size(const Path& path);
// Bytes that the folder's disk has left for this user.
std::optional<std::uint64_t> free_space(const Path& folder);
// The path without links and dots; what is missing at its end stays as it is. The path itself if that fails.
Path without_links(const Path& path);
// The file that a link stands for; any other path, and a link to nothing, as it is.
Expected<Path> link_target(const Path& path);

}  // namespace doppler::system
