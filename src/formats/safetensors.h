// Safetensors, read and written. Source: the format's specification (header of at most 100 MB, 8-byte
// little-endian length, JSON object starting with '{', offsets relative to the end of the header, no holes,
// no overlaps).
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "formats/file_bytes.h"
#include "formats/tensor_store.h"

namespace doppler {

// One .safetensors file. Errors: kNotFound, kIo, kCorrupt (each violation of the specification by
// name of tensor and value), kUnsupported (a dtype the format does not know), kLimit (no memory to align in).
Result<TensorStore> open_safetensors(const std::filesystem::path& file, Opening opening = Opening::kMapped);

// The shards that a model.safetensors.index.json names. Every tensor of weight_map must be in its shard, and
// every tensor of a shard in weight_map; file names may not leave the folder.
Result<TensorStore> open_safetensors_index(const std::filesystem::path& index_file,
                                           Opening opening = Opening::kMapped);

// The file names that an index names, sorted. Errors as above for the index itself.
Result<std::vector<std::string>> list_shards(const std::filesystem::path& index_file);

// The parser alone, on bytes in memory, also for the fuzz target and the tests of hostile headers. Views
// point into `bytes`.
Status parse_safetensors(std::span<const std::byte> bytes, std::string_view what, TensorStore& out);
// The same on a file whose start alone is in memory: see parse_start().
Status parse_safetensors(const FileBytes& bytes, std::string_view what, NeedsMore& more, TensorStore& out);

// Writes tensors as a stream: declare every one first, then give the bytes in that order, in pieces of any
// size; the file appears only when it is complete. The format has no padding between tensors: give those of
// wide types first, so that all lie aligned. Errors: kUsage (names that are not UTF-8, reserved or repeated;
// sizes that overflow), kLimit (a header above 100 MB), kIo (such as a full disk).
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
  };
  static Result<SafetensorsWriter> create(const std::filesystem::path& file, std::span<const Entry> entries,
                                          const std::map<std::string, std::string>& metadata = {});
  Status write(std::span<const std::byte> bytes);
  Status finish();  // kInternal if bytes are missing or too many

 private:
  explicit SafetensorsWriter(OutputFile file, std::uint64_t wanted)
      : file_(std::move(file)), wanted_(wanted) {}
  OutputFile file_;
  std::uint64_t wanted_, written_ = 0;
};

}  // namespace doppler
