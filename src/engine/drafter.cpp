#include "engine/drafter.h"

#include <algorithm>
#include <bit>

namespace doppler {

Drafter::Drafter(std::size_t most) {
  // Twice as many places as tokens, so that few hash alike.
  const std::size_t places = std::bit_ceil(std::clamp<std::size_t>(2 * most, 16, kMostPlaces));
  for (std::vector<std::uint32_t>& table : places_) table.resize(std::min(places, kMostPlaces));
}

// Where the latest place is kept that ends with the newest `length` tokens.
std::uint32_t& Drafter::place_of(std::size_t length) {
  std::uint64_t hash = 0;
  // Fibonacci hashing: an odd constant near 2^64 / the golden ratio spreads what it multiplies over all bits.
  constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;
  for (const TokenId id : std::span(tokens_).last(length))
    hash = (hash ^ static_cast<std::uint32_t>(id)) * kSpread, hash ^= hash >> 32;
  std::vector<std::uint32_t>& table = places_[length - kShortest];
  return table[hash & (table.size() - 1)];
}

bool Drafter::ends_alike(std::size_t source, std::size_t length) const {
  return source >= length && std::equal(tokens_.end() - static_cast<std::ptrdiff_t>(length), tokens_.end(),
                                        tokens_.begin() + static_cast<std::ptrdiff_t>(source - length));
}

// The longest end that stood here before, at its latest place, unless what is followed agrees for as long;
// each place is remembered as it is passed.
void Drafter::look_up() {
  for (std::size_t length = kLongest; length >= kShortest; --length) {
    if (tokens_.size() < length) continue;
    std::uint32_t& place = place_of(length);
    if (agreed_ < length && ends_alike(place, length)) {
      source_ = place;
      agreed_ = length;
    }
    place = static_cast<std::uint32_t>(tokens_.size());
  }
}

void Drafter::push(TokenId id) {
  if (agreed_ > 0) {
    agreed_ = id == guess() ? agreed_ + 1 : 0;
    ++source_;
  }
  tokens_.push_back(id);
  look_up();
}

void Drafter::draft(std::size_t count, std::vector<TokenId>& guesses) const {
  guesses.clear();
  if (agreed_ == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = source_ + i;
    guesses.push_back(at < tokens_.size() ? tokens_[at] : guesses[at - tokens_.size()]);
  }
}

}  // namespace doppler
