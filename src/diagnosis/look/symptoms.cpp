#include "diagnosis/look/symptoms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace doppler::diagnosis::symptoms {
namespace {

using Symptoms = std::vector<Symptom>;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// By token, without the first one: trained models keep outliers of thousands there on purpose.
template <typename Value>
std::vector<double> ordinary(const StageRecord& record, const Value& value) {
  std::vector<double> values;
  for (std::size_t row = 0; row < record.tokens.size(); ++row) {
    if (record.tokens[row] != 0 || record.tokens.size() == 1) values.push_back(value(row));
  }
  return values;
}

std::string command(const TriageInput& input, std::string_view rest) {
  return fmt::format("doppler debug {} {}", input.model, rest);
}

std::string at_layers(const StageRecord& record) {
  return record.layer < 0 ? "" : fmt::format(",layers={}", record.layer);
}

}  // namespace

// ---- from a stage's own values

void not_finite(const TriageInput& input, Symptoms& findings) {
  for (const StageRecord& record : input.run.stages) {
    const bool in_prompt = !record.prompt.finite();
    const Statistics& s = in_prompt ? record.prompt : record.decode;
    if (s.finite()) continue;
    const std::size_t token = s.first_bad / record.width + (in_prompt ? 0 : input.run.prompt_ids.size());
    findings.push_back(
        {.check = "not_finite",
         .text = fmt::format(
             "NaN or Inf first at {}, token {}, dim {}, in {}: {} NaN and {} Inf of {} values. Everything "
             "that is computed before it is finite.",
             record.key(), token, s.first_bad % record.width, in_prompt ? "the prompt" : "decode", s.nan,
             s.inf, s.count),
         .next = command(input, fmt::format("--backend reference --probe stage={}{},tokens={},dims={}",
                                            stage_name(record.stage), at_layers(record), token,
                                            s.first_bad % record.width)),
         .numbers = {{"stage", stage_name(record.stage)},
                     {"layer", record.layer},
                     {"token", token},
                     {"dim", s.first_bad % record.width},
                     {"nan", s.nan},
                     {"inf", s.inf}}});
    return;
  }
}

namespace {

std::vector<const StageRecord*> residuals(const TriageInput& input) {
  std::vector<const StageRecord*> records;
  for (const StageRecord& record : input.run.stages) {
    if (record.stage == Stage::kLayerOut && !record.tokens.empty()) records.push_back(&record);
  }
  return records;
}

}  // namespace

void exploding(const TriageInput& input, Symptoms& findings) {
  // The median of the tokens' rms, because trained models hold single values of thousands: Gemma 3 1B goes
  // from 227 to 8384 and 15168 in its largest value, and attention sinks jump by a factor of hundreds in one
  // layer, but at one token.
  constexpr double kOneLayer = 10, kWhole = 1e4;  // 67 is what Gemma 3's largest value grows by in all
  double before = 0, first = 0;
  for (const StageRecord* record : residuals(input)) {
    const double rms = median(ordinary(*record, [&](std::size_t row) { return record->row_rms[row]; }));
    const bool jumps = before > 0 && rms > kOneLayer * before, piles_up = first > 0 && rms > kWhole * first;
    if (jumps || piles_up) {
      findings.push_back(
          {.check = "exploding",
           .text = fmt::format(
               "The residual stream explodes at layer {}: its rms is {:.4g}, {:.1f} times that of {} "
               "({:.4g}). maxAbs is {:.5g}.",
               record->layer, rms, rms / (jumps ? before : first),
               jumps ? fmt::format("layer {}", record->layer - 1) : "layer 0", jumps ? before : first,
               record->prompt.max_abs),
           .next = command(input, fmt::format("--trace attn,ffn --trace-layers {}", record->layer)),
           .numbers = {{"layer", record->layer}, {"rms", rms}, {"growth", rms / (jumps ? before : first)}}});
      return;
    }
    before = rms;
    if (first == 0) first = rms;
  }
}

void spike(const TriageInput& input, Symptoms& findings) {
  // Models have outlier dims; of Gemma 3's they carry most of a token. But where one dim holds 99.9 % of the
  // energy of ordinary tokens, a norm leaves all others together less than a thirtieth of it.
  constexpr double kShare = 0.999;
  for (const StageRecord* record : residuals(input)) {
    if (record->width < 8) continue;
    const auto width = static_cast<double>(record->width);
    const double share = median(ordinary(*record, [&](std::size_t row) {
      const double rms = record->row_rms[row];
      return rms > 0 ? record->row_peak[row] / rms * record->row_peak[row] / rms / width : 0;
    }));
    const std::uint32_t dim = record->row_peak_dim.back();
    const auto same = std::count(record->row_peak_dim.begin(), record->row_peak_dim.end(), dim);
    if (share < kShare || same * 2 <= std::ssize(record->row_peak_dim)) continue;
    findings.push_back(
        {.check = "spike",
         .text = fmt::format(
             "One dim carries the residual stream from layer {} on: dim {} holds {:.2f} % of a token's "
             "energy, maxAbs {:.5g}, at {} of {} tokens.",
             record->layer, dim, 100 * share, record->prompt.max_abs, same, record->row_peak_dim.size()),
         .next = command(input, fmt::format("--probe stage=ffn_out,layers={},tokens=all,dims={} --probe "
                                            "stage=o_proj,layers={},tokens=all,dims={}",
                                            record->layer, dim, record->layer, dim)),
         .numbers = {{"layer", record->layer}, {"dim", dim}, {"share", share}}});
    return;
  }
}

void dead_stage(const TriageInput& input, Symptoms& findings) {
  std::size_t more = 0;
  for (const StageRecord& record : input.run.stages) {
    for (const Statistics* s : {&record.prompt, &record.decode}) {
      if (s->count < 2 || !s->finite() || s->min != s->max) continue;
      if (++more > 1) break;
      const bool zero = s->min == 0;
      findings.push_back(
          {.check = "dead_stage",
           .text = fmt::format(
               "{} is {} for every token of {} ({} values): {}.", record.key(),
               zero ? "zero" : fmt::format("{:.5g} everywhere", s->min),
               s == &record.prompt ? "the prompt" : "decode", s->count,
               zero ? "its op writes nothing, or its weights are empty" : "its op does not read its input"),
           .next = command(input, "--backend reference"),
           .numbers = {{"stage", stage_name(record.stage)}, {"layer", record.layer}, {"value", s->min}}});
      break;
    }
  }
  if (more > 1) findings.back().text += fmt::format(" So are {} stages after it.", more - 1);
}

void zero_rows(const TriageInput& input, Symptoms& findings) {
  for (const StageRecord& record : input.run.stages) {
    const auto zero = std::count(record.row_zero.begin(), record.row_zero.end(), true);
    const bool some = zero > 0 && zero < std::ssize(record.row_zero);
    // A few zeros at a row's end happen where an activation underflows; four at every token do not.
    const bool tail = record.zero_tail >= 4 && record.zero_tail < record.width;
    if (!some && !tail) continue;
    const auto first = static_cast<std::size_t>(
        std::find(record.row_zero.begin(), record.row_zero.end(), true) - record.row_zero.begin());
    const std::int64_t token = some ? record.tokens[first] : 0;
    findings.push_back(
        {.check = "zero_rows",
         .text =
             some ? fmt::format("{} of {} tokens have nothing but zeros in {}, first token {}: part of it "
                                "was not written.",
                                zero, record.row_zero.size(), record.key(), token)
                  : fmt::format(
                        "The last {} of {} values of {} are zero for every token: its tail was not written.",
                        record.zero_tail, record.width, record.key()),
         .next = command(input, "--backend reference"),
         .numbers = {{"stage", stage_name(record.stage)},
                     {"layer", record.layer},
                     {"tokens", zero},
                     {"first_token", token},
                     {"tail", tail ? record.zero_tail : 0}}});
    return;
  }
}

// ---- weights by id

void embedding_rows(const TriageInput& input, Symptoms& findings) {
  const EmbeddingCheck& e = input.run.embedding;
  // Single rows may be zero (a padding token); of ids from the whole vocabulary, one in twenty may not.
  if (e.file_zero * 20 > e.file_rows) {
    findings.push_back(
        {.check = "embedding_rows",
         .text = fmt::format(
             "{} of {} rows of the embedding are zero in the file, first that of id {}: the file was not "
             "written to its end, or is another's.",
             e.file_zero, e.file_rows, *e.first_zero),
         .next = fmt::format("doppler inspect {}", input.model),
         .numbers = {{"zero_in_file", e.file_zero}, {"rows", e.file_rows}, {"first_id", *e.first_zero}}});
  }
  if (e.ran_zero + e.ran_wrong == 0) return;
  const bool zero = e.ran_zero > 0;
  const TokenId first = zero ? *e.first_ran_zero : *e.first_ran_wrong;
  findings.push_back(
      {.check = "embedding_rows",
       .text = fmt::format(
           "Of {} ids from the whole vocabulary, the backend looks up zeros for {} and other values than the "
           "file's for {}, first at id {}.",
           e.ran, e.ran_zero, e.ran_wrong, first),
       .next = command(
           input, fmt::format("--backend reference --prompt-ids {} --probe stage=embed_out,dims=0:7", first)),
       .numbers = {{"zero", e.ran_zero}, {"wrong", e.ran_wrong}, {"ids", e.ran}, {"first_id", first}}});
}

void head_rows(const TriageInput& input, Symptoms& findings) {
  // A logit that is exactly zero is a row of the head that is. Vocabularies are padded with such rows, so
  // only ids that have a token count, and those only if they are many.
  const std::size_t known = input.known_ids == 0 ? input.run.last_prompt_logits.size() : input.known_ids;
  const auto logits =
      std::span(input.run.last_prompt_logits).first(std::min(known, input.run.last_prompt_logits.size()));
  const auto zeros = std::count(logits.begin(), logits.end(), 0.0f);
  if (zeros * 20 <= std::ssize(logits) || zeros == std::ssize(logits)) return;
  const auto first = std::find(logits.begin(), logits.end(), 0.0f) - logits.begin();
  findings.push_back(
      {.check = "head_rows",
       .text = fmt::format("{} of {} logits are exactly zero, first that of id {}: rows of the head are "
                           "missing, or were not computed.",
                           zeros, logits.size(), first),
       .next = command(input, fmt::format("--backend reference --logit-ids {}", first)),
       .numbers = {{"zeros", zeros}, {"first_id", first}}});
}

// ---- logits

namespace {

// Of all positions whose logits are known.
template <typename Value>
std::vector<double> by_position(const TriageInput& input, const Value& value) {
  std::vector<double> values;
  for (const PositionLogits& p : input.run.logits) {
    if (!p.top.empty()) values.push_back(value(p));
  }
  return values;
}

}  // namespace

void uniform_logits(const TriageInput& input, Symptoms& findings) {
  const auto top1 = by_position(input, [](const PositionLogits& p) { return p.top[0].probability; });
  const double most = std::log(static_cast<double>(input.spec.vocab_size));
  const auto share = by_position(input, [&](const PositionLogits& p) { return p.entropy / most; });
  // One undecided position is healthy; no position of a text with 5 % for any token is not. Nine tenths of
  // the entropy of no choice at all is a perplexity of 74000 for a vocabulary of 262144; not even models of
  // random weights reach it.
  constexpr double kTop = 0.05, kEntropy = 0.9;
  if (top1.empty() || *std::max_element(top1.begin(), top1.end()) >= kTop ||
      *std::min_element(share.begin(), share.end()) < kEntropy)
    return;
  const double best = *std::max_element(top1.begin(), top1.end());
  findings.push_back(
      {.check = "uniform_logits",
       .text = fmt::format("The logits choose nothing: at {} positions no token gets more than {:.2f} %, and "
                           "their entropy is {:.1f} % of what equal logits have.",
                           top1.size(), 100 * best, 100 * median(share)),
       .next = command(input, "--trace logits --probe stage=final_norm,tokens=-1,dims=0:7"),
       .numbers = {{"top1", best}, {"entropy_share", median(share)}}});
}

void overconfident(const TriageInput& input, Symptoms& findings) {
  const auto top1 = by_position(input, [](const PositionLogits& p) { return p.top[0].probability; });
  // Every text has places where it could go on in many ways, above all after its first token.
  constexpr double kSure = 0.999;
  constexpr std::size_t kLeast = 4;
  if (top1.size() < kLeast || *std::min_element(top1.begin(), top1.end()) < kSure) return;
  findings.push_back(
      {.check = "overconfident",
       .text = fmt::format("The model is sure everywhere: at all {} positions the likeliest token has more "
                           "than {:.2f} %.",
                           top1.size(), 100 * *std::min_element(top1.begin(), top1.end())),
       .next = command(input, "--trace logits"),
       .numbers = {{"least_top1", *std::min_element(top1.begin(), top1.end())}}});
}

void same_logits(const TriageInput& input, Symptoms& findings) {
  std::vector<double> likeness;
  const auto id_at = [&](std::int64_t token) {
    const auto n = static_cast<std::int64_t>(input.run.prompt_ids.size());
    return token < n ? input.run.prompt_ids[static_cast<std::size_t>(token)]
                     : input.run.ids[static_cast<std::size_t>(token - n)];
  };
  for (std::size_t i = 1; i < input.run.logits.size(); ++i) {
    const PositionLogits &before = input.run.logits[i - 1], &now = input.run.logits[i];
    if (!before.decode && !now.decode && id_at(before.token) != id_at(now.token))
      likeness.push_back(now.likeness);
  }
  // Logits after different tokens have in common only the vocabulary's frequencies.
  constexpr double kAlike = 0.98;
  constexpr std::size_t kLeast = 3;
  if (likeness.size() < kLeast || median(likeness) < kAlike) return;
  findings.push_back(
      {.check = "same_logits",
       .text = fmt::format("The logits hardly depend on the tokens: between neighbouring positions of the "
                           "prompt they correlate by {:.4f} (median of {}).",
                           median(likeness), likeness.size()),
       .next = command(input, "--attention all --probe stage=embed_out,tokens=all,dims=0:3"),
       .numbers = {{"correlation", median(likeness)}}});
}

void prompt_loss(const TriageInput& input, Symptoms& findings) {
  std::vector<double> losses;
  for (const PositionLogits& p : input.run.logits) {
    if (p.loss) losses.push_back(*p.loss);
  }
  constexpr std::size_t kLeast = 4;
  if (!input.prompt_is_text || losses.size() < kLeast) return;
  double mean = 0;
  for (const double loss : losses) mean += loss / static_cast<double>(losses.size());
  const double chance = std::log(static_cast<double>(input.spec.vocab_size));
  if (mean <= chance) return;
  findings.push_back(
      {.check = "prompt_loss",
       .text = fmt::format("The model reads the prompt worse than chance: {:.2f} nats a token, where equal "
                           "logits would give {:.2f}.",
                           mean, chance),
       .next = fmt::format("doppler doctor {}", input.model),
       .numbers = {{"loss", mean}, {"chance", chance}, {"tokens", losses.size()}}});
}

// ---- decoding

void decode_unlike_prefill(const TriageInput& input, Symptoms& findings) {
  const auto bad = [&](const DecodeCheck& c) { return c.error > input.run.tolerance; };
  const auto& checks = input.run.decode;
  const auto first = std::find_if(checks.begin(), checks.end(), bad);
  if (first == checks.end()) return;
  std::string where;
  if (!first->first_stage.empty())
    where =
        fmt::format(" First at {}, by {:.1e} of its largest value.", first->first_stage, first->stage_error);
  findings.push_back(
      {.check = "decode_unlike_prefill",
       .text = fmt::format(
           "Decoding token {} gives other logits than the same tokens as a prompt: they differ by {:.1e} of "
           "the largest, {:.1e} is allowed; {} of {} decode steps differ.{}",
           first->token, first->error, input.run.tolerance, std::count_if(checks.begin(), checks.end(), bad),
           checks.size(), where),
       .next = command(input, "--trace kv,attn --max-tokens 2"),
       .numbers = {{"token", first->token},
                   {"error", std::isfinite(first->error) ? Json(first->error) : Json(nullptr)},
                   {"stage", first->first_stage}}});
}

void pad_wins(const TriageInput& input, Symptoms& findings) {
  const TokenId pad = input.spec.pad_id;
  const bool ends =
      std::find(input.spec.eos_ids.begin(), input.spec.eos_ids.end(), pad) != input.spec.eos_ids.end();
  if (pad < 0 || ends) return;
  const auto last = static_cast<std::int64_t>(input.run.prompt_ids.size()) - 1;
  std::size_t wins = 0, steps = 0;
  for (const PositionLogits& p : input.run.logits) {
    if (p.token < last || p.top.empty()) continue;
    ++steps;
    if (p.top[0].id == pad) ++wins;
  }
  if (wins == 0) return;
  // Once may happen, where a model was trained with texts that end in padding; half of the time may not.
  const bool sick = wins * 2 >= steps && wins > 1;
  findings.push_back(
      {.check = "pad_wins",
       .sick = sick,
       .text =
           fmt::format("The padding token {} is the likeliest in {} of {} steps. Sampling leaves it out{}.",
                       pad, wins, steps, sick ? ", but a model that works does not want it" : ""),
       .next = command(input, fmt::format("--logit-ids {}", pad)),
       .numbers = {{"pad_id", pad}, {"wins", wins}, {"steps", steps}}});
}

void repeats(const TriageInput& input, Symptoms& findings) {
  const TextQuality q = judge_text(input.run.ids, "", false);
  if (std::find(q.reasons.begin(), q.reasons.end(), "repetition") == q.reasons.end()) return;
  // Greedy decoding of a small model ends in circles by itself; then a prompt of the same tokens goes on
  // alike.
  Symptoms others;
  decode_unlike_prefill(input, others);
  const bool own =
      others.empty() && std::none_of(findings.begin(), findings.end(), [](const auto& f) { return f.sick; });
  findings.push_back(
      {.check = "repeats",
       .sick = !own,
       .text = fmt::format(
           "The text repeats itself: token {} makes {:.0f} % of {}{}.{}", q.most_frequent,
           100 * q.most_frequent_ratio, q.tokens,
           q.period > 0 ? fmt::format(", the end goes round in {}", q.period) : "",
           own ? " A prompt of the same tokens goes on alike, so it is the model's own choice and not the "
                 "cache's fault; greedy decoding of small models does so."
               : ""),
       .next = own ? fmt::format("doppler run {} --temperature 0.7", input.model)
                   : command(input, "--attention all"),
       .numbers = {{"token", q.most_frequent}, {"ratio", q.most_frequent_ratio}, {"period", q.period}}});
}

void gibberish(const TriageInput& input, Symptoms& findings) {
  if (!input.text) return;
  const TextQuality q = judge_text(input.run.ids, *input.text, true);
  std::vector<std::string> reasons;
  for (const std::string& reason : q.reasons) {
    // Repetition has its own row; an answer may end at once.
    if (reason != "repetition" && reason != "no_tokens" && reason != "empty_text") reasons.push_back(reason);
  }
  if (reasons.empty()) return;
  findings.push_back(
      {.check = "gibberish",
       .text = fmt::format("The text is no text: {} replacement and {} control characters, letters of {} "
                           "scripts, {:.0f} % of its tokens are different.",
                           q.replacement_chars, q.control_chars, q.scripts, 100 * q.unique_ratio),
       .next = fmt::format("doppler doctor {}", input.model),
       .numbers = {{"replacement_chars", q.replacement_chars},
                   {"control_chars", q.control_chars},
                   {"scripts", q.scripts},
                   {"unique_ratio", q.unique_ratio},
                   {"reasons", reasons}}});
}

}  // namespace doppler::diagnosis::symptoms
