// What a model makes of text beside what it should make of it: every difference is put down to the step that
// makes it, and tried repairs say what would end it.
#pragma once

#include <string>
#include <vector>

#include "diagnosis/compare/text_truth.h"

namespace doppler::diagnosis {

// A value of a file of the tokenizer's, or of GGUF's metadata ("gguf"), that ends a difference.
struct TextSetting {
  std::string file, key, value;  // the value as JSON
};

struct TextDifference {
  std::string cause;        // an id of doctor/causes.h
  std::string step;         // "pre-tokenizer", "generation prompt"
  std::string explanation;  // what differs, with an example
  std::string repair;
  double confidence = 1;
  std::size_t places = 1;                  // texts, tokens or conversations that show it
  std::vector<TextSetting> settings = {};  // where single values are the repair; else empty
};

struct TextComparison {
  std::vector<TextDifference> differences;  // in the order in which text becomes ids, and ids text
  std::size_t texts = 0, conversations = 0, pieces = 0;  // compared
};

// Where it finds a repair, it goes on with the repaired tokenizer, so that several faults show at once.
// Errors: kMismatch where the model has no tokenizer.
Result<TextComparison> compare_texts(const TextTruth& truth, const TextSide& ours);

}  // namespace doppler::diagnosis
