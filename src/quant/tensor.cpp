#include "quant/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/checked.h"

namespace doppler {

std::string describe_shape(const Shape& shape) {
  return shape.empty() ? std::string("scalar") : fmt::format("{}", fmt::join(shape, " x "));
}

std::optional<std::uint64_t> element_count(const Shape& shape) {
  // A zero anywhere makes the tensor empty, whatever the other dimensions multiply to.
  for (const std::uint64_t dim : shape) {
    if (dim == 0) return 0;
  }
  Checked count = 1;
  for (const std::uint64_t dim : shape) count = count * dim;
  return count.get();
}

namespace {

std::uint64_t count_outer(const Shape& shape, std::size_t inner) {
  const auto outer = static_cast<std::ptrdiff_t>(shape.size() < inner ? 0 : shape.size() - inner);
  return element_count(Shape(shape.begin(), shape.begin() + outer)).value_or(0);
}

}  // namespace

std::uint64_t row_count(const Shape& shape) {
  return count_outer(shape, 1);
}

std::uint64_t matrix_count(const Shape& shape) {
  return count_outer(shape, 2);
}

std::optional<std::uint64_t> byte_size(DType dtype, const Shape& shape) {
  const auto count = element_count(shape);
  if (!count) return std::nullopt;
  const DTypeInfo& info = dtype_info(dtype);
  // Blocks never reach from one row into the next.
  const std::uint64_t row = shape.empty() ? 1 : shape.back();
  if (row % info.block_values != 0) return std::nullopt;
  // Eight blocks are always whole bytes; counting in eights keeps the number of bits from overflowing before
  // the number of bytes does.
  const std::uint64_t blocks = *count / info.block_values;
  const std::uint64_t tail_bits = blocks % 8 * info.block_bits;
  if (tail_bits % 8 != 0) return std::nullopt;
  return (Checked(blocks / 8) * info.block_bits + tail_bits / 8).get();
}

bool aligned(const TensorView& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data.data()) % dtype_info(tensor.dtype).alignment == 0;
}

Result<TensorView> slice_rows(const TensorView& matrix, std::uint64_t begin, std::uint64_t count,
                              std::string name) {
  // A scalar has no dimension to slice, not even for no rows.
  if (matrix.shape.empty() || !(Checked(begin) + count).at_most(matrix.shape[0])) {
    return fail(ErrorCode::kMismatch,
                "The tensor {} ({}) has no rows {} to {}. Check the sizes that the configuration gives.",
                matrix.name, describe_shape(matrix.shape), begin, begin + count);
  }
  TensorView slice{std::move(name), matrix.dtype, matrix.shape, {}, matrix.mapped, matrix.source};
  slice.shape[0] = begin;
  const auto offset = byte_size(matrix.dtype, slice.shape);
  slice.shape[0] = count;
  const auto size = byte_size(matrix.dtype, slice.shape);
  if (!offset || !size) {
    return fail(ErrorCode::kMismatch,
                "The rows {} to {} of the tensor {} ({}, {}) do not begin and end on whole bytes. "
                "Store it as another type.",
                begin, begin + count, matrix.name, dtype_name(matrix.dtype), describe_shape(matrix.shape));
  }
  if (matrix.source == nullptr)
    slice.data = matrix.data.subspan(*offset, *size);
  else
    slice.offset = matrix.offset + *offset;
  return slice;
}

Status read_bytes(const TensorView& tensor, std::uint64_t begin, std::span<std::byte> out) {
  if (!(Checked(begin) + Checked(out.size())).at_most(tensor.bytes())) {
    return fail(ErrorCode::kMismatch, "The tensor {} has no bytes {} to {}. Ask for bytes it has.",
                tensor.name, begin, begin + out.size());
  }
  if (tensor.source != nullptr) return tensor.source->read(tensor.offset + begin, out);
  std::ranges::copy(tensor.data.subspan(begin, out.size()), out.begin());
  return {};
}

Result<bool> same_bytes(const TensorView& a, const TensorView& b) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;  // of each in memory at once
  if (a.bytes() != b.bytes()) return false;
  if (a.source == nullptr && b.source == nullptr) return std::ranges::equal(a.data, b.data);
  std::vector<std::byte> of_a, of_b;
  for (std::uint64_t at = 0; at < a.bytes(); at += kPiece) {
    of_a.resize(static_cast<std::size_t>(std::min(kPiece, a.bytes() - at)));
    of_b.resize(of_a.size());
    DOPPLER_TRY(read_bytes(a, at, of_a));
    DOPPLER_TRY(read_bytes(b, at, of_b));
    if (of_a != of_b) return false;
  }
  return true;
}

Result<HeldTensor> hold(const TensorView& tensor) {
  HeldTensor held{tensor, {}};
  if (tensor.source == nullptr) return held;
  held.memory.resize(static_cast<std::size_t>(tensor.bytes()));
  DOPPLER_TRY(read_bytes(tensor, 0, held.memory));
  held.view.data = held.memory;
  held.view.source = nullptr;
  return held;
}

Result<TensorView> take_matrix(const TensorView& tensor, std::uint64_t index) {
  if (tensor.shape.size() < 3 && index == 0) return tensor;
  TensorView flat = tensor;  // all but the last two dimensions joined
  if (tensor.shape.size() > 3)
    flat.shape = {tensor.matrices(), tensor.shape[tensor.shape.size() - 2], tensor.shape.back()};
  DOPPLER_ASSIGN(TensorView matrix, slice_rows(flat, index, 1, fmt::format("{}[{}]", tensor.name, index)));
  matrix.shape.erase(matrix.shape.begin());
  return matrix;
}

}  // namespace doppler
