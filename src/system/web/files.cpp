// The files that the page hands in, which are read, never written, and small ones that it keeps for later
// loads.
#include "system/files.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "system/web/imports.h"
#include "system/web/threads.h"

namespace doppler::system {
namespace {

// Pieces that a page can hand over at once, whatever its source is: 16 MiB.
constexpr std::size_t kMostAtOnce = std::size_t{16} << 20;

std::error_code read_only() {
  return std::make_error_code(std::errc::read_only_file_system);
}

// A file that is being written, until it gets its name: a stream into memory.
struct Draft {
  char* bytes = nullptr;
  std::size_t size = 0;
};
using Drafts = std::map<std::string, Draft>;

Drafts& drafts() {
  static Drafts all;
  return all;
}

void drop(Drafts::iterator draft) {
  std::free(draft->second.bytes);
  drafts().erase(draft);
}

std::int32_t number_of(const FileHandle& handle) {
  return static_cast<std::int32_t>(handle.get());
}

}  // namespace

FileHandle::~FileHandle() {
  if (value_ != kNone) web::close_file(static_cast<std::int32_t>(value_));
}

Expected<InputFile> InputFile::open(const Path& path) {
  const std::string name = web::web_path(path);
  const std::int32_t file = web::open_file(name.data(), name.size());
  if (file >= 0) return InputFile(FileHandle(file));
  return std::unexpected(std::make_error_code(is_folder(path) ? std::errc::is_a_directory
                                                              : std::errc::no_such_file_or_directory));
}

Expected<std::optional<std::uint64_t>> InputFile::regular_size() const {
  return static_cast<std::uint64_t>(web::file_size(number_of(handle_)));
}

Expected<std::size_t> InputFile::read(std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto piece = into.subspan(done, std::min(into.size() - done, kMostAtOnce));
    const std::int32_t got = web::read_file(number_of(handle_), piece.data(), piece.size());
    if (got < 0) return std::unexpected(std::make_error_code(std::errc::io_error));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::error_code InputFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto piece = into.first(std::min(into.size(), kMostAtOnce));
    const std::int32_t got = web::on_first_thread([&] {
      return web::read_file_at(number_of(handle_), static_cast<double>(offset), piece.data(), piece.size());
    });
    if (got < 0 || static_cast<std::size_t>(got) < piece.size())
      return std::make_error_code(std::errc::io_error);
    offset += piece.size();
    into = into.subspan(piece.size());
  }
  return {};
}

bool maps_lazily() {
  return false;
}

// A module has no memory but its own: the bytes are read into it.
Expected<std::shared_ptr<const std::byte>> InputFile::map(std::uint64_t size) const {
  constexpr std::size_t kAlignment = 64;  // of the widest values that files hold, and of vectors
  const std::uint64_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  auto* const bytes =
      rounded > SIZE_MAX
          ? nullptr
          : static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded)));
  if (bytes == nullptr) return std::unexpected(std::make_error_code(std::errc::not_enough_memory));
  std::shared_ptr<const std::byte> owner(bytes,
                                         [](const std::byte* p) { std::free(const_cast<std::byte*>(p)); });
  const auto got = read({bytes, static_cast<std::size_t>(size)});
  if (!got) return std::unexpected(got.error());
  if (*got < size) return std::unexpected(std::make_error_code(std::errc::io_error));
  return owner;
}

Expected<ScratchFile> ScratchFile::create(const Path&) {
  return std::unexpected(read_only());
}
std::error_code ScratchFile::write_at(std::uint64_t, std::span<const std::byte>) const {
  return read_only();
}
std::error_code ScratchFile::read_at(std::uint64_t, std::span<std::byte>) const {
  return read_only();
}

Expected<std::FILE*> create_file(const Path& path) {
  const std::string name = web::web_path(path);
  if (!name.starts_with(web::kKeptFolder)) return std::unexpected(read_only());
  Draft& draft = drafts()[name];
  std::FILE* const file = ::open_memstream(&draft.bytes, &draft.size);
  if (file != nullptr) return file;
  drafts().erase(name);
  return std::unexpected(std::make_error_code(std::errc::not_enough_memory));
}
Expected<std::FILE*> open_output(const Path&, bool) {
  return std::unexpected(read_only());
}
Expected<std::FILE*> open_private_output(const Path&, bool) {
  return std::unexpected(read_only());
}
std::error_code put_on_disk(std::FILE* file) {
  return std::fflush(file) == 0 ? std::error_code() : std::make_error_code(std::errc::io_error);
}
std::error_code replace_file(const Path& from, const Path& to) {
  const auto draft = drafts().find(web::web_path(from));
  if (draft == drafts().end()) return read_only();
  const std::string name = web::web_path(to);
  web::keep_file(name.data(), name.size(), draft->second.bytes, draft->second.size);
  drop(draft);
  return {};
}
std::error_code create_folders(const Path& folder) {
  return is_folder(folder) ? std::error_code() : read_only();
}
std::error_code remove_file(const Path& path) {
  if (const auto draft = drafts().find(web::web_path(path)); draft != drafts().end()) {
    drop(draft);
    return {};
  }
  return exists(path) ? read_only() : std::error_code();
}

Expected<PathKind> kind_of(const Path& path) {
  constexpr PathKind kKinds[] = {PathKind::kMissing, PathKind::kFile, PathKind::kFolder};
  const std::string name = web::web_path(path);
  return kKinds[web::path_kind(name.data(), name.size())];
}

bool exists(const Path& path) {
  return kind_of(path) != PathKind::kMissing;
}

bool is_file(const Path& path) {
  return kind_of(path) == PathKind::kFile;
}

bool is_folder(const Path& path) {
  return kind_of(path) == PathKind::kFolder;
}

bool same_file(const Path& a, const Path& b) {
  return exists(a) && web::web_path(a) == web::web_path(b);
}

Expected<std::vector<Path>> list_folder(const Path& folder) {
  if (!is_folder(folder)) return std::unexpected(std::make_error_code(std::errc::not_a_directory));
  const std::string name = web::web_path(folder);
  std::string names(web::list_folder(name.data(), name.size(), nullptr, 0), '\0');
  web::list_folder(name.data(), name.size(), names.data(), names.size());
  std::vector<Path> entries;
  for (std::string_view rest = names; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\0'), rest.size() - 1);
    entries.push_back(folder / rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return entries;
}

std::optional<std::uint64_t> file_size(const Path& path) {
  const auto file = InputFile::open(path);
  if (!file) return std::nullopt;
  return file->regular_size().value_or(std::nullopt);
}

std::optional<std::uint64_t> free_space(const Path&) {
  return 0;
}

Path without_links(const Path& path) {
  return path.lexically_normal();
}

Expected<Path> link_target(const Path& path) {
  return path;
}

}  // namespace doppler::system
