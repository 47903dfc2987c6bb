// Speculation: whether and how many tokens to guess before the next step, which then computes the newest
// token and the guesses at once. What is guessed and how many changes how fast tokens come, never which.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/drafter.h"

namespace doppler {

// How likely guesses are right and what steps cost, and the number of guesses that follows from it.
class Pace {
 public:
  // A guess that `agreed` tokens spoke for was right, or not.
  void judge(std::size_t agreed, bool right);
  // A step of so many tokens took so long.
  void took(std::size_t rows, double seconds);
  // How many guesses bring the most tokens a second; 0: none do, or nobody knows yet.
  std::size_t guesses(std::size_t agreed);

  // Sizes of steps that are tried, each measured by itself: a step of more tokens is cheaper a token, but not
  // in proportion.
  static constexpr std::array<std::size_t, 5> kRows = {1, 2, 4, 8, 16};

 private:
  double odds(std::size_t agreed) const;
  double seconds(std::size_t size) const;
  // By how many tokens agree: 2 and 3, 4 to 7, 8 and more. At first nothing is believed.
  std::array<double, 3> right_ = {};
  std::array<double, kRows.size()> seconds_ = {};  // of kRows; 0: not measured
  std::size_t since_trial_ = 0;                    // steps of one token since one of several
};

class Speculation {
 public:
  // `asked`: that many guesses wherever there are some; 0: as many as pay. `most`: see Drafter.
  Speculation(std::size_t asked, std::size_t most) : asked_(asked), drafter_(most) {}

  // What the sequence has become; it only grows. The first call's tokens are the prompt.
  void follow(std::span<const TokenId> history);
  // Guesses for the tokens after it, at most `most`. Valid until the next call.
  std::span<const TokenId> draft(std::size_t most);
  void took(std::size_t rows, double seconds) { pace_.took(rows, seconds); }

  // For backends that continue by themselves, which guesses must beat: whether to leave the continuation, and
  // when to go back to it. Decided by tokens alone, so that the same run decides the same.
  bool convinces() const { return in_a_row_ >= kConvincing; }
  bool disappoints() const { return lately_ < 0.5; }

 private:
  // A continuation that is left costs the tokens that it has computed ahead, a submission's: eight.
  static constexpr std::size_t kConvincing = 8;
  const std::size_t asked_;
  Drafter drafter_;
  Pace pace_;
  std::size_t in_a_row_ = 0;  // right guesses up to now
  double lately_ = 0;         // share of tokens that were guessed right
  std::vector<TokenId> guesses_;
};

}  // namespace doppler
