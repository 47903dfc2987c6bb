// StreamDecoder: decoding ids as they come.
#include "tokenizer/tokenizer_parts.h"

namespace doppler::tokenizer {

DecodeRun::DecodeRun(const Tokenizer::Parts& parts, bool skip_special)
    : parts_(parts), skip_special_(skip_special) {
  if (parts.is_sentencepiece()) {
    sentencepiece_.emplace(parts.spec, sink_);
  } else {
    stages_ = parts.decode_plan.start(sink_);
    first_ = stages_.empty() ? &sink_ : stages_.front().get();
  }
}

Status DecodeRun::push(TokenId id) {
  if (id < 0 || static_cast<std::size_t>(id) >= parts_.vocab_size()) {
    return fail(ErrorCode::kMismatch,
                "The token id {} is outside of the vocabulary of {} ids. Give ids from 0 to {}.", id,
                parts_.vocab_size(), parts_.vocab_size() - 1);
  }
  if (skip_special_ && parts_.special[static_cast<std::size_t>(id)]) return {};
  const auto piece = parts_.decoded_piece(id);
  if (!piece) return {};
  if (sentencepiece_) {
    const bool own = parts_.spec.vocabulary.piece(id).has_value();
    return own ? sentencepiece_->push(id, *piece) : sentencepiece_->push_text(*piece);
  }
  DOPPLER_TRY(first_->put(*piece));
  return first_->end_item();
}

Status DecodeRun::finish() {
  return sentencepiece_ ? sentencepiece_->finish() : first_->finish();
}

struct StreamDecoder::Run {
  Run(std::shared_ptr<const Tokenizer::Parts> p, bool skip_special)
      : parts(std::move(p)), decode(*parts, skip_special) {}
  std::shared_ptr<const Tokenizer::Parts> parts;
  DecodeRun decode;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : run_(std::make_unique<Run>(tokenizer.parts_, skip_special)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

Result<std::string> StreamDecoder::push(TokenId id) {
  DOPPLER_TRY(run_->decode.push(id));
  return run_->decode.take();
}

Result<std::string> StreamDecoder::flush() {
  DOPPLER_TRY(run_->decode.finish());
  return run_->decode.take();
}

}  // namespace doppler::tokenizer
