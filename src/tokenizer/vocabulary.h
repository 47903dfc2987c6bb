// Vocabulary: pieces and their ids, both ways, in one block of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doppler/types.h"

namespace doppler::tokenizer {

// The largest published vocabularies have about a million pieces; a table by id of this length costs 32 MB,
// so a small file that claims a huge id cannot make us allocate more.
inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;

class Vocabulary {
 public:
  enum class Added { kYes, kPieceTaken, kIdTaken };

  // Ids may come in any order and leave gaps; 0 <= id <= kMaxTokenId.
  Added add(std::string_view piece, TokenId id);

  // Room for that many pieces, so that adding them moves none.
  void reserve(std::size_t pieces);

  std::optional<TokenId> find(std::string_view piece) const;
  // The piece of an id, or nothing for gaps and ids out of range.
  std::optional<std::string_view> piece(TokenId id) const;

  // The largest id + 1.
  std::size_t size() const { return entries_.size(); }
  std::size_t count() const { return count_; }
  std::size_t longest_piece() const { return longest_; }

 private:
  struct Entry {
    std::uint32_t offset = kAbsent, length = 0;
  };
  static constexpr std::uint32_t kAbsent = UINT32_MAX;
  std::size_t slot_of(std::string_view piece) const;
  void resize_slots(std::size_t capacity);

  std::string bytes_;
  std::vector<Entry> entries_;  // by id
  std::vector<TokenId> slots_;  // open addressing, a power of two long; -1 is free
  std::size_t count_ = 0, longest_ = 0;
};

}  // namespace doppler::tokenizer
