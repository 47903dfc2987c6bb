// LikeliestRows: the likeliest token of each row of a batch program's logits, found where the logits are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/gpu/batch_program.h"
#include "doppler/types.h"

namespace doppler::gpu {

class LikeliestRows {
 public:
  // For `most` rows at a time. The token in StepLayout::kPad is never chosen.
  static Result<LikeliestRows> create(Context& context, const BatchProgram& batch, std::uint32_t most);

  // Leaves so many rows' candidates: [row][candidate] (bits of a logit, token), see likeliest.wgsl.
  FixedDispatch dispatch(std::uint32_t rows) const { return {kernel_, {each_, rows, 1}}; }
  const Buffer& candidates() const { return candidates_; }
  std::uint32_t each() const { return each_; }  // candidates of a row
  std::uint64_t row_bytes() const { return std::uint64_t{each_} * 8; }
  // The best of a row's candidates; kNoToken where a logit is NaN or infinite.
  TokenId best_of(std::span<const std::uint32_t> candidates) const;

 private:
  std::uint32_t each_ = 0, vocab_ = 0;
  BoundKernel kernel_;
  Buffer candidates_;
};

}  // namespace doppler::gpu
