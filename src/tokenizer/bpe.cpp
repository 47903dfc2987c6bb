// BPE as tokenizer.json defines it: merges of pairs of ids, by rank.
#include <array>

#include "base/text.h"
#include "tokenizer/merge_loop.h"
#include "tokenizer/model.h"

namespace doppler::tokenizer {
namespace {

// Pairs of ids and their merges: open addressing, 16 bytes a slot, at most half full.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>& merges) {
    std::size_t capacity = 16;
    while (capacity < merges.size() * 2) capacity *= 2;
    slots_.resize(capacity);
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const std::uint64_t pair = key(merges[rank].left, merges[rank].right);
      // A merge given twice counts where it was given last, as in the original.
      slots_[slot_of(pair)] = {pair, {static_cast<std::uint32_t>(rank), merges[rank].result}};
    }
  }
  MergeChoice find(TokenId left, TokenId right) const {
    return slots_[slot_of(key(left, right))].choice;  // a free slot holds kNoMerge
  }

 private:
  struct Slot {
    std::uint64_t key = UINT64_MAX;
    MergeChoice choice;
  };
  static std::uint64_t key(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = (pair * 0x9e3779b97f4a7c15u >> 20) & mask;
    while (slots_[slot].key != pair && slots_[slot].key != UINT64_MAX) slot = (slot + 1) & mask;
    return slot;
  }
  std::vector<Slot> slots_;
};

class Bpe : public Model {
 public:
  explicit Bpe(const TokenizerSpec& spec)
      : spec_(spec), merges_(spec.merges), bytes_(spec.vocabulary), adjacency_(spec.merges.size()) {
    for (char32_t c = 0; c < cached_.size(); ++c) {
      std::string text;
      append_utf8(text, c);
      cached_[c] = spec.vocabulary.find(text).value_or(-1);
    }
    for (const Merge& merge : spec.merges) {
      const auto left = spec.vocabulary.piece(merge.left), right = spec.vocabulary.piece(merge.right);
      if (!left || !right || left->empty() || right->empty()) continue;
      adjacency_.add(last_code_point(*left).value, first_code_point(*right).value);
    }
    plain_ = spec.subword_prefix.empty() && spec.word_suffix.empty();
  }

  Status encode(const Pieces& pieces, std::vector<TokenId>& out, EncodeWork& work) const override {
    MergeLoop loop([this](const MergeSymbol& a, const MergeSymbol& b) { return merges_.find(a.id, b.id); },
                   work);
    std::vector<MergeSymbol> symbols;
    for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
      const std::string_view piece = pieces[i];
      if (spec_.ignore_merges) {
        if (const auto whole = spec_.vocabulary.find(piece)) {
          out.push_back(*whole);
          continue;
        }
      }
      symbols.clear();
      add_symbols(piece, symbols);
      for (std::size_t begin = 0; begin < symbols.size();) {
        const std::size_t end = segment_end(piece, symbols, begin);
        const std::span segment(symbols.data() + begin, end - begin);
        loop.run(segment);
        emit(segment, out);
        begin = end;
      }
    }
    return {};
  }

 private:
  static void emit(std::span<const MergeSymbol> segment, std::vector<TokenId>& out) {
    for (std::uint32_t i = 0;; i = segment[i].next) {
      out.push_back(segment[i].id);
      if (segment[i].next == i) return;
    }
  }

  // Symbols up to a place where no merge can reach across. Only plain characters can be judged by their text.
  std::size_t segment_end(std::string_view piece, std::span<const MergeSymbol> symbols,
                          std::size_t begin) const {
    std::size_t end = begin + 1;
    for (; end < symbols.size(); ++end) {
      const MergeSymbol &left = symbols[end - 1], &right = symbols[end];
      if (!plain_ || left.opaque || right.opaque) continue;
      const char32_t a = first_code_point(piece.substr(left.begin, left.end - left.begin)).value;
      const char32_t b = first_code_point(piece.substr(right.begin, right.end - right.begin)).value;
      if (!adjacency_.possible(a, b)) break;
    }
    return end;
  }

  TokenId id_of(std::string_view character, char32_t value, bool first, bool last) const {
    if (plain_)
      return value < cached_.size() ? cached_[value] : spec_.vocabulary.find(character).value_or(-1);
    std::string text;
    if (!first) text = spec_.subword_prefix;
    text += character;
    if (last) text += spec_.word_suffix;
    return spec_.vocabulary.find(text).value_or(-1);
  }

  // One symbol a character; what the vocabulary lacks becomes bytes, or the unknown token, or nothing.
  void add_symbols(std::string_view piece, std::vector<MergeSymbol>& symbols) const {
    // Waits for the next known character, also past bytes, as in the original.
    std::optional<MergeSymbol> unknown;
    const auto flush = [&] {
      if (unknown) symbols.push_back(*unknown);
      unknown.reset();
    };
    std::vector<TokenId> byte_ids;
    for (std::uint32_t at = 0; at < piece.size();) {
      const CodePoint c = first_code_point(piece.substr(at));
      MergeSymbol symbol;
      symbol.begin = at;
      symbol.end = at += static_cast<std::uint32_t>(c.length);
      const std::string_view character = piece.substr(symbol.begin, c.length);
      const bool first = symbol.begin == 0, last = at >= piece.size();
      symbol.id = id_of(character, c.value, first, last);
      if (symbol.id >= 0) {
        flush();
        symbols.push_back(symbol);
        continue;
      }
      symbol.opaque = true;
      byte_ids.clear();
      if (spec_.byte_fallback && bytes_.append(affixed(character, first, last), byte_ids)) {
        for (const TokenId id : byte_ids) symbol.id = id, symbols.push_back(symbol);
      } else if (spec_.unknown) {
        if (unknown && !spec_.fuse_unknown) flush();
        if (unknown)
          unknown->end = symbol.end;
        else
          unknown = symbol, unknown->id = *spec_.unknown;
      }
    }
    flush();
  }

  std::string affixed(std::string_view character, bool first, bool last) const {
    return (first ? "" : spec_.subword_prefix) + std::string(character) + (last ? spec_.word_suffix : "");
  }

  const TokenizerSpec& spec_;
  MergeTable merges_;
  ByteIds bytes_;
  Adjacency adjacency_;
  // The ids of the characters up to U+024F: ASCII, Latin, and the whole byte-level alphabet.
  std::array<TokenId, 0x250> cached_{};
  bool plain_ = true;
};

}  // namespace

Result<std::unique_ptr<Model>> make_bpe(const TokenizerSpec& spec) {
  return std::make_unique<Bpe>(spec);
}

}  // namespace doppler::tokenizer
