#include "tokenizer/decoder.h"

#include <array>

#include "base/text.h"
#include "tokenizer/decode_stages.h"
#include "tokenizer/overloaded.h"

namespace doppler::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  out.append(text, done);
  text = std::move(out);
}

// WordPiece's clean-up of English punctuation: replacements, in this order.
constexpr auto kCleanups = std::to_array<std::pair<std::string_view, std::string_view>>({
    {" .", "."},
    {" ?", "?"},
    {" !", "!"},
    {" ,", ","},
    {" ' ", "'"},
    {" n't", "n't"},
    {" 'm", "'m"},
    {" do not", " don't"},
    {" 's", "'s"},
    {" 've", "'ve"},
    {" 're", "'re"},
});

}  // namespace

Status check_text_length(std::size_t bytes) {
  constexpr std::size_t kLongestText = std::size_t{1} << 30;
  if (bytes <= kLongestText) return {};
  return fail(ErrorCode::kLimit, "The decoded text is longer than {} bytes. Check the tokenizer's decoder.",
              kLongestText);
}

std::string LossyUtf8::convert(std::string_view bytes) const {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  if (replace_ == Replace::kPart) return utf8_lossy(bytes);
  std::string out;
  while (!bytes.empty()) {
    const std::size_t length = utf8_sequence_length(bytes);
    out += length == 0 ? "\xef\xbf\xbd" : bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string LossyUtf8::push(std::string_view bytes) {
  pending_ += bytes;
  const std::size_t certain = pending_.size() - incomplete_utf8_suffix(pending_);
  std::string out = convert(std::string_view(pending_).substr(0, certain));
  pending_.erase(0, certain);
  return out;
}

std::string LossyUtf8::finish() {
  return convert(std::exchange(pending_, {}));
}

Status TextSink::put(std::string_view part) {
  total_ += part.size();
  DOPPLER_TRY(check_text_length(total_));
  text_ += utf8_.push(part);
  return {};
}

Status TextSink::finish() {
  return text_ += utf8_.finish(), Status();
}

Status WordPieceStage::take_item(std::string&& item) {
  std::string_view rest = item;
  std::string text;
  if (!std::exchange(first_, false)) {
    if (!step_.prefix.empty() && rest.starts_with(step_.prefix))
      rest.remove_prefix(step_.prefix.size());
    else
      text.push_back(' ');
  }
  text += rest;
  if (step_.cleanup) {
    for (const auto& [from, to] : kCleanups) replace_all(text, from, to);
  }
  return send(text);
}

Status BpeStage::send_replaced(std::string_view replacement) {
  replace_all(waiting_, step_.suffix, replacement);
  return send(waiting_);
}

Result<DecodePlan> DecodePlan::create(const TokenizerSpec& spec) {
  DecodePlan plan;
  if (!spec.decoder) {
    plan.steps_.push_back(JoinBySpaces{});
    return plan;
  }
  for (const DecoderStep& step : *spec.decoder) {
    if (const auto* replace = std::get_if<decoders::Replace>(&step)) {
      DOPPLER_ASSIGN(Finder finder, Finder::create(replace->pattern));
      plan.steps_.push_back(Replace{std::move(finder), replace->content});
    } else {
      std::visit(
          [&](const auto& same) {
            if constexpr (std::is_constructible_v<Step, decltype(same)>) plan.steps_.push_back(same);
          },
          step);
    }
  }
  return plan;
}

std::unique_ptr<DecodeStage> DecodePlan::make_stage(const Step& step, DecodeStage& next) {
  using Made = std::unique_ptr<DecodeStage>;
  return std::visit(
      Overloaded{
          [&](const decoders::ByteLevel&) -> Made { return std::make_unique<ByteLevelStage>(next); },
          [&](const decoders::ByteFallback&) -> Made { return std::make_unique<ByteFallbackStage>(next); },
          [&](const decoders::Fuse&) -> Made { return std::make_unique<FuseStage>(next); },
          [&](const Replace& s) -> Made { return std::make_unique<ReplaceStage>(next, s.finder, s.content); },
          [&](const decoders::Strip& s) -> Made { return std::make_unique<StripStage>(next, s); },
          [&](const decoders::Metaspace& s) -> Made { return std::make_unique<MetaspaceStage>(next, s); },
          [&](const decoders::WordPiece& s) -> Made { return std::make_unique<WordPieceStage>(next, s); },
          [&](const decoders::Bpe& s) -> Made { return std::make_unique<BpeStage>(next, s); },
          [&](const JoinBySpaces&) -> Made { return std::make_unique<JoinStage>(next); },
      },
      step);
}

std::vector<std::unique_ptr<DecodeStage>> DecodePlan::start(DecodeStage& sink) const {
  std::vector<std::unique_ptr<DecodeStage>> stages(steps_.size());
  for (std::size_t i = steps_.size(); i-- > 0;) {
    stages[i] = make_stage(steps_[i], i + 1 < steps_.size() ? *stages[i + 1] : sink);
  }
  return stages;
}

}  // namespace doppler::tokenizer
