// TokenRunner: everything that computes single tokens: the program made for them, its twin for taps, sampling
// on the device, and a sequence that continues by itself, some tokens to a submission.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/decode_program.h"
#include "backend/gpu/sampling.h"

namespace doppler::gpu {

// Which shapes the kernels of single tokens have: those that were measured to be fastest, or the one of this
// rank among those that look best.
struct ShapeChoice {
  bool measured = false;
  std::size_t rank = 0;
};

class TokenRunner {
 public:
  // The choices to try in order, until one computes correctly: drivers have miscompiled single shapes.
  static std::vector<ShapeChoice> choices(const Context& context);
  // Makes the program, and finds the fastest shapes of its kernels where they are wanted and were not
  // measured before. Errors: kUnsupported, with the reason, for plans and devices that the program is not
  // made for.
  static Result<TokenRunner> create(Context& context, ShapeChoice choice);
  // For later loads: the shapes are right, if they were measured; or they are to be measured again.
  void keep_shapes(ShapeChoice choice) const;
  void forget_shapes() const;

  const DecodeProgram& program() const { return program_; }
  // For checks: tokens run the kernels of positions from there on, wherever they stand.
  void use_kernels_from(std::uint64_t position) { kernels_from_ = position; }

  // True if the options take the likeliest token of the unchanged logits, which the head itself finds.
  static bool is_greedy(const GenerateOptions& sampling);
  // Why sequences do not continue with these options; empty if they do.
  std::string why_not(const GenerateOptions& sampling) const;

  // The program for a step that this tap (may be null) looks at. Null where it cannot show what the tap
  // wants: scores, and on devices that bind too few buffers.
  Result<const DecodeProgram*> program_for(const Tap* tap);
  // Runs the token that `step` describes; its logits go to `back` and then to `logits`.
  Status step(const DecodeProgram& program, const StepInput& input, Tap* tap, const Buffer& back,
              std::span<float> logits);

  bool is_continuing() const { return flying_.has_value(); }
  // No more tokens are begun.
  void wind_down() { flying_->left = 0; }
  // `step` describes the continuation's first token; `length` is what the slot's cache holds before it.
  Status begin(const Continuation& continuation, std::uint64_t length);
  // As Continuer::next_tokens().
  Result<std::span<const TokenId>> next_tokens();
  struct Ended {
    std::uint32_t slot = 0;
    std::uint64_t length = 0;  // what is kept: fewer than asked for where a recurrent state goes back farther
    std::uint64_t written = 0;  // tokens in the slot's cache, with those that were not kept
  };
  // Waits for the submissions under way. Errors: kUsage for a length that the continuation did not reach.
  Result<Ended> end(std::uint64_t length);

 private:
  explicit TokenRunner(Context& context, DecodeProgram program)
      : context_(&context), program_(std::move(program)) {}
  // Sampling over one program's logits.
  Result<Sampling*> sampling_of(const DecodeProgram& program);

  // Tokens that are being computed, in one submission.
  struct Flight {
    std::uint64_t submission = 0, first = 0;  // the number of its first token
    std::uint32_t tokens = 0;
    Buffer back, taps_back;
  };
  struct Flying {
    const DecodeProgram* program = nullptr;
    const Sampling* sampling = nullptr;  // null: the likeliest token, which the head finds itself
    Tap* tap = nullptr;
    std::uint32_t slot = 0;
    std::uint64_t begin = 0;  // length of the cache before
    std::uint64_t left = 0;   // tokens that are not submitted yet
    std::uint64_t submitted = 0, given = 0;
    TokenId fed = 0;  // the token fed to the first step of the next flight to be read
    std::vector<Flight> flights;
  };
  // The states of recurrent layers before a flight: a state cannot go back, so tokens that are not kept are
  // taken back by putting an older one in its place.
  struct Snapshot {
    std::uint64_t length = 0;     // of the slot's cache then
    std::vector<Buffer> buffers;  // two for each layer, where it keeps something
  };
  // Of the flight that was given last, and of those under way.
  static constexpr std::size_t kSnapshots = 3;
  Status keep_snapshot(Recorder& recorder);
  Result<std::uint64_t> go_back(std::uint32_t slot, std::uint64_t length);
  // False where the cache has no room for another token.
  Result<bool> submit_tokens();
  Status show(const Flight& flight);

  Context* context_;
  DecodeProgram program_;
  std::uint64_t kernels_from_ = 0;
  // The program for taps: made for the first tap, and again when a tap wants other stages.
  std::unique_ptr<DecodeProgram> looking_;
  Looks looks_;
  std::optional<Sampling> sampling_, looking_sampling_;  // made when first needed
  std::optional<Flying> flying_;
  std::vector<Buffer> spare_, spare_taps_;  // read-back buffers
  std::vector<TokenId> tokens_;
  std::vector<Snapshot> snapshots_;  // of recurrent models
  std::size_t next_snapshot_ = 0;
};

}  // namespace doppler::gpu
