// RowSampler: chooses tokens from the rows of a step of guesses, one after the other, each with the one
// before in its history, as the options of one sequence say.
#pragma once

#include "backend/continuer.h"
#include "backend/gpu/context.h"
#include "backend/gpu/sampling.h"

namespace doppler::gpu {

class RowSampler {
 public:
  // The rows are those of the buffer `step`.
  static Result<RowSampler> create(Context& context);

  // As Sampling::begin().
  Status begin(const Continuation& c) {
    return sampling_.begin_alone(*c.sampling, c.pad_id, c.history, c.draw);
  }
  void begin_guesses(Recorder& recorder) const { sampling_.begin_guesses(recorder); }
  // Row `row` of `logits` gives the token in word `row` of `chosen`: see Sampling::record().
  void record(Recorder& recorder, const Buffer& logits, std::size_t row, const Buffer& chosen) const;

 private:
  RowSampler(std::uint64_t row_bytes, Buffer logits, Buffer chosen, Sampling sampling)
      : row_bytes_(row_bytes),
        logits_(std::move(logits)),
        chosen_(std::move(chosen)),
        sampling_(std::move(sampling)) {}
  std::uint64_t row_bytes_;
  Buffer logits_, chosen_;
  Sampling sampling_;
};

}  // namespace doppler::gpu
