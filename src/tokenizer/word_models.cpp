// WordLevel and WordPiece: whole words, and the longest known beginnings of words.
#include "base/unicode.h"
#include "tokenizer/model.h"

namespace doppler::tokenizer {
namespace {

class WordModel : public Model {
 public:
  explicit WordModel(const TokenizerSpec& spec) : spec_(spec) {}

  Status encode(const Pieces& pieces, std::vector<TokenId>& out, EncodeWork& work) const override {
    for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
      const std::string_view word = pieces[i];
      const std::size_t before = out.size();
      const bool known =
          spec_.kind == ModelKind::kWordLevel ? add_word(word, out) : add_parts(word, out, work);
      if (known) continue;
      out.resize(before);
      if (!spec_.unknown) return missing_unknown_token(word);
      out.push_back(*spec_.unknown);
    }
    return {};
  }

 private:
  bool add_word(std::string_view word, std::vector<TokenId>& out) const {
    const auto id = spec_.vocabulary.find(word);
    if (id) out.push_back(*id);
    return id.has_value();
  }

  bool add_parts(std::string_view word, std::vector<TokenId>& out, EncodeWork& work) const {
    if (count_code_points(word) > spec_.max_word_chars) return false;
    for (std::size_t begin = 0; begin < word.size();) {
      std::size_t end = word.size();
      for (;; end -= last_code_point(word.substr(begin, end - begin)).length) {
        if (end == begin) return false;
        ++work.steps;
        const std::string part =
            (begin > 0 ? spec_.subword_prefix : "") + std::string(word.substr(begin, end - begin));
        if (const auto id = spec_.vocabulary.find(part)) {
          out.push_back(*id);
          break;
        }
      }
      begin = end;
    }
    return true;
  }

  const TokenizerSpec& spec_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_word_model(const TokenizerSpec& spec) {
  return std::make_unique<WordModel>(spec);
}

}  // namespace doppler::tokenizer
