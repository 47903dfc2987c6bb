// GuessCheck: a step of a few tokens of one sequence, of which all but the first are guesses, and the token
// that follows each, chosen on the device. Each is computed as in a step of its own.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "backend/continuer.h"
#include "backend/gpu/likeliest_rows.h"
#include "backend/gpu/row_sampler.h"

namespace doppler::gpu {

class GuessCheck {
 public:
  static Result<GuessCheck> create(Context& context, BatchProgram& batch);

  // Makes what steps of so many tokens, with these options, need.
  Status prepare(std::size_t tokens, const GenerateOptions& sampling);
  // Of steps whose tokens are not the likeliest of their rows: how these are drawn, from continuation.draw
  // on.
  Status begin(const Continuation& continuation) { return sampler_->begin(continuation); }
  // A step of so many tokens. The likeliest behind each then stand in likeliest().candidates(), or what was
  // drawn in drawn(): kNoToken behind a wrong guess.
  void record(Recorder& recorder, std::size_t tokens, bool draws) const;
  const LikeliestRows& likeliest() const { return likeliest_; }
  const Buffer& drawn() const { return drawn_; }
  // The buffer `step` has the tokens. `continuation`: of the first one, as if it went on alone. Valid until
  // the next call.
  Result<std::span<const TokenId>> run(std::size_t tokens, const Continuation& continuation);

 private:
  GuessCheck(Context& context, BatchProgram& batch) : context_(&context), batch_(&batch) {}

  Context* context_;
  BatchProgram* batch_;
  LikeliestRows likeliest_;
  std::optional<RowSampler> sampler_;  // made when tokens are first drawn, one row after the other
  Buffer drawn_;
  std::map<std::size_t, std::vector<FixedDispatch>> bodies_;  // by tokens
  Buffer back_;
  std::vector<TokenId> chosen_;
};

}  // namespace doppler::gpu
