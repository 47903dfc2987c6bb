#include "system/files.h"

#include <fcntl.h>
#include <io.h>

#include <cerrno>
#include <limits>
#include <string>

#include "system/process.h"
#include "system/windows/handles.h"

namespace doppler::system {
namespace {

HANDLE handle_of(const FileHandle& handle) {
  return reinterpret_cast<HANDLE>(handle.get());
}

Expected<FileHandle> open_handle(const Path& path, DWORD access, DWORD creation, DWORD flags) {
  // As on other systems, a file may be replaced or removed while it is open.
  constexpr DWORD kShare = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const HANDLE handle = ::CreateFileW(path.c_str(), access, kShare, nullptr, creation, flags, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return std::unexpected(last_error());
  return FileHandle(reinterpret_cast<std::intptr_t>(handle));
}

OVERLAPPED at_offset(std::uint64_t offset) {
  OVERLAPPED where{};
  where.Offset = static_cast<DWORD>(offset);
  where.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return where;
}

DWORD piece_of(std::size_t bytes) {
  return static_cast<DWORD>(bytes < kMostAtOnce ? bytes : kMostAtOnce);
}

std::error_code read_all_at(HANDLE file, std::uint64_t offset, std::span<std::byte> into) {
  for (std::size_t done = 0; done < into.size();) {
    DWORD got = 0;
    OVERLAPPED where = at_offset(offset + done);
    if (::ReadFile(file, into.data() + done, piece_of(into.size() - done), &got, &where) == 0)
      return last_error();
    if (got == 0) return std::make_error_code(std::errc::io_error);
    done += got;
  }
  return {};
}

Expected<std::FILE*> open_stream(const Path& path, DWORD creation, const char* mode) {
  auto handle = open_handle(path, GENERIC_WRITE, creation, FILE_ATTRIBUTE_NORMAL);
  if (!handle) return std::unexpected(handle.error());
  const bool append = mode[0] == 'a';
  const int fd = ::_open_osfhandle(handle->release(), _O_BINARY | _O_NOINHERIT | (append ? _O_APPEND : 0));
  std::FILE* const file = fd < 0 ? nullptr : ::_fdopen(fd, mode);
  if (file != nullptr) return file;
  const std::error_code error(errno, std::generic_category());
  if (fd >= 0) ::_close(fd);
  return std::unexpected(error);
}

}  // namespace

// INVALID_HANDLE_VALUE is FileHandle::kNone.
FileHandle::~FileHandle() {
  if (value_ != kNone) ::CloseHandle(reinterpret_cast<HANDLE>(value_));
}

Expected<InputFile> InputFile::open(const Path& path) {
  // With this flag a folder opens as well, and is told apart by its size, as elsewhere.
  auto handle = open_handle(path, GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
  if (!handle) return std::unexpected(handle.error());
  return InputFile(std::move(*handle));
}

Expected<std::optional<std::uint64_t>> InputFile::regular_size() const {
  BY_HANDLE_FILE_INFORMATION info{};
  if (::GetFileType(handle_of(handle_)) != FILE_TYPE_DISK) return std::nullopt;
  if (::GetFileInformationByHandle(handle_of(handle_), &info) == 0) return std::unexpected(last_error());
  if ((info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0) return std::nullopt;
  return (std::uint64_t{info.nFileSizeHigh} << 32) | info.nFileSizeLow;
}

Expected<std::size_t> InputFile::read(std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    DWORD got = 0;
    if (::ReadFile(handle_of(handle_), into.data() + done, piece_of(into.size() - done), &got, nullptr) == 0)
      return std::unexpected(last_error());
    if (got == 0) break;
    done += got;
  }
  return done;
}

Expected<std::shared_ptr<const std::byte>> InputFile::map(std::uint64_t size) const {
  const HANDLE mapping = ::CreateFileMappingW(handle_of(handle_), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) return std::unexpected(last_error());
  const void* const address = ::MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size);
  const std::error_code error = last_error();
  ::CloseHandle(mapping);  // the view keeps it alive
  if (address == nullptr) return std::unexpected(error);
  return std::shared_ptr<const std::byte>(static_cast<const std::byte*>(address),
                                          [](const std::byte* p) { ::UnmapViewOfFile(p); });
}

std::error_code InputFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  return read_all_at(handle_of(handle_), offset, into);
}

bool maps_lazily() {
  return true;
}

Expected<ScratchFile> ScratchFile::create(const Path& beside) {
  // Windows removes it with its last handle; until then it has a name.
  constexpr int kAttempts = 100;  // a name of ours may be taken by another thread
  std::error_code error;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Path name = beside;
    name += ".scratch-" + std::to_string(process_id()) + "-" + std::to_string(attempt);
    auto handle = open_handle(name, GENERIC_READ | GENERIC_WRITE | DELETE, CREATE_NEW,
                              FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE);
    if (handle) return ScratchFile(std::move(*handle));
    error = handle.error();
    if (error != std::errc::file_exists) break;
  }
  return std::unexpected(error);
}

std::error_code ScratchFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  for (std::size_t done = 0; done < bytes.size();) {
    DWORD written = 0;
    OVERLAPPED where = at_offset(offset + done);
    if (::WriteFile(handle_of(handle_), bytes.data() + done, piece_of(bytes.size() - done), &written,
                    &where) == 0)
      return last_error();
    done += written;
  }
  return {};
}

std::error_code ScratchFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  return read_all_at(handle_of(handle_), offset, into);
}

Expected<std::FILE*> create_file(const Path& path) {
  return open_stream(path, CREATE_NEW, "wb");
}

Expected<std::FILE*> open_output(const Path& path, bool append) {
  return open_stream(path, append ? OPEN_ALWAYS : CREATE_ALWAYS, append ? "ab" : "wb");
}

Expected<std::FILE*> open_private_output(const Path& path, bool append) {
  return open_output(path, append);  // what lies below a user's folder is that user's
}

std::error_code put_on_disk(std::FILE* file) {
  if (std::fflush(file) != 0 || ::_commit(::_fileno(file)) != 0) return {errno, std::generic_category()};
  return {};
}

std::error_code replace_file(const Path& from, const Path& to) {
  constexpr DWORD kHow = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  return ::MoveFileExW(from.c_str(), to.c_str(), kHow) == 0 ? last_error() : std::error_code();
}

}  // namespace doppler::system
