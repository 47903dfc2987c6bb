// What the loss of a paragraph tells of the tokenizer: a model that reads badly is given the same text as
// other tokenizers would cut it. What makes the whole text clearly likelier names the step that is wrong.
#include <numeric>

#include "diagnosis/compare/text_repairs.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/text_loss.h"

namespace doppler::diagnosis::doctor {
namespace {

using tokenizer::Tokenizer;
using tokenizer::TokenizerSpec;

// The texts' total loss must fall to this share of what it was: fewer tokens alone bring some of that.
constexpr double kFallsTo = 0.6;

struct Reading {
  std::vector<std::vector<TokenId>> texts;
  std::size_t tokens() const {
    return std::accumulate(texts.begin(), texts.end(), std::size_t{0},
                           [](std::size_t n, const auto& text) { return n + text.size(); });
  }
};

// The texts behind what a prompt begins with; nothing where an id lies outside of the embedding.
std::optional<Reading> read_by(const Tokenizer& tokenizer, const Examination& e) {
  const auto begin = e.subject.prompt_ids("");
  if (!begin) return std::nullopt;
  Reading reading;
  for (const std::string_view text : loss_texts()) {
    const auto ids = tokenizer.encode(text, {.add_special = false});
    if (!ids || ids->empty()) return std::nullopt;
    auto& all = reading.texts.emplace_back(*begin);
    all.insert(all.end(), ids->begin(), ids->end());
    for (const TokenId id : all) {
      if (id < 0 || id >= static_cast<TokenId>(e.subject.spec.vocab_size)) return std::nullopt;
    }
  }
  return reading;
}

std::optional<double> total_loss(const Examination& e, Reading reading) {
  LossMeter meter(e.subject, std::move(reading.texts));
  const auto losses = meter.measure(e.subject);
  if (!losses) return std::nullopt;
  return std::accumulate(losses->begin(), losses->end(), 0.0);
}

}  // namespace

TextTrials try_texts(const Examination& e, double seconds) {
  TextTrials trials;
  const TokenizerSpec& spec = e.subject.tokenizer->spec();
  const bool gguf = e.subject.text.gguf;
  std::vector<TextRepair> repairs = normalizer_repairs(spec, gguf);
  for (auto more : {pre_tokenizer_repairs(spec, gguf, true), model_repairs(spec)})
    std::ranges::move(more, std::back_inserter(repairs));
  const auto until =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  const auto own = read_by(*e.subject.tokenizer, e);
  const auto before = own ? total_loss(e, *own) : std::nullopt;
  if (!before) return trials;
  double least = kFallsTo * *before;
  for (const TextRepair& repair : repairs) {
    if (repair.before) continue;  // a step that this kind of tokenizer lacks
    if (std::chrono::steady_clock::now() > until) {
      ++trials.left_out;
      continue;
    }
    TokenizerSpec changed = spec;
    repair.change(changed);
    const auto made = Tokenizer::from_spec(std::move(changed));
    const auto reading = made ? read_by(*made, e) : std::nullopt;
    if (!reading || reading->texts == own->texts) continue;
    ++trials.tried;
    const auto after = total_loss(e, *reading);
    if (!after || *after >= least) continue;
    least = *after;
    trials.finding = Finding{
        .cause = repair.cause,
        .stage = "embed_out",
        .explanation = fmt::format(
            "The loss of plain English falls from {:.0f} nats ({} tokens) to {:.0f} ({} tokens) when {}.",
            *before, own->tokens(), *after, reading->tokens(), repair.when),
        .repair = repair.repair,
        .confidence = 0.85};
  }
  return trials;
}

}  // namespace doppler::diagnosis::doctor
