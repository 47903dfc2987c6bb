#include "hub/part_file.h"

#include <cerrno>

#include "base/files.h"
#include "base/sha256.h"
#include "base/text.h"

namespace doppler::hub {
namespace {

std::error_code last_library_error() {
  return {errno, std::generic_category()};
}

// Of the kind that the file's hash is of; git hashes a file behind a header with its length.
Result<system::Hasher> begin_hash(const RepoFile& file) {
  const bool git = file.hash.size() == 40;
  auto hasher = system::Hasher::create(git ? system::HashKind::kSha1 : system::HashKind::kSha256);
  if (!hasher) {
    return fail(ErrorCode::kInternal,
                "The system's cryptographic library has no {}, so downloads cannot be checked. Check its "
                "configuration.",
                git ? "SHA-1" : "SHA-256");
  }
  if (git) {
    const std::string header = fmt::format("blob {}", *file.size);
    hasher->add(std::as_bytes(std::span(header.c_str(), header.size() + 1)));  // with its zero byte
  }
  return std::move(*hasher);
}

}  // namespace

PartFile::PartFile(system::FileLock lock, system::Hasher hasher, const CachedRepo& repo, RepoFile file)
    : lock_(std::move(lock)),
      hasher_(std::move(hasher)),
      file_(std::move(file)),
      part_(repo.incomplete(file_.hash)),
      blob_(repo.blob(file_.hash)) {}

PartFile::PartFile(PartFile&& other) noexcept
    : lock_(std::move(other.lock_)),
      hasher_(std::move(other.hasher_)),
      file_(std::move(other.file_)),
      part_(std::move(other.part_)),
      blob_(std::move(other.blob_)),
      out_(std::exchange(other.out_, nullptr)),
      size_(other.size_),
      failed_(other.failed_) {}

PartFile::~PartFile() {
  if (out_ != nullptr) std::fclose(out_);
}

std::unexpected<Error> PartFile::failure(const char* doing, std::error_code error) const {
  return fail(ErrorCode::kIo, "The file {} cannot be {}: {}. {}", printable_path(part_), doing,
              error.message(),
              error == std::errc::no_space_on_device || error == std::errc::file_too_large
                  ? "Free some space and run the same command again: it goes on where it was."
                  : "Check the disk and its permissions.");
}

Result<PartFile> PartFile::open(const CachedRepo& repo, const RepoFile& file,
                                const std::function<void(std::uint64_t)>& on_read,
                                const Cancelled& cancelled) {
  auto lock = system::FileLock::try_take(repo.lock(file.hash));
  if (!lock) {
    return fail(ErrorCode::kIo, "The file {} cannot be locked: {}. Check its permissions.",
                printable_path(repo.lock(file.hash)), lock.error().message());
  }
  if (!*lock) {
    return fail(
        ErrorCode::kIo,
        "The file {} of {} is being downloaded by another program. Wait for it, then run the same command "
        "again.",
        printable(file.path), repo.repo());
  }
  DOPPLER_ASSIGN(system::Hasher hasher, begin_hash(file));
  PartFile part(std::move(**lock), std::move(hasher), repo, file);
  DOPPLER_TRY(part.read_rest(on_read, cancelled));
  return part;
}

Status PartFile::reopen(bool append) {
  if (out_ != nullptr) std::fclose(std::exchange(out_, nullptr));
  const auto opened = system::open_output(part_, append);
  if (!opened) return failure("written", opened.error());
  out_ = *opened;
  return {};
}

Status PartFile::read_rest(const std::function<void(std::uint64_t)>& on_read, const Cancelled& cancelled) {
  const std::uint64_t there = system::is_file(part_) ? system::file_size(part_).value_or(0) : 0;
  if (there == 0 || there > *file_.size) return reopen(false);
  const auto input = system::InputFile::open(part_);
  if (!input) return failure("read", input.error());
  std::vector<std::byte> buffer(1 << 20);  // a reading that Ctrl-C need not wait for
  while (size_ < there) {
    if (cancelled()) return std::unexpected(cancelled_error());
    const auto got = input->read(buffer);
    if (!got) return failure("read", got.error());
    if (*got == 0) break;
    hasher_.add(std::span(buffer).first(*got));
    size_ += *got;
    on_read(size_);
  }
  return reopen(true);
}

Status PartFile::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  if (failed_) return failure("written", std::make_error_code(std::errc::io_error));
  if (std::fwrite(bytes.data(), 1, bytes.size(), out_) != bytes.size()) {
    failed_ = true;
    return failure("written", last_library_error());
  }
  hasher_.add(bytes);
  size_ += bytes.size();
  return {};
}

Status PartFile::start_over() {
  DOPPLER_TRY(reopen(false));
  DOPPLER_ASSIGN(hasher_, begin_hash(file_));
  size_ = 0;
  return {};
}

Result<bool> PartFile::finish() {
  if (const auto error = system::put_on_disk(out_)) return failure("written", error);
  if (std::fclose(std::exchange(out_, nullptr)) != 0) return failure("written", last_library_error());
  if (hex_digits(hasher_.finish()) != file_.hash) {
    DOPPLER_TRY(start_over());
    return false;
  }
  if (const auto error = system::replace_file(part_, blob_)) return failure("put in place", error);
  return true;
}

}  // namespace doppler::hub
