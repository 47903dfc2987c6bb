// A tokenizer beside a source's: what it makes of the recorded texts, step by step. For compare_*.cpp alone.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/compare/compare_texts_parts.h"
#include "diagnosis/compare/text_repairs.h"

namespace doppler::diagnosis {

// Ids as pieces, and the places in the text where one ends and the next begins.
struct TextCut {
  std::string text;            // all pieces together
  std::set<std::size_t> ends;  // behind each piece
  std::vector<std::string> pieces;
};

// What a repair of the description makes of the texts.
struct TriedRepair {
  const TextRepair* repair = nullptr;
  std::optional<tokenizer::Tokenizer> tokenizer;
  tokenizer::TokenizerSpec spec;
  std::size_t left = 0;  // texts that still disagree
};

// What the texts that disagree have in common.
struct CutEvidence {
  std::size_t surfaces = 0;  // texts whose pieces make another text
  std::size_t in_words = 0;  // with other cuts between two small letters
  std::size_t finer = 0;     // cut at all places of the truth, and at more
  std::size_t unmade = 0;    // pieces of the truth that no merge makes
  std::string unmade_example;
  std::vector<TokenId> added;  // such pieces without letters: found as added tokens
};

// What stands around a text's own tokens.
struct TextFrame {
  std::vector<TokenId> before, behind;
  bool operator==(const TextFrame&) const = default;
};

class TokenizerComparison {
 public:
  using Ids = std::vector<TokenId>;
  using Tokenizer = tokenizer::Tokenizer;
  using TokenizerSpec = tokenizer::TokenizerSpec;

  TokenizerComparison(const TextTruth& truth, const TextSide& ours, TextFindings& findings);
  Status run();

 private:
  // The vocabulary, and which of its tokens are special: compare_vocabulary.cpp.
  std::string canonical(std::string_view piece) const;
  bool is_added(TokenId id) const;
  bool is_special_in_truth(TokenId id) const;
  void compare_vocabulary();
  bool is_used(TokenId id) const;
  // An id of the truth as this vocabulary has it.
  TokenId here(TokenId id) const;
  Ids here(const Ids& ids) const;
  void compare_special_flags();
  void compare_roles();

  // Texts without special tokens: compare_plain_texts.cpp.
  bool holds_special(std::string_view text) const;
  void find_plain_texts();
  static Ids encode(const Tokenizer& tokenizer, const TextCase& text, const TextRepair* repair);
  std::vector<const TextCase*> disagreeing(const std::vector<const TextCase*>& texts,
                                           const Tokenizer& tokenizer,
                                           const TextRepair* repair = nullptr) const;
  // The repair after which the fewest of the texts disagree, and none that agreed before.
  TriedRepair best_of(const std::vector<TextRepair>& repairs, const std::vector<const TextCase*>& texts,
                      const std::vector<const TextCase*>& wrong) const;
  TextCut cut_of(const Ids& ids, bool from_truth) const;
  // "He|llo" around the first place where two cuts differ.
  std::string becomes(const TextCase& text) const;
  void compare_plain();
  CutEvidence look_at(const std::vector<const TextCase*>& wrong) const;
  // No repair helps: the step that the differences point to.
  void say_what_shows(const std::vector<const TextCase*>& wrong, const CutEvidence& evidence);

  // Texts with special tokens, what stands around a text, and back to text: compare_special_texts.cpp.
  void compare_special_in_texts();
  std::string names(const Ids& ids) const;
  void compare_frames();
  std::vector<TextSetting> adding(std::string_view what, bool on) const;
  void say_beginning(const Ids& wanted, const Ids& found);
  void say_end(const Ids& wanted, const Ids& found);
  std::vector<const TextCase*> undecoded(const Tokenizer& tokenizer) const;
  void compare_decoding();

  std::string key(const char* gguf, const char* json) const { return ours_.gguf ? gguf : json; }

  const TextTruth& truth_;
  const TextSide& ours_;
  TextFindings& findings_;
  TokenizerSpec spec_;   // repaired so far
  Tokenizer tokenizer_;  // of that
  bool byte_level_ = false;
  // Each repair builds a tokenizer anew, which takes the largest half a second; what is left out then is
  // said.
  const std::chrono::steady_clock::time_point until_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(8);
  std::map<TokenId, std::optional<TokenId>>
      changed_;  // ids of the truth that are another piece here, and its id
  std::vector<const TextCase*> plain_, special_;
};

}  // namespace doppler::diagnosis
