// Everything about paths that std::filesystem can do.
#include "system/files.h"

namespace doppler::system {

namespace fs = std::filesystem;

Expected<PathKind> kind_of(const Path& path) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::not_found:
      return PathKind::kMissing;
    case fs::file_type::regular:
      return PathKind::kFile;
    case fs::file_type::directory:
      return PathKind::kFolder;
    case fs::file_type::none:
      return std::unexpected(error);
    default:
      return PathKind::kOther;
  }
}

bool exists(const Path& path) {
  return kind_of(path).value_or(PathKind::kMissing) != PathKind::kMissing;
}

bool is_file(const Path& path) {
  return kind_of(path).value_or(PathKind::kMissing) == PathKind::kFile;
}

bool is_folder(const Path& path) {
  return kind_of(path).value_or(PathKind::kMissing) == PathKind::kFolder;
}

bool same_file(const Path& a, const Path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

Expected<std::vector<Path>> list_folder(const Path& folder) {
  std::vector<Path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  if (error) return std::unexpected(error);
  return entries;
}

std::error_code create_folders(const Path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error;
}

std::error_code remove_file(const Path& path) {
  std::error_code error;
  fs::remove(path, error);
  return error;
}

std::optional<std::uint64_t> file_size(const Path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) return std::nullopt;
  return size;
}

std::optional<std::uint64_t> free_space(const Path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return std::nullopt;
  return space.available;
}

Path without_links(const Path& path) {
  std::error_code error;
  Path whole = fs::weakly_canonical(path, error);
  return error ? path : whole;
}

Expected<Path> link_target(const Path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  Path target = fs::weakly_canonical(path, error);
  if (error) return std::unexpected(error);
  return target;
}

}  // namespace doppler::system
