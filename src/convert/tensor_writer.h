// Streams tensors of a source into a file: rows are read, put in order, encoded on all cores, measured
// and written, a few megabytes at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "convert/source.h"
#include "quant/encode.h"
#include "quant/error.h"

namespace doppler::convert {

class TensorWriter {
 public:
  // `on_bytes` is called after each piece with its size; false ends the writing (kIo).
  using OnBytes = std::function<bool(std::uint64_t bytes, std::string_view tensor)>;
  TensorWriter(std::size_t threads, EncodeSearch search, OnBytes on_bytes);

  // Where bytes of tensors go, piece by piece.
  using Sink = std::function<Status(std::span<const std::byte> bytes)>;

  // Gives the tensor's bytes to `sink`. Returns the encoding's error; nothing where no
  // value changes. Errors: those of encode(), naming the tensor, and of the file.
  Result<std::optional<EncodingError>> write(const SourceTensor& tensor, DType type, const Sink& sink);

 private:
  Status make_rows(const SourceTensor& tensor, DType type, std::uint64_t first, std::uint64_t count);
  Status make_row(const SourceTensor& tensor, DType type, std::uint64_t row, std::span<std::byte> out,
                  std::size_t thread);

  // One thread's row, before and after encoding.
  struct Scratch {
    std::vector<float> values, decoded, unordered;
    EncodingErrorSum error;
  };
  ThreadPool pool_;
  EncodeSearch search_;
  OnBytes on_bytes_;
  std::vector<Scratch> scratch_;
  std::vector<std::byte> bytes_;
};

// The bytes of a tensor of that type. Nothing if rows end inside a block.
std::optional<std::uint64_t> stored_bytes(const SourceTensor& tensor, DType type);

}  // namespace doppler::convert
