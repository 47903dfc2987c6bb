// Tensors of RDRR packages whose bytes lie as nothing computes with them, brought into rows of whole blocks.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/float16.h"
#include "base/text.h"
#include "formats/rdrr.h"
#include "quant/blocks.h"

namespace doppler {
namespace {

constexpr std::uint64_t kPart = 32;  // values of a sub-block of Q4_K, and of a block of Q4_1

// A sub-block of Q4_K has a scale, a minimum and 32 codes of 4 bits, and so has a block of Q4_1; only its
// scale and minimum, products of a half and 6 bits, are rounded to halves.
BlockQ4_1 part_of(const BlockQ4_K& block, unsigned part) {
  const ScaleMin scale = q4_k_scale(block.scales, part);
  BlockQ4_1 out{.d = f32_to_f16(f16_to_f32(block.d) * static_cast<float>(scale.scale)),
                .m = f32_to_f16(-f16_to_f32(block.dmin) * static_cast<float>(scale.min)),
                .qs = {}};
  const std::uint8_t* const codes = block.qs + std::size_t{part / 2} * kPart;
  const unsigned shift = part % 2 * 4;
  for (std::size_t i = 0; i < kPart / 2; ++i)
    out.qs[i] =
        static_cast<std::uint8_t>((codes[i] >> shift & 15) | (codes[i + kPart / 2] >> shift & 15) << 4);
  return out;
}

// The values of the tensor's lines (rows, columns, or all in one) to the next whole block, and how many
// lines.
struct Lines {
  std::uint64_t count, length, stride;
};
Lines lines_of(const RdrrTensor& tensor) {
  const std::uint64_t values = element_count(tensor.shape).value_or(0);
  std::uint64_t count = tensor.layout == RdrrLayout::kColumns ? tensor.shape[1] : row_count(tensor.shape);
  if (tensor.layout == RdrrLayout::kPacked) count = 1;
  const std::uint64_t length = values / count, block = dtype_info(tensor.dtype).block_values;
  return {count, length, (length + block - 1) / block * block};
}

Status relay_parts(const RdrrTensor& tensor, std::span<const std::byte> bytes, TensorStore& store) {
  DOPPLER_ASSIGN(std::span<std::byte> out, store.create(tensor.name, DType::kQ4_1, tensor.shape));
  const Lines lines = lines_of(tensor);
  constexpr std::uint64_t kParts = 256 / kPart;
  for (std::uint64_t line = 0; line < lines.count; ++line) {
    for (std::uint64_t i = 0; i < lines.length / kPart; ++i) {
      const std::uint64_t at = line * lines.stride / kPart + i;
      BlockQ4_K block;
      std::memcpy(&block, bytes.data() + at / kParts * sizeof block, sizeof block);
      const BlockQ4_1 part = part_of(block, static_cast<unsigned>(at % kParts));
      std::memcpy(out.data(), &part, sizeof part);
      out = out.subspan(sizeof part);
    }
  }
  return {};
}

// One line of quantised values.
Status decode_line(const RdrrTensor& tensor, std::span<const std::byte> bytes, std::uint64_t begin,
                   std::uint64_t stored, std::span<float> values) {
  return decode_f32(TensorView{tensor.name, tensor.dtype, {stored}, bytes}, begin, values);
}

Status relay_rows(const RdrrTensor& tensor, std::span<const std::byte> bytes, TensorStore& store) {
  DOPPLER_ASSIGN(const std::span<std::byte> out, store.create(tensor.name, DType::kF32, tensor.shape));
  const Lines lines = lines_of(tensor);
  std::vector<float> values(lines.length);
  for (std::uint64_t line = 0; line < lines.count; ++line) {
    DOPPLER_TRY(decode_line(tensor, bytes, line * lines.stride, lines.count * lines.stride, values));
    std::memcpy(out.data() + line * lines.length * sizeof(float), values.data(),
                values.size() * sizeof(float));
  }
  return {};
}

Status relay_columns(const RdrrTensor& tensor, std::span<const std::byte> bytes, TensorStore& store) {
  const bool blocks = is_quantised(tensor.dtype);
  const DType type = blocks ? DType::kF16 : tensor.dtype;
  DOPPLER_ASSIGN(const std::span<std::byte> out, store.create(tensor.name, type, tensor.shape));
  const std::uint64_t rows = tensor.shape[0], columns = tensor.shape[1],
                      width = dtype_info(type).block_bits / 8;
  const Lines lines = lines_of(tensor);
  std::vector<float> values(blocks ? rows : 0);
  std::vector<std::uint16_t> halves(values.size());
  for (std::uint64_t column = 0; column < columns; ++column) {
    const std::byte* from = bytes.data() + column * rows * width;
    if (blocks) {
      DOPPLER_TRY(decode_line(tensor, bytes, column * lines.stride, columns * lines.stride, values));
      std::ranges::transform(values, halves.begin(), f32_to_f16);
      from = reinterpret_cast<const std::byte*>(halves.data());
    }
    for (std::uint64_t row = 0; row < rows; ++row)
      std::memcpy(out.data() + (row * columns + column) * width, from + row * width, width);
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> rdrr_bytes(DType dtype, const Shape& shape, RdrrLayout layout) {
  const DTypeInfo& info = dtype_info(dtype);
  const auto values = element_count(shape);
  if (!values || *values == 0) return std::nullopt;
  if (info.block_values == 1) return byte_size(dtype, shape);
  if (layout == RdrrLayout::kColumns && shape.size() != 2) return std::nullopt;
  std::uint64_t lines = layout == RdrrLayout::kColumns ? shape[1] : row_count(shape);
  if (layout == RdrrLayout::kPacked || shape.empty()) lines = 1;
  const std::uint64_t length = *values / lines;
  const std::uint64_t blocks = length / info.block_values + (length % info.block_values != 0);
  return (Checked(lines) * blocks * (info.block_bits / 8)).get();
}

std::string_view rdrr_dtype_name(DType dtype) {
  return dtype == DType::kQ4_K ? "Q4_K_M" : dtype_name(dtype);
}

std::optional<DType> rdrr_dtype_named(std::string_view name) {
  return name == "Q4_K_M" ? DType::kQ4_K : dtype_from_name(name);
}

Result<std::string> add_rdrr_tensor(const RdrrTensor& tensor, std::span<const std::byte> bytes,
                                    TensorStore& store) {
  const std::string_view type = rdrr_dtype_name(tensor.dtype);
  if (tensor.layout == RdrrLayout::kColumns) {
    if (tensor.shape.size() != 2) {
      return fail(
          ErrorCode::kCorrupt,
          "The tensor {} ({}) is said to lie in columns, which only matrices have. Download the package "
          "again.",
          printable(tensor.name), describe_shape(tensor.shape));
    }
    DOPPLER_TRY(relay_columns(tensor, bytes, store));
    return is_quantised(tensor.dtype)
               ? fmt::format("blocks of {} along columns, which nothing computes with, became F16", type)
               : std::string();
  }
  if (tensor.dtype == DType::kQ4_K && !tensor.shape.empty() && tensor.shape.back() % kPart == 0) {
    DOPPLER_TRY(relay_parts(tensor, bytes, store));
    return fmt::format(
        "blocks of {} that are no whole number in a row became Q4_1, with scales rounded to 11 bits", type);
  }
  DOPPLER_TRY(relay_rows(tensor, bytes, store));
  return fmt::format("blocks of {} that are no whole number in a row became F32", type);
}

}  // namespace doppler
