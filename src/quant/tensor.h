// Shape and TensorView: the description of a tensor that all other code shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_source.h"
#include "base/result.h"
#include "quant/dtype.h"

namespace doppler {

// Row-major dimensions, outermost first, as PyTorch and safetensors order them: a weight [out, in].
using Shape = std::vector<std::uint64_t>;

std::string describe_shape(const Shape& shape);                  // "1152 x 1024", "scalar"
std::optional<std::uint64_t> element_count(const Shape& shape);  // nothing if it overflows
// The product of all dimensions but the last, and but the last two; 0 if it overflows, which only shapes
// without elements can.
std::uint64_t row_count(const Shape& shape);
std::uint64_t matrix_count(const Shape& shape);
// Nothing if it overflows, ends inside a byte, or rows end inside a block.
std::optional<std::uint64_t> byte_size(DType dtype, const Shape& shape);

using TensorPlace = std::pair<const void*, std::uint64_t>;

// A named tensor whose bytes belong to another object (usually a mapped file). `data` holds exactly
// byte_size(dtype, shape) bytes, little-endian. It may start at any address (see aligned()); only the tensors
// of a TensorStore that was opened from files are promised to be aligned. A tensor that lies in a source has
// no `data`: those exist only where somebody opened a model so (Opening::kPieces), as engines do in a page.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;
  bool mapped = false;                 // data are pages of a file: system::release_pages() may let go of them
  const ByteSource* source = nullptr;  // where the bytes lie instead, from `offset` on
  std::uint64_t offset = 0;

  // A vector is one row; a tensor of three dimensions has the rows of all its matrices.
  std::uint64_t rows() const { return row_count(shape); }
  std::uint64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  // The matrices side by side in a tensor of three dimensions or more, as of experts; 1 for any other.
  std::uint64_t matrices() const { return matrix_count(shape); }
  // How many bytes it has, wherever they lie.
  std::uint64_t bytes() const {
    return source == nullptr ? data.size() : byte_size(dtype, shape).value_or(0);
  }
  // Where they begin: equal for views of the same bytes.
  TensorPlace place() const {
    return source == nullptr ? TensorPlace{data.data(), 0} : TensorPlace{source, offset};
  }
};

// Bytes [begin, begin + out.size()) of the tensor, wherever they lie. Errors: kIo; kMismatch beyond the end.
Status read_bytes(const TensorView& tensor, std::uint64_t begin, std::span<std::byte> out);

// Whether two tensors hold the same bytes. Errors: kIo.
Result<bool> same_bytes(const TensorView& a, const TensorView& b);

// A tensor whose bytes lie in memory: the view itself, or one of a copy of what its source gives.
struct HeldTensor {
  TensorView view;
  std::vector<std::byte> memory;
};
Result<HeldTensor> hold(const TensorView& tensor);

// True when the data starts at a multiple of its type's alignment, so that it may be read as an array of that
// type.
bool aligned(const TensorView& tensor);

// Entries [begin, begin + count) of the outermost dimension, sharing the bytes: rows of a matrix, elements of
// a vector. Errors: kMismatch when they do not exist, or for packed types do not begin and end on whole
// bytes.
Result<TensorView> slice_rows(const TensorView& matrix, std::uint64_t begin, std::uint64_t count,
                              std::string name);

// Matrix `index` of a tensor of three dimensions or more, [rows, columns], sharing the bytes; a tensor of
// fewer is its own and only one. It is named after the tensor: "blk.0.ffn_up_exps.weight[3]". Errors: those
// of slice_rows.
Result<TensorView> take_matrix(const TensorView& tensor, std::uint64_t index);

// Decodes elements [begin, begin + out.size()) of the flattened tensor to float32.
// Integers and F64 round to the nearest float; NaN and Inf pass through. Needs no alignment. A range may
// begin and end inside the blocks of a quantised type. Errors: kUnsupported for dtypes that are not numbers
// of a model (bool, complex, 64-bit integers) or whose packing is not specified (6-bit floats); kMismatch for
// elements beyond the end.
Status decode_f32(const TensorView& tensor, std::uint64_t begin, std::span<float> out);

}  // namespace doppler
