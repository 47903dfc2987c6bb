// TokenSource: where a generation's tokens come from: the sampler on the host, step by step or with guesses
// ahead, or a backend that generates by itself.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/speculation.h"
#include "model/spec.h"

namespace doppler {

// The padding token, which sampling leaves out; -1 if there is none, or if it also ends sequences: then it is
// a stop token and may win as such.
TokenId masked_pad(const ModelSpec& spec);

class TokenSource {
 public:
  // `first`: the logits after the prompt. The options outlive it.
  TokenSource(Session& session, const GenerateOptions& options, const ModelSpec& spec,
              std::span<const float> first);
  ~TokenSource() { (void)end(); }
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  // The token after `history`; earlier calls gave the last `drawn` of it. The caller has checked that the
  // context holds another one, and that `drawn` is less than max_tokens.
  Result<TokenId> next(std::span<const TokenId> history, std::size_t drawn);

  // The logits that next() chose from, if known: where the options ask for log probabilities always.
  std::span<const float> logits() const;

  // After this the session's cache holds all tokens that next() was given or returned, except the last.
  Status end();

  // Tokens that were guessed, and those of them that came.
  std::size_t guessed() const { return guessed_; }
  std::size_t guessed_right() const { return guessed_right_; }

 private:
  void begin_speculation();
  Result<bool> continues(std::span<const TokenId> history, std::size_t drawn);
  bool guesses_convince(std::size_t drawn);
  bool prepare_checks();
  void count_anew() { counted_ = 0, seconds_ = 0; }
  bool is_to_end(std::size_t drawn);
  Status leave_continuation();
  Result<bool> begin_checks(std::span<const TokenId> history, std::size_t drawn);
  Result<TokenId> next_by_itself();
  Result<TokenId> next_guessed();
  Result<TokenId> step(std::span<const TokenId> history, std::size_t drawn);
  Result<TokenId> step_ahead(std::span<const TokenId> history, std::size_t drawn,
                             std::span<const TokenId> guesses);
  Result<TokenId> check_ahead(std::span<const TokenId> history, std::size_t drawn,
                              std::span<const TokenId> guesses);
  Result<TokenId> take_ready(std::span<const TokenId> history, std::span<const TokenId> guesses);
  Status draw_rows(std::span<const float> rows, std::span<const TokenId> history, std::size_t drawn,
                   std::span<const TokenId> guesses);
  std::size_t most_guesses(std::span<const TokenId> history, std::size_t drawn) const;
  void drop_ready();

  Session& session_;
  const GenerateOptions& options_;
  const TokenId pad_id_;
  const std::span<const TokenId> stops_;
  Sampler sampler_;
  std::span<const float> logits_;
  bool continues_ = false, ends_ = false;  // ends_: only with what is under way
  bool guessing_ = false;                  // the backend generates by itself, with guesses
  bool checks_ = false;                    // the backend itself checks guesses
  std::size_t prepared_ = 0;               // tokens of a check that it has everything for
  // Since the backend generates by itself, or since it was left: tokens, and seconds in which they were
  // waited for.
  bool warm_ = false;  // the first submissions are behind
  std::size_t counted_ = 0;
  double seconds_ = 0;
  std::optional<Speculation> speculation_;  // none: nothing is guessed
  // Tokens that the last step has given at once, how many of them next() has returned, and their logits where
  // they are wanted: a callback may run other steps meanwhile.
  std::vector<TokenId> ready_;
  std::size_t given_ = 0;
  std::vector<float> rows_;
  std::vector<TokenId> fed_, sequence_;
  std::size_t guessed_ = 0, guessed_right_ = 0;
};

}  // namespace doppler
