// The manifest of an RDRR package: a folder of hashed shards of at most 64 MiB, made to be fetched in pieces,
// with manifest.json, which says what the model is, and tensors.json (or a part of the manifest), which says
// where each tensor lies. docs/rdrr.md describes what is read and written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/rdrr_hash.h"
#include "quant/tensor.h"

namespace doppler {

inline constexpr std::string_view kRdrrManifestName = "manifest.json";
inline constexpr std::uint64_t kRdrrShardBytes = std::uint64_t{64} << 20;
// Larger than the manifest of any model with hundreds of thousands of tensors.
inline constexpr std::uint64_t kMaxRdrrManifestBytes = 100'000'000;

struct RdrrShard {
  std::string filename;
  std::uint64_t size = 0, offset = 0;  // bytes; the offset in all shards together
  RdrrHash algorithm = RdrrHash::kSha256;
  std::string hash;  // 64 hexadecimal digits, lower-case
};

// Bytes of one shard.
struct RdrrSpan {
  std::size_t shard = 0;
  std::uint64_t offset = 0, size = 0;
};

// How the values of a matrix [rows, columns] follow each other. Blocks of quantised types never hold values
// of two rows (kRows) or columns (kColumns), whose last block is filled up; kPacked knows no rows.
enum class RdrrLayout : std::uint8_t { kRows, kColumns, kPacked };

struct RdrrTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // of the matrix, whatever its layout
  RdrrLayout layout = RdrrLayout::kRows;
  std::uint64_t size = 0;
  std::string role, group;      // "matmul", "layer.0"; may be empty
  std::vector<RdrrSpan> spans;  // in order
};

// What is loaded together: a layer, the embedding, the head.
struct RdrrGroup {
  std::string id, type;
  std::vector<std::size_t> shards, tensors;  // indices into the manifest's
  std::string hash;                          // of the tensors' bytes, one after the other; empty: not said
};

// A file beside the shards, such as a tokenizer, whose hash the manifest has, too.
struct RdrrFile {
  std::string filename;
  std::uint64_t size = 0;
  std::string hash;
};

struct RdrrManifest {
  int version = 1;  // 0 or 1
  std::string model_id, model_type, quantization;
  RdrrHash algorithm = RdrrHash::kSha256;
  std::uint64_t total_size = 0;  // of the shards
  std::vector<RdrrShard> shards;
  std::vector<RdrrTensor> tensors;  // by name
  std::vector<RdrrGroup> groups;    // by id
  std::vector<RdrrFile> files;
  std::string tokenizer_file;  // empty: none is named
  std::string gguf_metadata;  // a GGUF file without tensors that holds what the model's own said; empty: none
  JsonMember document;        // all of manifest.json
};

// The name of the file that holds the tensor map; empty if the manifest holds it itself. Errors: kCorrupt.
Result<std::string> rdrr_tensors_file(std::string_view manifest);

// Reads and checks everything that can be checked without the shards. `tensors` is the text of the file that
// rdrr_tensors_file() names, empty if it names none. Errors: kCorrupt for a value that is missing, of the
// wrong kind or contradicts another (tensors that overlap or leave their shards, sums, hashes that are none),
// kUnsupported for newer versions, unknown hashes and types, adapters, and manifests without shards of their
// own.
Result<RdrrManifest> parse_rdrr_manifest(std::string_view manifest, std::string_view tensors);

// The bytes that a tensor takes in a layout; nothing if that overflows, or for shapes that have no such
// layout.
std::optional<std::uint64_t> rdrr_bytes(DType dtype, const Shape& shape, RdrrLayout layout);

// "Q4_K_M" for Q4_K, else the type's own name; and back.
std::string_view rdrr_dtype_name(DType dtype);
std::optional<DType> rdrr_dtype_named(std::string_view name);

}  // namespace doppler
