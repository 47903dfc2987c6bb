#include "diagnosis/compare/compare_texts.h"

#include "diagnosis/compare/tokenizer_comparison.h"

namespace doppler::diagnosis {

TokenizerComparison::TokenizerComparison(const TextTruth& truth, const TextSide& ours, TextFindings& findings)
    : truth_(truth),
      ours_(ours),
      findings_(findings),
      spec_(ours.tokenizer->spec()),
      tokenizer_(*ours.tokenizer) {}

Status TokenizerComparison::run() {
  byte_level_ = is_byte_level(spec_);
  compare_vocabulary();
  if (findings_.has("reference_mismatch")) return {};
  find_plain_texts();
  compare_plain();
  compare_special_in_texts();
  compare_frames();
  compare_special_flags();
  compare_decoding();
  compare_roles();
  return {};
}

Result<TextComparison> compare_texts(const TextTruth& truth, const TextSide& ours) {
  TextComparison comparison;
  TextFindings findings(comparison.differences);
  comparison.conversations = truth.conversations.size();
  if (ours.tokenizer != nullptr) {
    comparison.texts = truth.texts.size();
    comparison.pieces = truth.pieces.size();
    DOPPLER_TRY(TokenizerComparison(truth, ours, findings).run());
  } else if (!truth.texts.empty()) {
    return fail(ErrorCode::kMismatch,
                "The model has no tokenizer to compare. Add tokenizer.json to its folder.");
  }
  compare_conversations(truth, ours, findings);
  compare_generation(truth, ours, findings);
  return comparison;
}

}  // namespace doppler::diagnosis
