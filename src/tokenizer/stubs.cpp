#include "tokenizer/model.h"
namespace doppler {
Result<std::unique_ptr<Model>> make_sentencepiece_bpe(const TokenizerSpec&) {
  return fail(ErrorCode::kUnsupported, "x");
}
Result<std::unique_ptr<Model>> make_unigram(const TokenizerSpec&) {
  return fail(ErrorCode::kUnsupported, "x");
}
Result<std::unique_ptr<Model>> make_word_model(const TokenizerSpec&) {
  return fail(ErrorCode::kUnsupported, "x");
}
}  // namespace doppler
