#include "base/files.h"

#include <algorithm>
#include <cerrno>

#include "system/files.h"
#include "system/process.h"

#include "base/byte_source.h"
#include "base/text.h"

namespace doppler {
namespace {

std::unexpected<Error> system_failure(const char* doing, const std::filesystem::path& path,
                                      std::error_code error) {
  const bool missing = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  return fail(missing ? ErrorCode::kNotFound : ErrorCode::kIo, "The file {} cannot be {}: {}. {}",
              path.string(), doing, error.message(),
              missing                                  ? "Check the path."
              : error == std::errc::no_space_on_device ? "Free some space and try again."
              : error == std::errc::permission_denied  ? "Check its permissions."
                                                       : "Check the disk and try again.");
}

// Why a function of the C library has failed.
std::error_code library_error() {
  return {errno, std::generic_category()};
}

struct RegularFile {
  system::InputFile file;
  std::uint64_t size = 0;
};

Result<RegularFile> open_regular(const std::filesystem::path& path) {
  auto file = system::InputFile::open(path);
  if (!file) return system_failure("opened", path, file.error());
  const auto size = file->regular_size();
  if (!size) return system_failure("examined", path, size.error());
  if (!*size) return fail(ErrorCode::kIo, "The path {} is not a regular file. Give a file.", path.string());
  return RegularFile{std::move(*file), **size};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  DOPPLER_ASSIGN(const RegularFile regular, open_regular(path));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = regular.size;
  if (regular.size == 0) return mapped;  // systems refuse empty mappings; an empty span says the same
  auto data = regular.file.map(regular.size);
  if (!data) return system_failure("mapped", path, data.error());
  mapped.data_ = std::move(*data);
  return mapped;
}

namespace {

class FileSource final : public ByteSource {
 public:
  FileSource(RegularFile regular, std::filesystem::path path)
      : regular_(std::move(regular)), path_(std::move(path)) {}

  std::uint64_t size() const override { return regular_.size; }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (const auto error = regular_.file.read_at(offset, into)) return system_failure("read", path_, error);
    return {};
  }

 private:
  RegularFile regular_;
  std::filesystem::path path_;
};

}  // namespace

Result<std::shared_ptr<const ByteSource>> open_byte_source(const std::filesystem::path& path) {
  DOPPLER_ASSIGN(RegularFile regular, open_regular(path));
  return std::make_shared<FileSource>(std::move(regular), path);
}

std::filesystem::path typed_path(std::string_view text) {
  if (text != "~" && !text.starts_with("~/")) return text;
  const std::filesystem::path home = system::home_folder();
  if (home.empty()) return text;
  return text.size() > 2 ? home / text.substr(2) : home;
}

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  auto entries = system::list_folder(folder).value_or(std::vector<std::filesystem::path>());
  std::ranges::sort(entries);
  return entries;
}

std::string printable_path(const std::filesystem::path& path) {
  return printable(path.string(), 200);  // a line or two
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  DOPPLER_ASSIGN(const RegularFile regular, open_regular(path));
  if (regular.size > max_bytes) {
    return fail(
        ErrorCode::kLimit,
        "The file {} holds {} bytes, more than the {} allowed for its kind. Check that it is the right file.",
        path.string(), regular.size, max_bytes);
  }
  std::string text(regular.size, '\0');
  const auto got = regular.file.read(std::as_writable_bytes(std::span(text)));
  if (!got) return system_failure("read", path, got.error());
  text.resize(*got);  // a file that shrank while being read: the bytes read are the file
  return text;
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& given) {
  auto target = system::link_target(given);
  if (!target) return system_failure("created", given, target.error());
  std::filesystem::path& path = *target;
  // Renaming over a device or a folder would replace it, or fail after all the work.
  if (system::exists(path) && !system::is_file(path)) {
    return fail(ErrorCode::kIo, "The output {} is not a regular file. Give another name.", path.string());
  }
  // A crashed process may have left a file of our process number behind; containers reuse the same few.
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::filesystem::path partial = path;
    partial += attempt == 0 ? fmt::format(".partial-{}", system::process_id())
                            : fmt::format(".partial-{}-{}", system::process_id(), attempt);
    const auto file = system::create_file(partial);
    if (file) return OutputFile(std::move(path), std::move(partial), *file);
    if (file.error() != std::errc::file_exists) return system_failure("created", path, file.error());
  }
  return system_failure("created", path, std::make_error_code(std::errc::file_exists));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  (void)system::remove_file(partial_);
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (file_ == nullptr) return fail(ErrorCode::kInternal, "The file {} is already complete.", path_.string());
  if (bytes.empty()) return {};  // fwrite takes no null pointer, not even for nothing
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    return system_failure("written", path_, library_error());
  return {};
}

Status OutputFile::commit() {
  if (file_ == nullptr) return fail(ErrorCode::kInternal, "The file {} is already complete.", path_.string());
  if (std::ferror(file_) != 0) {
    return fail(ErrorCode::kIo, "The file {} cannot be completed, because writing to it failed. Try again.",
                path_.string());
  }
  if (const auto error = system::put_on_disk(file_)) return system_failure("written", path_, error);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) {
    const std::error_code error = library_error();
    (void)system::remove_file(partial_);
    return system_failure("written", path_, error);
  }
  if (const auto error = system::replace_file(partial_, path_)) {
    (void)system::remove_file(partial_);
    return system_failure("put in place", path_, error);
  }
  return {};
}

}  // namespace doppler
