// Bytes that lie elsewhere and are read in pieces, where they must not lie in memory as a whole: a model's
// file in a page, whose module has 4 GiB, or one that goes to a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"

namespace doppler {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `into` with the bytes from `offset` on; from several threads at once. Errors: kIo, also for bytes
  // beyond the end.
  virtual Status read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

// A file. Errors: those of MappedFile::open().
Result<std::shared_ptr<const ByteSource>> open_byte_source(const std::filesystem::path& path);

}  // namespace doppler
