#include "system/shared_folder.h"
#include "system/windows/handles.h"

namespace doppler::system {

Expected<std::optional<FileLock>> FileLock::try_take(const Path& path) {
  const HANDLE file =
      ::CreateFileW(path.c_str(), GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr,
                    OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) return std::unexpected(last_error());
  FileHandle handle(reinterpret_cast<std::intptr_t>(file));
  OVERLAPPED first_byte{};  // the one that Python's filelock takes
  if (::LockFileEx(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &first_byte) != 0)
    return FileLock(std::move(handle));
  if (::GetLastError() == ERROR_LOCK_VIOLATION) return std::nullopt;
  return std::unexpected(last_error());
}

}  // namespace doppler::system
