#include "quant/dtype.h"

#include <array>

namespace doppler {
namespace {

// Spellings and widths: the Dtype list of the safetensors library, version 0.8.
// clang-format off
constexpr std::array kTable = {
    //        type                name          values bits align computable
    DTypeInfo{DType::kF32,        "F32",         1, 32, 4, true},
    DTypeInfo{DType::kF16,        "F16",         1, 16, 2, true},
    DTypeInfo{DType::kBF16,       "BF16",        1, 16, 2, true},
    DTypeInfo{DType::kF64,        "F64",         1, 64, 8, false},
    DTypeInfo{DType::kF8E4M3,     "F8_E4M3",     1,  8, 1, false},
    DTypeInfo{DType::kF8E5M2,     "F8_E5M2",     1,  8, 1, false},
    DTypeInfo{DType::kF8E8M0,     "F8_E8M0",     1,  8, 1, false},
    DTypeInfo{DType::kF4E2M1,     "F4",          1,  4, 1, false},
    DTypeInfo{DType::kF6E2M3,     "F6_E2M3",     1,  6, 1, false},
    DTypeInfo{DType::kF6E3M2,     "F6_E3M2",     1,  6, 1, false},
    DTypeInfo{DType::kC64,        "C64",         1, 64, 4, false},
    DTypeInfo{DType::kI8,         "I8",          1,  8, 1, false},
    DTypeInfo{DType::kI16,        "I16",         1, 16, 2, false},
    DTypeInfo{DType::kI32,        "I32",         1, 32, 4, false},
    DTypeInfo{DType::kI64,        "I64",         1, 64, 8, false},
    DTypeInfo{DType::kU8,         "U8",          1,  8, 1, false},
    DTypeInfo{DType::kU16,        "U16",         1, 16, 2, false},
    DTypeInfo{DType::kU32,        "U32",         1, 32, 4, false},
    DTypeInfo{DType::kU64,        "U64",         1, 64, 8, false},
    DTypeInfo{DType::kBool,       "BOOL",        1,  8, 1, false},
    DTypeInfo{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 1,  8, 1, false},
    DTypeInfo{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 1,  8, 1, false},
    // Block sizes: ggml's type traits.
    DTypeInfo{DType::kQ4_0,      "Q4_0",         32,  144, 1, true},
    DTypeInfo{DType::kQ4_1,      "Q4_1",         32,  160, 1, true},
    DTypeInfo{DType::kQ5_0,      "Q5_0",         32,  176, 1, true},
    DTypeInfo{DType::kQ5_1,      "Q5_1",         32,  192, 1, true},
    DTypeInfo{DType::kQ8_0,      "Q8_0",         32,  272, 1, true},
    DTypeInfo{DType::kQ2_K,      "Q2_K",        256,  672, 1, true},
    DTypeInfo{DType::kQ3_K,      "Q3_K",        256,  880, 1, true},
    DTypeInfo{DType::kQ4_K,      "Q4_K",        256, 1152, 1, true},
    DTypeInfo{DType::kQ5_K,      "Q5_K",        256, 1408, 1, true},
    DTypeInfo{DType::kQ6_K,      "Q6_K",        256, 1680, 1, true},
    DTypeInfo{DType::kIQ1_S,     "IQ1_S",       256,  400, 1, true},
    DTypeInfo{DType::kIQ1_M,     "IQ1_M",       256,  448, 1, true},
    DTypeInfo{DType::kIQ2_XXS,   "IQ2_XXS",     256,  528, 1, true},
    DTypeInfo{DType::kIQ2_XS,    "IQ2_XS",      256,  592, 1, true},
    DTypeInfo{DType::kIQ2_S,     "IQ2_S",       256,  656, 1, true},
    DTypeInfo{DType::kIQ3_XXS,   "IQ3_XXS",     256,  784, 1, true},
    DTypeInfo{DType::kIQ3_S,     "IQ3_S",       256,  880, 1, true},
    DTypeInfo{DType::kIQ4_NL,    "IQ4_NL",       32,  144, 1, true},
    DTypeInfo{DType::kIQ4_XS,    "IQ4_XS",      256, 1088, 1, true},
    DTypeInfo{DType::kTQ1_0,     "TQ1_0",       256,  432, 1, true},
    DTypeInfo{DType::kTQ2_0,     "TQ2_0",       256,  528, 1, true},
    DTypeInfo{DType::kMXFP4,     "MXFP4",        32,  136, 1, true},
};
// clang-format on

// dtype_info() indexes the table by the enumerator.
constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].type) != i) return false;
  }
  return true;
}
static_assert(in_enum_order());

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  return kTable[static_cast<std::size_t>(type)];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kTable) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

std::span<const DTypeInfo> all_dtypes() {
  return kTable;
}

}  // namespace doppler
