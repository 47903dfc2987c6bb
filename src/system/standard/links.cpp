// The links and trees of std::filesystem.
#include "system/shared_folder.h"

namespace doppler::system {

std::error_code create_link(const Path& target, const Path& link) {
  std::error_code error;
  std::filesystem::create_symlink(target, link, error);
  return error;
}

std::optional<Path> link_text(const Path& path) {
  std::error_code error;
  Path text = std::filesystem::read_symlink(path, error);
  if (error) return std::nullopt;
  return text;
}

std::error_code remove_tree(const Path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error;
}

}  // namespace doppler::system
