#include "system/file_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace doppler::system {

std::error_code forget_cached(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {errno, std::generic_category()};
  const FileHandle handle(fd);
#ifdef POSIX_FADV_DONTNEED
  ::fdatasync(fd);  // what was written lately is only forgotten once it is on the disk
  return {::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), std::generic_category()};
#else
  return std::make_error_code(std::errc::not_supported);
#endif
}

std::optional<double> cached_share(const Path& path) {
  const Expected<InputFile> file = InputFile::open(path);
  if (!file) return std::nullopt;
  const auto size = file->regular_size();
  if (!size || !*size || **size == 0) return std::nullopt;
  const auto bytes = file->map(**size);
  if (!bytes) return std::nullopt;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((**size + page - 1) / page);
  if (::mincore(const_cast<std::byte*>(bytes->get()), **size, pages.data()) != 0) return std::nullopt;
  const auto held = std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; });
  return static_cast<double>(held) / static_cast<double>(pages.size());
}

}  // namespace doppler::system
