#include "backend/gpu/likeliest_rows.h"

#include <algorithm>
#include <bit>

#include "backend/continuer.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {

// Workgroups that look for a row's likeliest token: with eight rows two for each processor of a large GPU.
static constexpr std::uint32_t kRowPickThreads = 256, kMostPickers = 32;

Result<LikeliestRows> LikeliestRows::create(Context& context, const BatchProgram& batch, std::uint32_t most) {
  LikeliestRows rows;
  rows.vocab_ = context.plan.vocab_size;
  rows.each_ = std::min(ceil_div(rows.vocab_, kRowPickThreads), kMostPickers);
  Device& device = *context.device;
  DOPPLER_ASSIGN(rows.candidates_, device.make_buffer("candidates of rows", most * rows.row_bytes()));
  DOPPLER_ASSIGN(auto kernel, context.kernels.get("likeliest.wgsl", {{"THREADS", kRowPickThreads},
                                                                     {"GROUPS", rows.each_},
                                                                     {"VOCAB", rows.vocab_},
                                                                     {"PAD_WORD", StepLayout::kPad}}));
  DOPPLER_ASSIGN(rows.kernel_, BoundKernel::create(device, std::move(kernel),
                                                   {{"step", context.step},
                                                    batch.value(context.plan.logits).bound("logits"),
                                                    {"candidates", rows.candidates_}}));
  return rows;
}

// Of equals the lower token.
TokenId LikeliestRows::best_of(std::span<const std::uint32_t> candidates) const {
  float best = -3.4e38f;
  std::uint32_t token = UINT32_MAX;
  for (std::size_t i = 0; i + 1 < candidates.size(); i += 2) {
    const auto value = std::bit_cast<float>(candidates[i]);
    if (value > best || (value == best && candidates[i + 1] < token)) {
      best = value;
      token = candidates[i + 1];
    }
  }
  return token < vocab_ ? static_cast<TokenId>(token) : kNoToken;
}

}  // namespace doppler::gpu
