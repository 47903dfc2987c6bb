// TapRing: the stages that a tap wants of single tokens. One kernel after each token gathers them from where
// they lie into a ring on the device, and one copy a submission brings them to the host: copies of their own
// after each token would cost more than the token's kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/values.h"
#include "backend/tap.h"

namespace doppler::gpu {

class TapRing {
 public:
  // A stage that a tap wants, and where it lies after a token.
  struct Stored {
    Stage stage = Stage::kNone;
    int layer = -1;
    std::uint32_t heads = 1;
    ValueView view;
    Columns columns;
  };

  // Room for twice `tokens` tokens, or for fewer where they are large.
  static Result<TapRing> create(Context& context, std::vector<Stored> stored, std::uint32_t tokens);

  // Tokens of one submission; at least 1.
  std::uint32_t tokens() const { return capacity_ / 2; }
  std::uint64_t token_bytes() const { return std::uint64_t{stride_} * 4; }

  // Records the gathering of a token, after what computes it and before what counts it in
  // StepLayout::kCounted.
  void record(Recorder& recorder) const;
  // Records the copy of the tokens numbered `first` and on, at most tokens() of them, to the front of `back`.
  void record_copy(Recorder& recorder, std::uint64_t first, std::uint32_t tokens, const Buffer& back) const;
  // Calls the tap for each stage of one token, whose copied bytes these are.
  void show(std::span<const std::byte> bytes, const StepInput& input, Tap& tap) const;

 private:
  struct Place {
    Stored stored;
    std::uint32_t from = 0, count = 0;  // columns
    std::uint32_t first = 0;            // its first float in a token's part of the ring
  };
  Status make_kernels(Context& context);
  std::vector<Place> places_;
  std::uint32_t stride_ = 0;    // floats of a token
  std::uint32_t capacity_ = 0;  // tokens
  Buffer ring_;
  std::vector<FixedDispatch> gathers_;
};

}  // namespace doppler::gpu
