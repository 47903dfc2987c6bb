// PartFile: a blob while it comes. Bytes are appended in order, so that what lies on the disk is always the
// file's beginning: a later download, of this program or Hugging Face's, goes on behind it. Only a file of
// the right size and hash gets its name.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "system/hash.h"
#include "system/shared_folder.h"

namespace doppler::hub {

class PartFile {
 public:
  // Takes the blob's lock, and reads what an earlier download left, to go on with its hash; `on_read` hears
  // how much of it has been read. Errors: kIo (the disk; another program that downloads the same file;
  // cancelled).
  static Result<PartFile> open(const CachedRepo& repo, const RepoFile& file,
                               const std::function<void(std::uint64_t)>& on_read, const Cancelled& cancelled);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  std::uint64_t size() const { return size_; }
  // Errors: kIo, such as for a full disk.
  Status append(std::span<const std::byte> bytes);
  // Throws away what there is.
  Status start_over();
  // Gives the blob its name if its hash is right; false if it is not. The size must be. Errors: kIo.
  Result<bool> finish();

 private:
  PartFile(system::FileLock lock, system::Hasher hasher, const CachedRepo& repo, RepoFile file);
  Status reopen(bool append);
  Status read_rest(const std::function<void(std::uint64_t)>& on_read, const Cancelled& cancelled);
  std::unexpected<Error> failure(const char* doing, std::error_code error) const;

  system::FileLock lock_;
  system::Hasher hasher_;
  RepoFile file_;
  std::filesystem::path part_, blob_;
  std::FILE* out_ = nullptr;
  std::uint64_t size_ = 0;
  bool failed_ = false;  // a write did: nobody knows how much of it is there
};

}  // namespace doppler::hub
