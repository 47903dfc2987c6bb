// Any bytes as blocks of any type: decoding never misbehaves, and parts equal the same parts of the whole.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "quant/tensor.h"

using namespace doppler;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // The type, then where a part begins and how long it is, as 16 bits each; the rest are blocks.
  if (size < 5) return 0;
  const DTypeInfo& info = all_dtypes()[bytes[0] % all_dtypes().size()];
  // Up to 1023: a few blocks, so that many parts lie inside.
  const auto word = [&](std::size_t at) {
    return static_cast<std::size_t>(bytes[at] | bytes[at + 1] << 8) % 1024;
  };
  const std::size_t begin = word(1), count = word(3);
  const std::size_t block_bytes = (info.block_bits + 7) / 8;
  const std::size_t blocks = (size - 5) / block_bytes;
  // A copy of its own, so that reading beyond the blocks is seen.
  std::vector<std::byte> data(blocks * block_bytes);
  if (!data.empty()) std::memcpy(data.data(), bytes + 5, data.size());
  const std::size_t values = blocks * info.block_values;
  const TensorView tensor{"fuzz", info.type, {values}, data};

  std::vector<float> whole(values);
  if (!decode_f32(tensor, 0, whole)) return 0;  // a type that is no number
  const bool inside = begin + count <= values;
  std::vector<float> part(inside ? count : values - std::min(begin, values) + 1);
  if (decode_f32(tensor, begin, part).has_value() != inside) std::abort();
  if (inside && count > 0 && std::memcmp(part.data(), whole.data() + begin, count * sizeof(float)) != 0)
    std::abort();
  // Piece by piece; pieces of any length from 48 meet the blocks' borders everywhere.
  const std::size_t step = count % 97 + 48;
  std::vector<float> pieces(values);
  for (std::size_t at = 0; at < values; at += step) {
    const std::size_t length = std::min(step, values - at);
    if (!decode_f32(tensor, at, std::span(pieces).subspan(at, length))) std::abort();
  }
  if (values > 0 && std::memcmp(pieces.data(), whole.data(), values * sizeof(float)) != 0) std::abort();
  return 0;
}
