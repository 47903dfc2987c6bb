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
