// BPE as SentencePiece does it: neighbours merge into a piece of the vocabulary, the highest score first.
#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "tokenizer/merge_loop.h"
#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace doppler::tokenizer {
namespace {

class SentencePieceBpe : public Model {
 public:
  explicit SentencePieceBpe(const TokenizerSpec& spec)
      : spec_(spec),
        bytes_(spec.vocabulary),
        adjacency_(spec.vocabulary.count() * 4),
        ranks_(spec.vocabulary.size(), kNoMerge) {
    std::vector<double> scores;
    std::vector<Trie::Key> user_defined;
    for_each_matchable([&](TokenId id, std::string_view piece) {
      scores.push_back(spec_.scores[index(id)]);
      adjacency_.add_all_of(piece);
      if (type(id) == PieceType::kUserDefined) user_defined.push_back({piece, id});
      if (type(id) == PieceType::kUnused) has_unused_ = true;
    });
    // Scores become ranks, so that both BPE kinds merge by rank; equal scores are equal ranks.
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    for_each_matchable([&](TokenId id, std::string_view) {
      const auto at =
          std::lower_bound(scores.begin(), scores.end(), spec_.scores[index(id)], std::greater<>());
      ranks_[index(id)] = static_cast<std::uint32_t>(at - scores.begin());
    });
    user_defined_ = Trie(std::move(user_defined));
  }

  Status encode(const Pieces& pieces, std::vector<TokenId>& out, EncodeWork& work) const override {
    for (std::size_t i = 0; i < pieces.ranges.size(); ++i) encode_piece(pieces[i], out, work);
    return {};
  }

 private:
  using Halves = std::unordered_map<TokenId, std::pair<std::string, std::string>>;

  static std::size_t index(TokenId id) { return static_cast<std::size_t>(id); }
  PieceType type(TokenId id) const { return spec_.types[index(id)]; }

  template <typename Each>
  void for_each_matchable(Each&& each) const {
    for (std::size_t id = 0; id < spec_.vocabulary.size(); ++id) {
      const auto piece = spec_.vocabulary.piece(static_cast<TokenId>(id));
      const PieceType kind = spec_.types[id];
      if (piece &&
          (kind == PieceType::kNormal || kind == PieceType::kUserDefined || kind == PieceType::kUnused)) {
        each(static_cast<TokenId>(id), *piece);
      }
    }
  }

  // One symbol a character, or a user-defined piece, which stays as it is.
  std::vector<MergeSymbol> symbols_of(std::string_view text) const {
    std::vector<MergeSymbol> symbols;
    symbols.reserve(text.size());
    for (std::uint32_t at = 0; at < text.size();) {
      const Trie::Match user = user_defined_.longest(text.substr(at));
      const std::size_t length = user.length > 0 ? user.length : first_code_point(text.substr(at)).length;
      MergeSymbol symbol;
      symbol.begin = at;
      symbol.end = at += static_cast<std::uint32_t>(length);
      symbol.frozen = user.length > 0;
      symbol.id = spec_.vocabulary.find(text.substr(symbol.begin, length)).value_or(-1);
      symbols.push_back(symbol);
    }
    return symbols;
  }

  void encode_piece(std::string_view text, std::vector<TokenId>& out, EncodeWork& work) const {
    Halves halves;  // the parts that unused pieces were merged from
    const auto choose = [&](const MergeSymbol& left, const MergeSymbol& right) -> MergeChoice {
      const auto id = spec_.vocabulary.find(text.substr(left.begin, right.end - left.begin));
      if (!id || ranks_[index(*id)] == kNoMerge) return {};
      if (has_unused_ && type(*id) == PieceType::kUnused) {
        halves[*id] = {std::string(text.substr(left.begin, left.end - left.begin)),
                       std::string(text.substr(right.begin, right.end - right.begin))};
      }
      return {ranks_[index(*id)], *id};
    };
    MergeLoop loop(choose, work);
    std::vector<MergeSymbol> symbols = symbols_of(text);
    bool after_unknown = false;
    for (std::size_t begin = 0; begin < symbols.size();) {
      std::size_t end = begin + 1;
      while (end < symbols.size() && can_join(text, symbols[end - 1], symbols[end])) ++end;
      const std::span segment(symbols.data() + begin, end - begin);
      loop.run(segment);
      for (std::uint32_t i = 0;; i = segment[i].next) {
        emit(text.substr(segment[i].begin, segment[i].end - segment[i].begin), segment[i].id, halves,
             after_unknown, out);
        if (segment[i].next == i) break;
      }
      begin = end;
    }
  }

  bool can_join(std::string_view text, const MergeSymbol& left, const MergeSymbol& right) const {
    if (left.frozen || right.frozen) return false;
    return adjacency_.possible(first_code_point(text.substr(left.begin)).value,
                               first_code_point(text.substr(right.begin)).value);
  }

  // An unused piece falls back into what it was merged from, however deep.
  void emit(std::string_view text, TokenId id, const Halves& halves, bool& after_unknown,
            std::vector<TokenId>& out) const {
    if (id < 0 || !has_unused_ || type(id) != PieceType::kUnused)
      return emit_id(text, id, after_unknown, out);
    std::vector<std::string> stack = {std::string(text)};
    while (!stack.empty()) {
      const std::string part = std::move(stack.back());
      stack.pop_back();
      const TokenId part_id = spec_.vocabulary.find(part).value_or(-1);
      const auto half =
          part_id < 0 || type(part_id) != PieceType::kUnused ? halves.end() : halves.find(part_id);
      if (half == halves.end()) {
        emit_id(part, part_id, after_unknown, out);
      } else {
        stack.push_back(half->second.second);
        stack.push_back(half->second.first);
      }
    }
  }

  void emit_id(std::string_view text, TokenId id, bool& after_unknown, std::vector<TokenId>& out) const {
    const bool unknown = id < 0 || (spec_.unknown && id == *spec_.unknown);
    if (!unknown) {
      out.push_back(id);
    } else if (!(spec_.byte_fallback && bytes_.append(text, out)) && !after_unknown) {
      out.push_back(*spec_.unknown);  // one for a run of unknown text
    }
    after_unknown = unknown;
  }

  const TokenizerSpec& spec_;
  ByteIds bytes_;
  Adjacency adjacency_;
  std::vector<std::uint32_t> ranks_;  // by id; kNoMerge for pieces that text never becomes
  Trie user_defined_;
  bool has_unused_ = false;
};

}  // namespace

Result<std::unique_ptr<Model>> make_sentencepiece_bpe(const TokenizerSpec& spec) {
  DOPPLER_TRY(check_piece_lengths(spec));
  DOPPLER_TRY(check_sentencepiece_tables(spec));
  return std::make_unique<SentencePieceBpe>(spec);
}

}  // namespace doppler::tokenizer
