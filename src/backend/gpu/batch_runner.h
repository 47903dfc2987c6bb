// BatchRunner: steps of the batch program. It tells the device the tokens, runs the plan's ops in as few
// submissions as taps, faults and the room for logits allow, and fetches what is wanted.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/fault.h"
#include "backend/gpu/batch_program.h"
#include "backend/gpu/context.h"
#include "backend/gpu/tap_copy.h"

namespace doppler::gpu {

class BatchRunner {
 public:
  // Both must outlive it. Errors: kLimit where the device has no room for its rows of logits.
  static Result<BatchRunner> create(Context& context, BatchProgram& program);

  // Writes the step's tokens, which must fit, and remembers those whose logits it wants: `wanted`, by their
  // number in the step. `pad`: a token that is never chosen.
  Status write(const StepInput& input, std::vector<std::uint32_t> wanted, std::uint32_t pad = UINT32_MAX);
  // Writes which tokens' rows the ops behind the selection take: all that are wanted.
  Status write_wanted();
  std::span<const std::uint32_t> wanted() const { return wanted_; }

  // Runs the step that was written last. `logits`: a row of the vocabulary for each wanted token. `tap` may
  // be null.
  Status run(const StepInput& input, Tap* tap, std::span<float> logits);
  // What logits pass through.
  const Buffer& logits_back() const { return logits_back_; }

 private:
  BatchRunner(Context& context, BatchProgram& program)
      : context_(&context), program_(&program), taps_(*context.device) {}
  const Plan& plan() const { return context_->plan; }
  const BackendOptions& options() const { return context_->options; }

  Status write_words(std::uint32_t at, std::span<const std::uint32_t> words);
  Status write_tokens(const StepInput& input, std::uint32_t pad);
  Status write_late_step();
  Status run_written();
  bool goes_on_with_wanted() const;
  Status run_ops(std::size_t begin, std::size_t end, const StepShape& shape);
  Status run_faulty(std::size_t index, const StepShape& shape);
  Status look(const Op& op, Fault::Moment moment);
  Status spoil(ValueId id, const StepShape& shape);
  Status flush();
  Result<std::uint64_t> submit();
  Status make_room(std::uint64_t floats);
  Status report(ValueId id, std::size_t wanted);
  Status emit_scores(std::size_t index, const StepShape& shape);

  Context* context_;
  BatchProgram* program_;
  TapCopy taps_;
  Buffer logits_back_;
  std::vector<std::uint32_t> wanted_;
  std::uint32_t longest_ = 0;  // tokens of the longest sequence, behind the step

  // Of the step that runs.
  const StepInput* input_ = nullptr;
  Tap* tap_ = nullptr;
  std::span<float> logits_;
  std::size_t first_wanted_ = 0;
  StepInput seen_;  // the tokens on the device: the input's, unless a fault changes them
  std::optional<Recorder> recorder_;
};

}  // namespace doppler::gpu
