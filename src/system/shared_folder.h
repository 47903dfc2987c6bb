// What a folder that several programs share needs: links, locks, and the removal of everything below a
// folder.
#pragma once

#include <optional>

#include "system/files.h"

namespace doppler::system {

// Makes `link` a symbolic link that says `target`, which may be relative to the link's folder.
std::error_code create_link(const Path& target, const Path& link);
// What a symbolic link says; nothing for anything else.
std::optional<Path> link_text(const Path& path);
// Removes a file, a link (not what it stands for), or a folder with all that is in it. No error if it is not
// there.
std::error_code remove_tree(const Path& path);

// An exclusive lock, which other programs that ask for it see; given back when this dies, or the program
// does.
class FileLock {
 public:
  // Nothing if another holds it. Makes the file, which stays.
  static Expected<std::optional<FileLock>> try_take(const Path& path);

 private:
  explicit FileLock(FileHandle handle) : handle_(std::move(handle)) {}
  FileHandle handle_;
};

}  // namespace doppler::system
