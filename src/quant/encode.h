// Encoding of float32 rows as quantised blocks, and how far the result lies from them.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "quant/dtype.h"

namespace doppler {

enum class EncodeSearch : std::uint8_t {
  kBest,     // searches scales (and minima) for the least weighted error
  kNearest,  // scales from the extremes alone: for data that need no care, many times faster
};

// True for the types that encode() writes.
bool can_encode(DType type);

// Writes values.size() / block_values blocks to `out`, which must hold exactly their bytes. F32, F16 and BF16
// round to nearest, ties to even. Single threaded and reentrant; the same input gives the same bytes.
// Errors: kUnsupported for types without an encoder; kMismatch for sizes that are no whole number of blocks;
// kCorrupt for values that are NaN, infinite or so large that a scale would become
// infinite: most scales are halves, which end at 65504.
Status encode(DType type, std::span<const float> values, std::span<std::byte> out,
              EncodeSearch search = EncodeSearch::kBest);

}  // namespace doppler
