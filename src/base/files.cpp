#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace doppler {
namespace {

std::unexpected<Error> system_failure(const char* doing, const std::filesystem::path& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  return fail(missing ? ErrorCode::kNotFound : ErrorCode::kIo, "The file {} cannot be {}: {}. {}",
              path.string(), doing, std::strerror(error),
              missing           ? "Check the path."
              : error == ENOSPC ? "Free some space and try again."
              : error == EACCES ? "Check its permissions."
                                : "Check the disk and try again.");
}

// An open descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Result<std::uint64_t> open_regular(const std::filesystem::path& path, Descriptor& out) {
  // O_NONBLOCK: opening a FIFO must not hang; it changes nothing for regular files.
  out.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (out.fd < 0) return system_failure("opened", path, errno);
  struct stat info{};
  if (::fstat(out.fd, &info) != 0) return system_failure("examined", path, errno);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kIo, "The path {} is not a regular file. Give a file.", path.string());
  return static_cast<std::uint64_t>(info.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  Descriptor file;
  DOPPLER_ASSIGN(const std::uint64_t size, open_regular(path, file));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = size;
  if (size == 0) return mapped;  // mmap refuses empty mappings; an empty span says the same
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) return system_failure("mapped", path, errno);
  mapped.data_ = std::shared_ptr<const std::byte>(
      static_cast<const std::byte*>(address),
      [size](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); });
  return mapped;
}

std::string printable_path(const std::filesystem::path& path) {
  return printable(path.string(), 200);  // a line or two
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  Descriptor file;
  DOPPLER_ASSIGN(const std::uint64_t size, open_regular(path, file));
  if (size > max_bytes) {
    return fail(
        ErrorCode::kLimit,
        "The file {} holds {} bytes, more than the {} allowed for its kind. Check that it is the right file.",
        path.string(), size, max_bytes);
  }
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("read", path, errno);
    if (got == 0) break;  // the file shrank while being read: what is there is the file
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& given) {
  std::error_code error;
  std::filesystem::path path = given;
  if (std::filesystem::is_symlink(given, error)) {
    path = std::filesystem::weakly_canonical(given, error);
    if (error) return system_failure("created", given, error.value());
  }
  // Renaming over a device or a folder would replace it, or fail after all the work.
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::kIo, "The output {} is not a regular file. Give another name.", path.string());
  }
  // A crashed process may have left a file of our process number behind; containers reuse the same few.
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::filesystem::path partial = path;
    partial += attempt == 0 ? fmt::format(".partial-{}", ::getpid())
                            : fmt::format(".partial-{}-{}", ::getpid(), attempt);
    std::FILE* file = std::fopen(partial.c_str(), "wbxe");
    if (file != nullptr) return OutputFile(std::move(path), std::move(partial), file);
    if (errno != EEXIST) return system_failure("created", path, errno);
  }
  return system_failure("created", path, EEXIST);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (file_ == nullptr) return fail(ErrorCode::kInternal, "The file {} is already complete.", path_.string());
  if (bytes.empty()) return {};  // fwrite takes no null pointer, not even for nothing
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    return system_failure("written", path_, errno);
  return {};
}

Status OutputFile::commit() {
  if (file_ == nullptr) return fail(ErrorCode::kInternal, "The file {} is already complete.", path_.string());
  if (std::ferror(file_) != 0) {
    return fail(ErrorCode::kIo, "The file {} cannot be completed, because writing to it failed. Try again.",
                path_.string());
  }
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0)
    return system_failure("written", path_, errno);
  std::FILE* file = std::exchange(file_, nullptr);
  std::error_code ignored;
  if (std::fclose(file) != 0) {
    const int error = errno;
    std::filesystem::remove(partial_, ignored);
    return system_failure("written", path_, error);
  }
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    std::filesystem::remove(partial_, ignored);
    return system_failure("put in place", path_, error);
  }
  return {};
}

}  // namespace doppler
