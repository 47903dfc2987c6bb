#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "system/shared_folder.h"

namespace doppler::system {

Expected<std::optional<FileLock>> FileLock::try_take(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return std::unexpected(std::error_code(errno, std::generic_category()));
  FileHandle handle(fd);
  // flock and not fcntl: the kind that Python's filelock takes, so that the Hub's own program sees it.
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return FileLock(std::move(handle));
  if (errno == EWOULDBLOCK) return std::nullopt;
  return std::unexpected(std::error_code(errno, std::generic_category()));
}

}  // namespace doppler::system
