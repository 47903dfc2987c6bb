// DecodeProgram: the plan for one new token of one sequence, in five dispatches a layer: norms and residual
// sums are computed by the matrix-vector kernels that read them, attention turns, appends and attends in one,
// gate, up and activation are one. Everything is made at load; a token changes a few words of the buffer
// `step`, which the device writes itself when it continues a sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/recorder.h"

namespace doppler::gpu {

struct FixedDispatch {
  BoundKernel kernel;
  Workgroups groups;
};

class DecodeProgram {
 public:
  // Results of a continuation that the host has not read yet; a power of two.
  static constexpr std::uint32_t kRing = 1024;
  // Words of `step` beside the lists: how many tokens the ring has been given.
  static constexpr std::uint32_t kRingCount = 3;

  // Errors: kUnsupported, with the reason, for plans and devices that it is not made for; the batch program
  // then serves single tokens too.
  static Result<DecodeProgram> create(Context& context);

  // One token: id, position and slot are those of the step's token 0. Leaves `logits()`.
  void record_logits(Recorder& recorder) const;
  // One token, whose likeliest successor (`pad` never wins) becomes the next step's token 0.
  Status prepare_greedy(Context& context, TokenId pad);
  void record_greedy(Recorder& recorder) const;
  // After record_logits(): the token that something recorded in between wrote to `chosen()` is the next.
  void record_next(Recorder& recorder) const;

  const Buffer& logits() const { return logits_; }
  const Buffer& chosen() const { return chosen_; }
  const Buffer& ring() const { return ring_; }
  std::size_t dispatches() const { return body_.size() + head_greedy_.size() + 1; }

 private:
  friend class DecodeBuilder;
  static void record(Recorder& recorder, const std::vector<FixedDispatch>& dispatches);
  std::vector<FixedDispatch> body_, head_logits_, head_greedy_;
  FixedDispatch next_greedy_, next_chosen_;
  Buffer logits_, chosen_, ring_, candidates_;
  TokenId pad_ = -2;  // that head_greedy_ is made for
  // What head_greedy_ is made from.
  Buffer residual_, branch_;
};

}  // namespace doppler::gpu
