// A model file as its parser sees it: its start in memory, and where the rest can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_source.h"
#include "base/result.h"
#include "quant/tensor.h"

namespace doppler {

// How the files behind tensors are opened: as memory, or as sources that are read in pieces.
enum class Opening : std::uint8_t { kMapped, kPieces };
// What costs least memory: kPieces where the system would read a whole file to map it.
Opening usual_opening();

struct FileBytes {
  // All of a file in memory.
  explicit FileBytes(std::span<const std::byte> whole) : start(whole), size(whole.size()) {}
  FileBytes(std::span<const std::byte> first, const ByteSource& file)
      : start(first), size(file.size()), source(&file) {}

  std::span<const std::byte> start;
  std::uint64_t size = 0;              // of the file
  const ByteSource* source = nullptr;  // of what lies behind `start`; null if nothing does

  // A tensor of `bytes` bytes at `offset`, which lie in the file.
  TensorView tensor(std::string name, DType dtype, Shape shape, std::uint64_t offset,
                    std::uint64_t bytes) const;
};

// What a parser that has too little of the file returns instead of a result: how far `start` must reach.
struct NeedsMore {
  std::uint64_t bytes = 0;
};

// Lets `parse` see so much of the file's start as it turns out to need. It sets `more` where it wants more
// than it was given, and its error is then ignored. Returns the start, which what it made may point into.
// Errors: those of `parse`; kIo; kLimit.
Result<std::shared_ptr<const std::vector<std::byte>>> parse_start(
    const ByteSource& source, const std::function<Status(const FileBytes& bytes, NeedsMore& more)>& parse);

}  // namespace doppler
