// Texts and conversations beside those of the recording.
#include <algorithm>

#include "base/text.h"
#include "diagnosis/compare/compare_texts.h"
#include "diagnosis/compare/text_side.h"
#include "diagnosis/doctor/doctor_checks.h"

namespace doppler::diagnosis::doctor {
namespace {

TextSide side_of(const Subject& subject) {
  TextSide side = subject.text;
  side.tokenizer = subject.tokenizer;
  if (subject.prompt_ids) side.prompt_ids = subject.prompt_ids;
  side.stop_ids.assign(subject.spec.eos_ids.begin(), subject.spec.eos_ids.end());
  side.pad_id = subject.spec.pad_id;
  return side;
}

// Causes that show in the ids of a prompt. The others show in what becomes of chosen ids, at no stage.
bool shows_in_ids(const std::string& cause) {
  static constexpr std::string_view kLater[] = {"decoder", "stop_tokens", "pad_token", "generation_defaults"};
  return std::ranges::find(kLater, cause) == std::end(kLater);
}

void find_differences(const Examination& e, const TextComparison& comparison, double confidence) {
  for (const TextDifference& difference : comparison.differences) {
    std::vector<Fix> fixes;
    for (const TextSetting& s : difference.settings)
      fixes.push_back({.kind = Fix::Kind::kSetting, .target = s.key, .value = s.value, .file = s.file});
    e.find({.cause = difference.cause,
            .stage = shows_in_ids(difference.cause) ? "embed_out" : "",
            .places = difference.places,
            .explanation = difference.explanation,
            .repair = difference.repair,
            .confidence = confidence * difference.confidence,
            .fixes = std::move(fixes)});
  }
}

// The ids of a recording without texts: as text, and back. Ids that no tokenizer made are no fault; where one
// repair lets all of them come back, that is more than chance.
Result<Outcome> look_at_ids(const Examination& e) {
  const tokenizer::Tokenizer& tokenizer = *e.subject.tokenizer;
  std::span<const std::int32_t> ids = e.options.reference->prompt_ids;
  std::size_t begin = 0;
  while (begin < ids.size() && tokenizer.is_special(ids[begin])) ++begin;
  ids = ids.subspan(begin);
  const auto in_vocabulary = [&](std::int32_t id) {
    return static_cast<std::size_t>(id) < tokenizer.vocab_size();
  };
  if (ids.empty() || !std::ranges::all_of(ids, in_vocabulary))
    return Outcome::skip("the recording holds no texts");
  TextTruth truth;
  TextCase text;
  text.ids.assign(ids.begin(), ids.end());
  DOPPLER_ASSIGN(text.text, tokenizer.decode(text.ids));
  DOPPLER_ASSIGN(const auto again, tokenizer.encode(text.text, {.add_special = false}));
  if (again == text.ids)
    return Outcome::ok(fmt::format("the recording's {} ids come back from their text", ids.size()));
  constexpr std::size_t kFewestIds = 5;
  truth.texts.push_back(std::move(text));
  TextSide side;
  side.tokenizer = &tokenizer;
  side.gguf = e.subject.text.gguf;
  DOPPLER_ASSIGN(const TextComparison comparison, compare_texts(truth, side));
  const bool repaired = std::ranges::all_of(
      comparison.differences, [](const TextDifference& difference) { return difference.confidence == 1; });
  if (ids.size() >= kFewestIds && repaired) find_differences(e, comparison, 0.6);
  return Outcome::ok(
      "the recording's ids are not what their text becomes here; one with texts (tools/hf_record.py) would "
      "tell why");
}

}  // namespace

bool texts_are_known(const Examination& e) {
  if (e.options.source != nullptr && e.options.source->tokenizer) return true;
  return e.options.reference != nullptr && e.options.reference->text &&
         !e.options.reference->text->texts.empty();
}

namespace {

// What the model makes of texts, beside what it should.
Result<Outcome> compare_with(const Examination& e, const TextTruth& truth) {
  const TextSide side = side_of(e.subject);
  if (side.tokenizer == nullptr && !truth.texts.empty())
    return Outcome::skip("the model has no tokenizer, the truth does");
  DOPPLER_ASSIGN(const TextComparison comparison, compare_texts(truth, side));
  find_differences(e, comparison, 1);
  return Outcome::ok(fmt::format("{} texts, {} conversations and {} pieces of the vocabulary{}",
                                 comparison.texts, comparison.conversations, comparison.pieces,
                                 comparison.differences.empty() ? " agree" : " compared"));
}

}  // namespace

Result<Outcome> check_texts(const Examination& e) {
  const bool recorded = e.options.reference != nullptr && e.options.reference->text;
  if (!recorded && e.options.source != nullptr && e.options.source->tokenizer) {
    DOPPLER_ASSIGN(const TextTruth truth, text_truth_of(text_side_of(*e.options.source)));
    return compare_with(e, truth);
  }
  if (e.options.reference == nullptr) return Outcome::skip("no --reference and no --source is given");
  if (!e.options.reference->text)
    return e.subject.tokenizer == nullptr ? Outcome::skip("the recording holds no texts") : look_at_ids(e);
  return compare_with(e, *e.options.reference->text);
}

}  // namespace doppler::diagnosis::doctor
