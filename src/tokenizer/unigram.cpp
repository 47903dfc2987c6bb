// Unigram: the split of a text whose pieces have the best sum of scores (Viterbi), in one pass.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/unicode.h"
#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace doppler::tokenizer {
namespace {

// How much worse than the worst piece unknown text is; both libraries have the same constant.
constexpr double kUnknownPenalty = 10.0;

class Unigram : public Model {
 public:
  explicit Unigram(const TokenizerSpec& spec)
      : spec_(spec), float_sums_(spec.kind == ModelKind::kSentencePieceUnigram), bytes_(spec.vocabulary) {
    std::vector<Trie::Key> keys;
    double lowest = INFINITY, highest = -INFINITY;
    for (std::size_t id = 0; id < spec.vocabulary.size(); ++id) {
      const auto piece = spec.vocabulary.piece(static_cast<TokenId>(id));
      if (!piece || !matchable(id)) continue;
      if (!float_sums_ || spec.types[id] == PieceType::kNormal) {
        lowest = std::min(lowest, spec.scores[id]);
        highest = std::max(highest, spec.scores[id]);
      }
      if (!float_sums_ || spec.types[id] != PieceType::kUnused)
        keys.push_back({*piece, static_cast<std::int32_t>(id)});
    }
    trie_ = Trie(std::move(keys));
    unknown_score_ = (std::isfinite(lowest) ? lowest : 0.0) - kUnknownPenalty;
    if (float_sums_) unknown_score_ = static_cast<float>(unknown_score_);
    highest_ = std::isfinite(highest) ? highest : 0.0;
  }

  Status encode(const Pieces& pieces, std::vector<TokenId>& out, EncodeWork& work) const override {
    std::vector<Node> nodes;
    std::vector<Node> path;
    for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
      const std::string_view text = pieces[i];
      DOPPLER_TRY(find_best(text, nodes, work));
      path.clear();
      for (std::size_t end = text.size(); end > 0; end = nodes[end].begin) {
        path.push_back(nodes[end]);
        path.back().end = static_cast<std::uint32_t>(end);
      }
      std::reverse(path.begin(), path.end());
      DOPPLER_TRY(emit(text, path, out));
    }
    return {};
  }

 private:
  // The best way to reach a position.
  struct Node {
    double score = 0;
    std::uint32_t begin = kNowhere, end = 0;
    TokenId id = -1;  // -1: unknown
  };
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  bool matchable(std::size_t id) const {
    if (!float_sums_) return true;
    const PieceType type = spec_.types[id];
    return type == PieceType::kNormal || type == PieceType::kUserDefined || type == PieceType::kUnused;
  }

  double score(TokenId id, std::size_t length) const {
    const auto index = static_cast<std::size_t>(id);
    // A user-defined piece is worth more than any split of its text.
    if (float_sums_ && spec_.types[index] == PieceType::kUserDefined) {
      return static_cast<double>(static_cast<float>(length) * static_cast<float>(highest_)) - 0.1;
    }
    return spec_.scores[index];
  }

  // SentencePiece keeps sums as floats, which decides between splits that are nearly equal.
  void offer(Node& node, double candidate, std::size_t begin, TokenId id) const {
    if (node.begin != kNowhere && !(candidate > node.score)) return;
    node.score = float_sums_ ? static_cast<float>(candidate) : candidate;
    node.begin = static_cast<std::uint32_t>(begin);
    node.id = id;
  }

  Status find_best(std::string_view text, std::vector<Node>& nodes, EncodeWork& work) const {
    nodes.assign(text.size() + 1, Node());
    for (std::size_t begin = 0; begin < text.size();) {
      const double so_far = nodes[begin].score;
      const std::size_t character = first_code_point(text.substr(begin)).length;
      bool character_known = false;
      trie_.prefixes(text.substr(begin), [&](std::size_t length, std::int32_t id) {
        ++work.steps;
        offer(nodes[begin + length], score(id, length) + so_far, begin, id);
        if (length == character) character_known = true;
      });
      if (!character_known) {
        if (!spec_.unknown) return missing_unknown_token(text.substr(begin, character));
        const double sum = unknown_score_ + so_far;
        offer(nodes[begin + character], float_sums_ ? static_cast<float>(sum) : sum, begin, *spec_.unknown);
      }
      begin += character;
    }
    return {};
  }

  Status emit(std::string_view text, const std::vector<Node>& path, std::vector<TokenId>& out) const {
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (!spec_.unknown || path[i].id != *spec_.unknown) {
        out.push_back(path[i].id);
        continue;
      }
      const std::uint32_t begin = path[i].begin;
      while (i + 1 < path.size() && path[i + 1].id == *spec_.unknown) ++i;  // a run is one unknown text
      const std::string_view unknown = text.substr(begin, path[i].end - begin);
      // The run as a whole may be a piece that no path led to.
      const auto whole = float_sums_ ? std::nullopt : spec_.vocabulary.find(unknown);
      if (whole)
        out.push_back(*whole);
      else if (!(spec_.byte_fallback && bytes_.append(unknown, out)))
        out.push_back(*spec_.unknown);
    }
    return {};
  }

  const TokenizerSpec& spec_;
  bool float_sums_;
  ByteIds bytes_;
  Trie trie_;
  double unknown_score_ = 0, highest_ = 0;
};

}  // namespace

Result<std::unique_ptr<Model>> make_unigram(const TokenizerSpec& spec) {
  DOPPLER_TRY(check_piece_lengths(spec));
  if (spec.kind == ModelKind::kSentencePieceUnigram) DOPPLER_TRY(check_sentencepiece_tables(spec));
  return std::make_unique<Unigram>(spec);
}

}  // namespace doppler::tokenizer
