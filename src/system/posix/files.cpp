#include "system/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace doppler::system {
namespace {

std::error_code last_error() {
  return {errno, std::generic_category()};
}

int descriptor(const FileHandle& handle) {
  return static_cast<int>(handle.get());
}

std::error_code read_all_at(int file, std::uint64_t offset, std::span<std::byte> into) {
  for (std::size_t done = 0; done < into.size();) {
    const ssize_t got =
        ::pread(file, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return std::make_error_code(std::errc::io_error);
    if (got < 0) return last_error();
    done += static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

FileHandle::~FileHandle() {
  if (value_ != kNone) ::close(static_cast<int>(value_));
}

Expected<InputFile> InputFile::open(const Path& path) {
  // O_NONBLOCK: opening a FIFO must not hang; it changes nothing for regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::unexpected(last_error());
  return InputFile(FileHandle(fd));
}

Expected<std::optional<std::uint64_t>> InputFile::regular_size() const {
  struct stat info{};
  if (::fstat(descriptor(handle_), &info) != 0) return std::unexpected(last_error());
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(info.st_size);
}

Expected<std::size_t> InputFile::read(std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::read(descriptor(handle_), into.data() + done, into.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(last_error());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Expected<std::shared_ptr<const std::byte>> InputFile::map(std::uint64_t size) const {
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor(handle_), 0);
  if (address == MAP_FAILED) return std::unexpected(last_error());
  return std::shared_ptr<const std::byte>(static_cast<const std::byte*>(address), [size](const std::byte* p) {
    ::munmap(const_cast<std::byte*>(p), size);
  });
}

std::error_code InputFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  return read_all_at(descriptor(handle_), offset, into);
}

bool maps_lazily() {
  return true;
}

Expected<ScratchFile> ScratchFile::create(const Path& beside) {
  std::string name = beside.string() + ".scratch-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return std::unexpected(last_error());
  ::unlink(name.c_str());
  return ScratchFile(FileHandle(fd));
}

std::error_code ScratchFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::pwrite(descriptor(handle_), bytes.data() + done, bytes.size() - done,
                                     static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return last_error();
    done += static_cast<std::size_t>(written);
  }
  return {};
}

std::error_code ScratchFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  return read_all_at(descriptor(handle_), offset, into);
}

Expected<std::FILE*> create_file(const Path& path) {
  std::FILE* const file = std::fopen(path.c_str(), "wbxe");
  if (file == nullptr) return std::unexpected(last_error());
  return file;
}

Expected<std::FILE*> open_output(const Path& path, bool append) {
  std::FILE* const file = std::fopen(path.c_str(), append ? "ab" : "wb");
  if (file == nullptr) return std::unexpected(last_error());
  return file;
}

Expected<std::FILE*> open_private_output(const Path& path, bool append) {
  FileHandle handle(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0600));
  // The mode holds for a file that was there before, too.
  if (handle.get() < 0 || ::fchmod(descriptor(handle), 0600) != 0) return std::unexpected(last_error());
  std::FILE* const file = ::fdopen(descriptor(handle), append ? "ab" : "wb");
  if (file == nullptr) return std::unexpected(last_error());
  static_cast<void>(handle.release());
  return file;
}

std::error_code put_on_disk(std::FILE* file) {
  return std::fflush(file) != 0 || ::fsync(::fileno(file)) != 0 ? last_error() : std::error_code();
}

std::error_code replace_file(const Path& from, const Path& to) {
  return std::rename(from.c_str(), to.c_str()) != 0 ? last_error() : std::error_code();
}

}  // namespace doppler::system
