// GGUF, read: versions 2 and 3, little-endian, whole or split. Source: the specification in ggml's
// docs/gguf.md. A file is: "GGUF", version (u32), tensor count and key count (u64 each), key-value pairs,
// tensor descriptions, padding to the alignment, data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"
#include "formats/file_bytes.h"
#include "formats/gguf_metadata.h"
#include "formats/tensor_store.h"

namespace doppler {

struct GgufFile {
  GgufMetadata metadata;  // of a split set: the first file's
  TensorStore tensors;    // shapes outermost first, the reverse of the file's
  std::uint32_t version = 3;
  std::uint64_t alignment = kGgufDefaultAlignment;
};

// One file, or the first of a split set (NAME-00001-of-00003.gguf), whose siblings it opens.
// Errors: kNotFound, kIo; kCorrupt (each contradiction, by name of key or tensor and value); kUnsupported
// (version 1, big-endian files, tensor types that ggml dropped); kUsage (a later file of a split set);
// kLimit.
Result<GgufFile> open_gguf(const std::filesystem::path& path, Opening opening = Opening::kMapped);

// The parser alone, on one file's bytes in memory, also for the fuzz target. `what` names the bytes in
// messages ("The file x.gguf"). Keys, values and tensors point into `bytes`. Does not look at split.* keys.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, std::string_view what);
// The same on a file whose start alone is in memory: see parse_start().
Result<GgufFile> parse_gguf(const FileBytes& bytes, std::string_view what, NeedsMore& more);

}  // namespace doppler
