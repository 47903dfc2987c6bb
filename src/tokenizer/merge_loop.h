// The merging at the heart of both BPE kinds: the best pair of neighbours first, the leftmost of equals,
// until none is left. O(n log n) in the symbols of a segment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/unicode.h"
#include "tokenizer/model.h"

namespace doppler::tokenizer {

inline constexpr std::uint32_t kNoMerge = UINT32_MAX;

struct MergeSymbol {
  std::uint32_t begin = 0, end = 0;  // bytes of the piece
  TokenId id = -1;
  std::uint32_t previous = 0, next = 0;  // neighbours in the segment; its own index means none
  std::uint32_t rank = kNoMerge;         // of the merge with the next symbol
  TokenId merged = -1;                   // the piece that this merge gives
  bool frozen = false;                   // merges with nothing
  bool opaque = false;                   // its text is not its piece's (bytes, unknown)
};

struct MergeChoice {
  std::uint32_t rank = kNoMerge;  // lower first
  TokenId result = -1;
};

// Characters that stand next to each other inside some piece. Between two others no merge can ever happen, so
// a text falls into short segments there, which is what makes a megabyte without pre-tokenization fast. A
// false "yes" (two pairs in one bit) only makes a segment longer, so a bitmap of hashes is enough.
class Adjacency {
 public:
  explicit Adjacency(std::size_t pairs) {
    std::size_t bits = 1 << 12;
    // 16 bits a pair keep false answers near 6%; half a megabyte stays in a second-level cache.
    while (bits < pairs * 16 && bits < (1 << 22)) bits *= 2;
    words_.assign(bits / 64, 0);
  }
  void add(char32_t left, char32_t right) { words_[word(left, right)] |= bit(left, right); }
  void add_all_of(std::string_view piece) {
    if (piece.empty()) return;
    CodePoint previous = first_code_point(piece);
    for (std::size_t i = previous.length; i < piece.size(); i += previous.length) {
      const CodePoint c = first_code_point(piece.substr(i));
      add(previous.value, c.value);
      previous = c;
    }
  }
  bool possible(char32_t left, char32_t right) const {
    return (words_[word(left, right)] & bit(left, right)) != 0;
  }

 private:
  static std::uint64_t hash(char32_t left, char32_t right) {
    const std::uint64_t key = static_cast<std::uint64_t>(left) << 32 | right;
    return (key * 0x9e3779b97f4a7c15u) >> 32;  // Fibonacci hashing: the golden ratio spreads close keys
  }
  std::size_t word(char32_t left, char32_t right) const {
    return (hash(left, right) >> 6) & (words_.size() - 1);
  }
  static std::uint64_t bit(char32_t left, char32_t right) {
    return std::uint64_t{1} << (hash(left, right) & 63);
  }

  std::vector<std::uint64_t> words_;
};

// Choose is MergeChoice(const MergeSymbol& left, const MergeSymbol& right).
template <typename Choose>
class MergeLoop {
 public:
  MergeLoop(Choose choose, EncodeWork& work) : choose_(std::move(choose)), work_(work) {}

  // Merges within `segment`. Afterwards the symbols that are left are those reached from the first one by
  // `next`.
  void run(std::span<MergeSymbol> segment) {
    const auto count = static_cast<std::uint32_t>(segment.size());
    for (std::uint32_t i = 0; i < count; ++i) {
      segment[i].previous = i == 0 ? 0 : i - 1;
      segment[i].next = i + 1 == count ? i : i + 1;
    }
    for (std::uint32_t i = 0; i + 1 < count; ++i) rate(segment, i);
    // Looking at all pairs each time beats a heap for words; measured even at about 24 symbols.
    if (count <= 24)
      run_by_looking(segment);
    else
      run_by_heap(segment);
  }

 private:
  void rate(std::span<MergeSymbol> segment, std::uint32_t i) {
    MergeSymbol& symbol = segment[i];
    symbol.rank = kNoMerge;
    if (symbol.next == i || symbol.frozen || segment[symbol.next].frozen) return;
    ++work_.steps;
    const MergeChoice choice = choose_(symbol, segment[symbol.next]);
    symbol.rank = choice.rank;
    symbol.merged = choice.result;
  }

  void merge(std::span<MergeSymbol> segment, std::uint32_t i) {
    MergeSymbol& left = segment[i];
    MergeSymbol& right = segment[left.next];
    left.id = left.merged;
    left.end = right.end;
    const std::uint32_t removed = left.next;
    right.rank = kNoMerge;
    if (right.next == removed) {
      left.next = i;
    } else {
      left.next = right.next;
      segment[left.next].previous = i;
    }
    rate(segment, i);
    if (i != 0) rate(segment, left.previous);
  }

  void run_by_looking(std::span<MergeSymbol> segment) {
    for (;;) {
      std::uint32_t best = 0;
      for (std::uint32_t i = 0; segment[i].next != i;) {
        i = segment[i].next;
        ++work_.steps;
        if (segment[i].rank < segment[best].rank) best = i;
      }
      if (segment[best].rank == kNoMerge) return;
      merge(segment, best);
    }
  }

  void run_by_heap(std::span<MergeSymbol> segment) {
    heap_.clear();
    for (std::uint32_t i = 0; i < segment.size(); ++i) {
      if (segment[i].rank != kNoMerge) heap_.push_back(key(segment[i].rank, i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto push = [&](std::uint32_t i) {
      if (segment[i].rank == kNoMerge) return;
      heap_.push_back(key(segment[i].rank, i));
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const std::uint64_t top = heap_.back();
      heap_.pop_back();
      ++work_.steps;
      const auto i = static_cast<std::uint32_t>(top);
      if (segment[i].rank != static_cast<std::uint32_t>(top >> 32))
        continue;  // its neighbours have changed since
      merge(segment, i);
      push(i);
      if (i != 0) push(segment[i].previous);
    }
  }

  static std::uint64_t key(std::uint32_t rank, std::uint32_t i) { return std::uint64_t{rank} << 32 | i; }

  Choose choose_;
  EncodeWork& work_;
  std::vector<std::uint64_t> heap_;  // kept between segments for its memory
};

}  // namespace doppler::tokenizer
