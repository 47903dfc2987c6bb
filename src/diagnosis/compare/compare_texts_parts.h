// The parts of compare_texts, for compare_*.cpp alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/compare/compare_texts.h"

namespace doppler::diagnosis {

// Collects differences: those of one cause and explanation's kind are one, with more places.
class TextFindings {
 public:
  explicit TextFindings(std::vector<TextDifference>& out) : out_(out) {}
  void add(TextDifference difference);
  bool has(std::string_view cause) const;

 private:
  std::vector<TextDifference>& out_;
};

void compare_conversations(const TextTruth& truth, const TextSide& ours, TextFindings& findings);
void compare_generation(const TextTruth& truth, const TextSide& ours, TextFindings& findings);

// Whether pieces are written in the byte-level alphabet.
bool is_byte_level(const tokenizer::TokenizerSpec& spec);
// What a piece stands for in the text: its bytes, without a vocabulary's way of writing spaces and bytes.
std::string surface_of(std::string_view piece, bool byte_level);

// A text in quotes, short enough for a sentence, with the first difference from `other` in sight.
std::string excerpt(std::string_view text, std::string_view other);

// Where the two texts differ: what is between the beginning and the end that they share, whole characters.
struct MiddleParts {
  std::size_t begin = 0;           // the same in both
  std::string_view wanted, found;  // what differs
};
MiddleParts differing_middle(std::string_view wanted, std::string_view found);

}  // namespace doppler::diagnosis
