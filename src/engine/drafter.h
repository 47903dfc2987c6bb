// Drafter: which tokens may come next, if the sequence goes on as it did after the latest earlier place that
// ends like it. Text that repeats (code that is edited, summaries, lists) is guessed well, other text hardly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "doppler/types.h"

namespace doppler {

class Drafter {
 public:
  // The ends that are looked up, longest first. A single token says too little; what agrees in four goes on
  // to agree so often that a fifth hardly changes the choice.
  static constexpr std::size_t kShortest = 2, kLongest = 4;

  // `most`: tokens that the sequence may have. Memory is bounded by it and by kMostPlaces.
  explicit Drafter(std::size_t most);

  // The sequence has a token more. Constant time, whatever the tokens are.
  void push(TokenId id);
  void push(std::span<const TokenId> ids) {
    for (const TokenId id : ids) push(id);
  }

  // How many tokens in front of the next one agree with those in front of the guess; 0: there is no guess.
  std::size_t agreed() const { return agreed_; }
  // The guess; agreed() is not 0.
  TokenId guess() const { return tokens_[source_]; }
  // `count` guesses in a row, or none. Where the earlier place is so near that its tokens end, the guesses go
  // on with themselves: such text turns in a circle.
  void draft(std::size_t count, std::vector<TokenId>& guesses) const;

  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  // Places that are remembered for each length; a newer one replaces another whose tokens hash alike.
  static constexpr std::size_t kMostPlaces = 1 << 16;
  std::uint32_t& place_of(std::size_t length);
  bool ends_alike(std::size_t source, std::size_t length) const;
  void look_up();

  std::vector<TokenId> tokens_;
  std::size_t source_ = 0;  // of the guess
  std::size_t agreed_ = 0;
  // By length and hash of a place's tokens: where the token after them stands, or 0.
  std::array<std::vector<std::uint32_t>, kLongest - kShortest + 1> places_;
};

}  // namespace doppler
