#include "backend/gpu/row_sampler.h"

namespace doppler::gpu {

Result<RowSampler> RowSampler::create(Context& context) {
  Device& device = *context.device;
  const std::uint32_t vocab = context.plan.vocab_size;
  // Whole vectors of four.
  DOPPLER_ASSIGN(Buffer logits, device.make_buffer("logits of a row", (std::uint64_t{vocab} + 3) / 4 * 16));
  DOPPLER_ASSIGN(Buffer chosen, device.make_buffer("chosen of a row", 4));
  DOPPLER_ASSIGN(
      Sampling sampling,
      Sampling::create(device, context.kernels, {.vocab = vocab, .tokens = context.options.context + 1},
                       logits, chosen, Sampling::Guesses{context.step, context.layout.ids()}));
  return RowSampler(std::uint64_t{vocab} * 4, std::move(logits), std::move(chosen), std::move(sampling));
}

void RowSampler::record(Recorder& recorder, const Buffer& logits, std::size_t row,
                        const Buffer& chosen) const {
  recorder.copy(logits, row * row_bytes_, logits_, 0, row_bytes_);
  sampling_.record(recorder);
  recorder.copy(chosen_, 0, chosen, row * 4, 4);
}

}  // namespace doppler::gpu
