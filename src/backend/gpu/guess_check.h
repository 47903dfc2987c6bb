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
  // How the tokens of a step's rows are chosen: the likeliest; drawn all at once; or, where what is chosen
  // depends on what was, one after the other.
  enum class Way { kLikeliest, kAtOnce, kInTurn };
  Way way_of(std::size_t tokens, const GenerateOptions& sampling) const;
  // Of steps of so many tokens, from continuation.draw on.
  Status begin(std::size_t tokens, const Continuation& continuation);
  // A step of so many tokens. The likeliest behind each then stand in likeliest().candidates(), or what was
  // chosen in drawn(): kNoToken behind a wrong guess, where they are chosen in turn.
  void record(Recorder& recorder, std::size_t tokens, Way way) const;
  const LikeliestRows& likeliest() const { return likeliest_; }
  const Buffer& drawn() const { return drawn_; }
  // As Sampling::state(), of the rows that are drawn at once. Behind a step each has the number of a draw
  // more.
  const Buffer& draws() const { return rows_->state(); }
  // The buffer `step` has the tokens. `continuation`: of the first one, as if it went on alone. Valid until
  // the next call.
  Result<std::span<const TokenId>> run(std::size_t tokens, const Continuation& continuation);

 private:
  GuessCheck(Context& context, BatchProgram& batch) : context_(&context), batch_(&batch) {}

  std::uint32_t most_at_once() const;

  Context* context_;
  BatchProgram* batch_;
  LikeliestRows likeliest_;
  // Made when they are first needed.
  std::optional<Sampling> rows_;
  std::optional<RowSampler> in_turn_;
  Buffer drawn_;
  std::map<std::size_t, std::vector<FixedDispatch>> bodies_;  // by tokens
  Buffer back_;
  std::vector<TokenId> chosen_;
};

}  // namespace doppler::gpu
