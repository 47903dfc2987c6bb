// GuessRunner: a sequence that continues by itself with guesses ahead. Each step checks the newest token and
// guesses for those behind it; which tokens were right, and the guesses of the next step, are found on the
// device, so that nothing waits for the host between steps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "backend/continuer.h"
#include "backend/gpu/guess_check.h"
#include "backend/gpu/token_runner.h"

namespace doppler::gpu {

class GuessRunner {
 public:
  // For steps of so many tokens.
  static Result<GuessRunner> create(Context& context, std::uint32_t rows);
  // Makes what begin() needs with these options.
  Status prepare(const GuessCheck& check, const GenerateOptions& sampling);

  // How many checks may be under way. What they write of tokens that are not kept must not take the place of
  // what is still attended to in rings.
  static std::size_t most_flights(const BackendOptions& options, std::size_t rows);

  std::uint32_t rows() const { return rows_; }
  bool is_continuing() const { return flying_.has_value(); }
  // The buffer `step` describes the first check, which `check` is prepared for; `length` is what the slot's
  // cache holds before it.
  Status begin(const Continuation& continuation, std::uint64_t length, GuessCheck& check);
  // As Continuer::next_tokens(), a check's tokens at a time; nothing as well where a check has no room left.
  Result<std::span<const TokenId>> next_tokens(const GuessCheck& check);
  // No more checks are begun.
  void wind_down() { flying_->left = 0; }
  // As TokenRunner::end().
  Result<TokenRunner::Ended> end(std::uint64_t length);

 private:
  GuessRunner(Context& context, std::uint32_t rows) : context_(&context), rows_(rows) {}

  struct Flight {
    std::uint64_t submission = 0;
    Buffer back;
  };
  struct Flying {
    std::uint32_t slot = 0;
    GuessCheck::Way way = {};
    std::uint64_t begin = 0;  // length of the cache before
    std::uint64_t given = 0;  // tokens
    std::uint64_t left = 0;   // tokens that are wanted still
    TokenId newest = 0;
    std::vector<Flight> flights;
  };
  Result<bool> submit(const GuessCheck& check);
  // The words of the oldest check; see guess_tokens.wgsl.
  Result<std::vector<std::uint32_t>> receive();

  Context* context_;
  std::uint32_t rows_;
  std::map<GuessCheck::Way, BoundKernel> next_;
  Buffer text_, result_;
  std::optional<Flying> flying_;
  std::vector<Buffer> spare_;  // read-back buffers
  std::vector<TokenId> tokens_;
};

}  // namespace doppler::gpu
