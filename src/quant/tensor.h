// Shape and TensorView: what every room means by a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/dtype.h"

namespace doppler {

// Row-major dimensions, outermost first, as PyTorch and safetensors order them: a weight [out, in].
using Shape = std::vector<std::uint64_t>;

std::string describe_shape(const Shape& shape);                      // "1152 x 1024", "scalar"
std::optional<std::uint64_t> element_count(const Shape& shape);      // nothing if it overflows
std::optional<std::uint64_t> byte_size(DType dtype, const Shape& shape);  // nothing if it overflows or ends inside a byte

// A named tensor whose bytes somebody else owns (a mapped file, usually). `data` always holds exactly
// byte_size(dtype, shape) bytes.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;

  std::uint64_t rows() const { return shape.empty() ? 1 : shape.size() == 1 ? 1 : shape[0]; }
  std::uint64_t cols() const { return shape.empty() ? 1 : shape.back(); }
};

// Rows [begin, begin + count) of a matrix, sharing its bytes. Errors: kMismatch when they do not exist.
Result<TensorView> slice_rows(const TensorView& matrix, std::uint64_t begin, std::uint64_t count, std::string name);

// Decodes elements [begin, begin + out.size()) of the flattened tensor to float32.
// Errors: kUnsupported for dtypes that are not numbers of a model (bool, complex, 64-bit integers).
Status decode_f32(const TensorView& tensor, std::uint64_t begin, std::span<float> out);

}  // namespace doppler
