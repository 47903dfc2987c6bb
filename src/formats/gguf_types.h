// GGUF's numbers for value and tensor types. Source: the GGUF specification (ggml, docs/gguf.md) and the
// enumerators of ggml 0.9.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "quant/dtype.h"

namespace doppler {

// Types of metadata values; the enumerators are the file's numbers.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr std::uint32_t kGgufTypes = 13;

// Where tensors begin if the file has no general.alignment: at multiples of this many bytes.
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
// The specification's bound of a key's length, and ggml's GGML_MAX_DIMS.
inline constexpr std::uint64_t kGgufMaxKeyBytes = 65535;
inline constexpr std::uint32_t kGgufMaxDims = 4;

std::string_view gguf_type_name(GgufType type);  // "u8", "string", "array"
// Bytes of one value; 0 for strings and arrays, whose sizes stand in the file.
std::uint64_t gguf_type_bytes(GgufType type);

// The tensor type of a file's number; `subject` begins the sentence of an error ("The tensor x"). Errors:
// kUnsupported for types that ggml has dropped or never stores in files, by name; kCorrupt for numbers that
// stand for nothing.
Result<DType> dtype_from_gguf(std::uint32_t id, std::string_view subject);
// The file's number of a tensor type, or nothing if GGUF has no such type.
std::optional<std::uint32_t> gguf_id(DType type);

}  // namespace doppler
