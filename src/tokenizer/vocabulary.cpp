#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <functional>

namespace doppler::tokenizer {

std::optional<std::string_view> Vocabulary::piece(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= entries_.size()) return std::nullopt;
  const Entry entry = entries_[static_cast<std::size_t>(id)];
  if (entry.offset == kAbsent) return std::nullopt;
  return std::string_view(bytes_).substr(entry.offset, entry.length);
}

// The slot that holds `piece`, or the free one where it belongs.
std::size_t Vocabulary::slot_of(std::string_view piece) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(piece)&mask;
  while (slots_[slot] >= 0) {
    const Entry entry = entries_[static_cast<std::size_t>(slots_[slot])];
    if (std::string_view(bytes_).substr(entry.offset, entry.length) == piece) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::resize_slots(std::size_t capacity) {
  slots_.assign(capacity, -1);
  for (std::size_t id = 0; id < entries_.size(); ++id) {
    const auto known = piece(static_cast<TokenId>(id));
    if (known) slots_[slot_of(*known)] = static_cast<TokenId>(id);
  }
}

void Vocabulary::reserve(std::size_t pieces) {
  entries_.reserve(pieces);
  std::size_t capacity = 64;
  while (capacity < pieces * 2) capacity *= 2;
  if (capacity > slots_.size()) resize_slots(capacity);
}

std::optional<TokenId> Vocabulary::find(std::string_view piece) const {
  if (slots_.empty() || piece.size() > longest_) return std::nullopt;
  const TokenId id = slots_[slot_of(piece)];
  return id >= 0 ? std::optional(id) : std::nullopt;
}

Vocabulary::Added Vocabulary::add(std::string_view piece, TokenId id) {
  if (this->piece(id)) return Added::kIdTaken;
  if (find(piece)) return Added::kPieceTaken;
  if ((count_ + 1) * 2 > slots_.size()) resize_slots(std::max<std::size_t>(64, slots_.size() * 2));
  const std::size_t slot = slot_of(piece);
  if (static_cast<std::size_t>(id) >= entries_.size()) entries_.resize(static_cast<std::size_t>(id) + 1);
  entries_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(bytes_.size()),
                                            static_cast<std::uint32_t>(piece.size())};
  bytes_ += piece;
  slots_[slot] = id;
  longest_ = std::max(longest_, piece.size());
  ++count_;
  return Added::kYes;
}

}  // namespace doppler::tokenizer
