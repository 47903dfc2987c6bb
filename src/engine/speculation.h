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
  // Sizes of steps that are tried, each measured by itself: a step of more tokens is cheaper a token, but not
  // in proportion. On a GPU each size takes kernels of its own, and one of 16 tokens hardly longer than one
  // of 8 (H100, Llama 3.2 1B: 1.9 ms and 1.6).
  static constexpr std::array<std::size_t, 5> kSizes = {1, 2, 4, 8, 16};
  static constexpr std::array<std::size_t, 2> kOneSize = {1, 16};
  explicit Pace(std::span<const std::size_t> sizes = kSizes) : sizes_(sizes) {}
  // A guess that `agreed` tokens spoke for was right, or not.
  void judge(std::size_t agreed, bool right);
  // A step of so many tokens took so long; or `times` such steps did, each.
  void took(std::size_t rows, double seconds, std::size_t times = 1);
  // Seconds of a step of one token; 0: not measured.
  double of_one() const { return seconds_[0]; }
  // Of a step of one of the sizes, measured or likely; nothing is known of others.
  double of(std::size_t rows) const;
  // How many guesses bring the most tokens a second; 0: none do, or nobody knows yet.
  std::size_t guesses(std::size_t agreed);

 private:
  double odds(std::size_t agreed) const;
  double seconds(std::size_t size) const;
  // By how many tokens agree: 2 and 3, 4 to 7, 8 and more. At first nothing is believed.
  std::array<double, 3> right_ = {};
  std::span<const std::size_t> sizes_;
  std::array<double, kSizes.size()> seconds_ = {};  // of sizes_; 0: not measured
  std::size_t since_trial_ = 0;                     // steps of one token since one of several
};

class Speculation {
 public:
  // `asked`: that many guesses wherever there are some; 0: as many as pay. `most`: see Drafter.
  Speculation(std::size_t asked, std::size_t most, std::span<const std::size_t> sizes = Pace::kSizes)
      : asked_(asked), drafter_(most), pace_(sizes) {}
  bool is_asked() const { return asked_ > 0; }

  // What the sequence has become; it only grows. The first call's tokens are the prompt.
  void follow(std::span<const TokenId> history);
  // Guesses for the tokens after it, at most `most`. Valid until the next call.
  std::span<const TokenId> draft(std::size_t most);
  void took(std::size_t rows, double seconds, std::size_t times = 1) { pace_.took(rows, seconds, times); }
  // Of the next step with guesses.
  std::size_t next_size() { return 1 + (is_asked() ? asked_ : pace_.guesses(drafter_.agreed())); }

  // For backends that guess by themselves: such steps of `rows` tokens begin; one brought so many tokens; and
  // whether they do not pay any more. One that hardly brings some is no reason: text that repeats but for
  // some words goes on to do so behind each of them.
  void begin_checks(std::size_t rows) { rows_ = rows, brought_ = static_cast<double>(rows); }
  void brought(std::size_t tokens, double seconds);
  bool tires() const;
  // For backends that continue by themselves, which guesses must beat: whether to leave the continuation, and
  // when to go back to it. Where a number was asked for, tokens alone decide, so that the same run decides
  // the same.
  bool convinces();
  bool disappoints();
  // Away from the continuation so many tokens took so long.
  void was_away(std::size_t tokens, double seconds);

 private:
  // A continuation that is left has to be begun again, which costs some tokens, and the first time kernels
  // are made, so that more has to be right. Each time that it did not pay, twice as much has to be before the
  // next.
  static constexpr std::size_t kConvincing = 8, kMostConvincing = 4096;
  const std::size_t asked_;
  std::size_t convincing_ = asked_ > 0 ? kConvincing : 2 * kConvincing;
  Drafter drafter_;
  Pace pace_;
  std::size_t in_a_row_ = 0;  // right guesses up to now
  double lately_ = 0;         // share of tokens that were guessed right
  std::size_t rows_ = 0;      // of a check
  double brought_ = 0;        // tokens that the last few brought each
  std::vector<TokenId> guesses_;
};

}  // namespace doppler
