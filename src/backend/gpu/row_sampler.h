// RowSampler: chooses a token from a row of a batch program's logits as the options of one sequence say, in a
// buffer of its own.
#pragma once

#include "backend/continuer.h"
#include "backend/gpu/context.h"
#include "backend/gpu/sampling.h"

namespace doppler::gpu {

class RowSampler {
 public:
  // `guesses`: the rows are those of the buffer `step`, one sequence's, and all but the first are guesses:
  // see Sampling::begin_rows().
  static Result<RowSampler> create(Context& context, bool guesses = false);

  // As Sampling::begin().
  Status begin(const Continuation& c) { return sampling_.begin(*c.sampling, c.pad_id, c.history, c.draw); }
  void begin_rows(Recorder& recorder) const { sampling_.begin_rows(recorder); }
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
