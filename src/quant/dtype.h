// DType: every element type a tensor can be stored in, as one table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace doppler {

// Safetensors' scalar types, then GGUF's block types (`blocks` of values that share scales).
// clang-format off
enum class DType : std::uint8_t {
  kF32, kF16, kBF16, kF64, kF8E4M3, kF8E5M2, kF8E8M0, kF4E2M1, kF6E2M3, kF6E3M2, kC64,
  kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool, kF8E4M3Fnuz, kF8E5M2Fnuz,
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,
  kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS, kIQ3_S, kIQ4_NL, kIQ4_XS, kTQ1_0, kTQ2_0, kMXFP4,
};
// clang-format on

struct DTypeInfo {
  DType type;
  std::string_view name;       // as safetensors or ggml and the reports spell it
  std::uint32_t block_values;  // values stored together
  std::uint32_t block_bits;    // bits of such a block; only whole bytes of tensor data exist
  std::uint32_t alignment;     // bytes: where typed reads of a value may start; 1 for packed and byte types
  bool computable;             // backends read it as weights
};

const DTypeInfo& dtype_info(DType type);
// Values are stored in blocks with shared scales: a matrix row is a whole number of blocks.
inline bool is_quantised(DType type) {
  return dtype_info(type).block_values > 1;
}
inline std::string_view dtype_name(DType type) {
  return dtype_info(type).name;
}
// The type of that exact spelling, or nothing.
std::optional<DType> dtype_from_name(std::string_view name);
std::span<const DTypeInfo> all_dtypes();

}  // namespace doppler
