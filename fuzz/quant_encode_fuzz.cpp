// Any floats to any type: refused when they are no numbers or too large, else encoded to blocks whose values
// are finite and never much larger than the largest that went in; the search never does worse than zeros.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "quant/encode.h"
#include "quant/tensor.h"

using namespace doppler;

namespace {

void check(const DTypeInfo& info, std::span<const float> values, EncodeSearch search) {
  std::vector<std::byte> blocks(values.size() / info.block_values * info.block_bits / 8);
  const auto all = [&](float most) {
    return std::ranges::all_of(values, [&](float value) { return std::fabs(value) <= most; });
  };
  constexpr float kHalf = 65504;  // the largest half: every type holds that much
  const Status encoded = encode(info.type, values, blocks, search);
  if (!encoded && (encoded.error().code != ErrorCode::kCorrupt || all(kHalf))) std::abort();
  if (encoded && !all(FLT_MAX)) std::abort();
  if (!encoded) return;
  std::vector<float> decoded(values.size());
  if (!decode_f32({"fuzz", info.type, {values.size()}, blocks}, 0, decoded)) std::abort();
  for (std::size_t begin = 0; begin < values.size(); begin += info.block_values) {
    float largest = 0;
    for (std::size_t i = begin; i < begin + info.block_values; ++i)
      largest = std::max(largest, std::fabs(values[i]));
    for (std::size_t i = begin; i < begin + info.block_values; ++i) {
      if (!std::isfinite(decoded[i])) std::abort();
      if (std::fabs(decoded[i]) > 2.5 * double{largest}) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // The type, how floats are made from bytes, the search; then the floats, repeated to fill a block of 256.
  if (size < 4) return 0;
  const DTypeInfo& info = all_dtypes()[bytes[0] % all_dtypes().size()];
  const EncodeSearch search = bytes[2] % 2 == 0 ? EncodeSearch::kBest : EncodeSearch::kNearest;
  std::vector<float> values(256);
  const std::uint8_t* data = bytes + 3;
  const std::size_t length = size - 3;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (bytes[1] % 4 == 0 && length >= 4) {  // any float
      std::memcpy(&values[i], data + 4 * i % (length - 3), sizeof(float));
    } else {  // small integers of one magnitude, which meet ties and borders
      values[i] =
          std::ldexp(static_cast<float>(static_cast<std::int8_t>(data[i % length])), bytes[1] % 64 - 40);
    }
  }
  if (!can_encode(info.type)) return 0;
  check(info, values, search);
  return 0;
}
