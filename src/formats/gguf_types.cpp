#include "formats/gguf_types.h"

#include <algorithm>
#include <array>

namespace doppler {
namespace {

struct ValueType {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<ValueType, kGgufTypes> kValueTypes = {{{"u8", 1},
                                                            {"i8", 1},
                                                            {"u16", 2},
                                                            {"i16", 2},
                                                            {"u32", 4},
                                                            {"i32", 4},
                                                            {"f32", 4},
                                                            {"bool", 1},
                                                            {"string", 0},
                                                            {"array", 0},
                                                            {"u64", 8},
                                                            {"i64", 8},
                                                            {"f64", 8}}};

struct TensorType {
  std::uint32_t id;
  DType dtype;
};
// clang-format off
constexpr std::array kTensorTypes = {
    TensorType{0, DType::kF32},      TensorType{1, DType::kF16},      TensorType{2, DType::kQ4_0},
    TensorType{3, DType::kQ4_1},     TensorType{6, DType::kQ5_0},     TensorType{7, DType::kQ5_1},
    TensorType{8, DType::kQ8_0},     TensorType{10, DType::kQ2_K},    TensorType{11, DType::kQ3_K},
    TensorType{12, DType::kQ4_K},    TensorType{13, DType::kQ5_K},    TensorType{14, DType::kQ6_K},
    TensorType{16, DType::kIQ2_XXS}, TensorType{17, DType::kIQ2_XS},  TensorType{18, DType::kIQ3_XXS},
    TensorType{19, DType::kIQ1_S},   TensorType{20, DType::kIQ4_NL},  TensorType{21, DType::kIQ3_S},
    TensorType{22, DType::kIQ2_S},   TensorType{23, DType::kIQ4_XS},  TensorType{24, DType::kI8},
    TensorType{25, DType::kI16},     TensorType{26, DType::kI32},     TensorType{27, DType::kI64},
    TensorType{28, DType::kF64},     TensorType{29, DType::kIQ1_M},   TensorType{30, DType::kBF16},
    TensorType{34, DType::kTQ1_0},   TensorType{35, DType::kTQ2_0},   TensorType{39, DType::kMXFP4},
};
// clang-format on

struct OtherType {
  std::uint32_t id;
  std::string_view name, why;
};
constexpr std::string_view kDropped = "which ggml has dropped";
constexpr std::string_view kActivations = "which ggml uses for activations and never stores";
constexpr std::array kOtherTypes = {
    OtherType{4, "Q4_2", kDropped},
    OtherType{5, "Q4_3", kDropped},
    OtherType{9, "Q8_1", kActivations},
    OtherType{15, "Q8_K", kActivations},
    OtherType{31, "Q4_0_4_4", kDropped},
    OtherType{32, "Q4_0_4_8", kDropped},
    OtherType{33, "Q4_0_8_8", kDropped},
    OtherType{36, "IQ4_NL_4_4", kDropped},
    OtherType{37, "IQ4_NL_4_8", kDropped},
    OtherType{38, "IQ4_NL_8_8", kDropped},
    OtherType{40, "NVFP4", "which Doppler does not read"},
};

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return kValueTypes[static_cast<std::uint32_t>(type)].name;
}

std::uint64_t gguf_type_bytes(GgufType type) {
  return kValueTypes[static_cast<std::uint32_t>(type)].bytes;
}

Result<DType> dtype_from_gguf(std::uint32_t id, std::string_view subject) {
  if (const auto found = std::ranges::find(kTensorTypes, id, &TensorType::id); found != kTensorTypes.end())
    return found->dtype;
  if (const auto other = std::ranges::find(kOtherTypes, id, &OtherType::id); other != kOtherTypes.end()) {
    return fail(ErrorCode::kUnsupported, "{} has the type {} ({}), {}. Convert the model again.", subject,
                other->name, id, other->why);
  }
  return fail(ErrorCode::kCorrupt,
              "{} has the type number {}, which stands for no type. Download the file again.", subject, id);
}

std::optional<std::uint32_t> gguf_id(DType type) {
  const auto found = std::ranges::find(kTensorTypes, type, &TensorType::dtype);
  return found == kTensorTypes.end() ? std::nullopt : std::optional(found->id);
}

}  // namespace doppler
