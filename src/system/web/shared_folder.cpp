// A page's files are its own, and none of them is a link.
#include "system/shared_folder.h"

namespace doppler::system {
namespace {

std::error_code nothing_to_share() {
  return std::make_error_code(std::errc::read_only_file_system);
}

}  // namespace

std::error_code create_link(const Path&, const Path&) {
  return nothing_to_share();
}

std::optional<Path> link_text(const Path&) {
  return std::nullopt;
}

std::error_code remove_tree(const Path& path) {
  return exists(path) ? nothing_to_share() : std::error_code();
}

Expected<std::optional<FileLock>> FileLock::try_take(const Path&) {
  return std::unexpected(nothing_to_share());
}

}  // namespace doppler::system
