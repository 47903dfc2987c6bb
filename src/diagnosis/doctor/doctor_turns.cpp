// What tokenizer, template and defaults say of each other, where nobody recorded what they should give.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/json.h"
#include "base/text.h"
#include "diagnosis/doctor/doctor_checks.h"

namespace doppler::diagnosis::doctor {
namespace {

const Outcome kTextsCompared = Outcome::skip("the texts of the truth tell more");

// ---- ids, merges and scores

// 1 where the values rise throughout, 0 where they stand in any order, -1 where they fall: Spearman's.
double rises(std::span<const double> values) {
  const std::size_t n = values.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  double sum = 0;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const double d = static_cast<double>(rank) - static_cast<double>(order[rank]);
    sum += d * d;
  }
  const auto count = static_cast<double>(n);
  return 1 - 6 * sum / (count * (count * count - 1));
}

// Fewer say nothing of an order.
constexpr std::size_t kFewest = 50;
// Published tokenizers have 0.9 and more; what was shuffled has less than a tenth.
constexpr double kInOrder = 0.5;

// The ids of what merges make, in the order of the merges, each once.
std::vector<double> made_ids(const tokenizer::TokenizerSpec& spec) {
  std::vector<bool> seen(spec.vocabulary.size(), false);
  std::vector<double> ids;
  for (const tokenizer::Merge& merge : spec.merges) {
    if (merge.result < 0 || static_cast<std::size_t>(merge.result) >= seen.size()) continue;
    if (seen[static_cast<std::size_t>(merge.result)]) continue;
    seen[static_cast<std::size_t>(merge.result)] = true;
    ids.push_back(merge.result);
  }
  return ids;
}

// The share of merges' parts that only later merges make.
double share_made_later(const tokenizer::TokenizerSpec& spec) {
  std::vector<std::size_t> first(spec.vocabulary.size(), SIZE_MAX);
  const auto known = [&](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < first.size(); };
  for (std::size_t i = spec.merges.size(); i-- > 0;) {
    if (known(spec.merges[i].result)) first[static_cast<std::size_t>(spec.merges[i].result)] = i;
  }
  std::size_t parts = 0, late = 0;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    for (const TokenId part : {spec.merges[i].left, spec.merges[i].right}) {
      if (!known(part) || first[static_cast<std::size_t>(part)] == SIZE_MAX) continue;
      ++parts, late += first[static_cast<std::size_t>(part)] > i;
    }
  }
  return parts == 0 ? 0 : static_cast<double>(late) / static_cast<double>(parts);
}

bool found_by(const Examination& e, std::string_view check) {
  return std::ranges::any_of(e.findings, [&](const Finding& f) { return f.check == check; });
}

// Scores of pieces by id, which fall from the first to the last.
std::vector<double> falling_scores(const tokenizer::TokenizerSpec& spec) {
  std::vector<double> scores;
  for (std::size_t id = 0; id < std::min(spec.scores.size(), spec.types.size()); ++id) {
    if (spec.types[id] == tokenizer::PieceType::kNormal) scores.push_back(-spec.scores[id]);
  }
  return scores;
}

// ---- turns

struct Turns {
  std::string whole;              // question, answer, question
  std::string begins, continued;  // what stands between question and answer; between answer and next question
  std::string with, without;      // what follows one question, with and without a generation prompt
};

constexpr std::string_view kQuestion = "Name a color.", kAnswer = "Purple is one.", kNext = "And another?";

// Nothing where the template refuses such conversations, or drops what was said: other checks say so.
std::optional<Turns> turns_of(const Subject& subject) {
  if (!subject.text.render) return std::nullopt;
  const auto message = [](const char* role, std::string_view content) {
    return chat::OrderedJson{{"role", role}, {"content", content}};
  };
  const auto render = [&](chat::OrderedJson messages, bool prompt) -> std::string {
    const chat::OrderedJson conversation = {{"messages", std::move(messages)},
                                            {"add_generation_prompt", prompt}};
    const auto text = subject.text.render(conversation, {});
    return text ? *text : std::string();
  };
  const auto question = message("user", kQuestion);
  Turns turns;
  turns.whole = render(
      chat::OrderedJson::array({question, message("assistant", kAnswer), message("user", kNext)}), false);
  const auto after = [](const std::string& text, std::string_view what) {
    const auto at = text.find(what);
    return at == std::string::npos ? std::string() : text.substr(at + what.size());
  };
  const auto answer = turns.whole.find(kAnswer), next = turns.whole.find(kNext);
  const auto asked = turns.whole.find(kQuestion);
  if (asked == std::string::npos || answer == std::string::npos || next == std::string::npos ||
      answer > next || asked > answer)
    return std::nullopt;
  turns.begins = turns.whole.substr(asked + kQuestion.size(), answer - asked - kQuestion.size());
  turns.continued = turns.whole.substr(answer + kAnswer.size(), next - answer - kAnswer.size());
  turns.with = after(render(chat::OrderedJson::array({question}), true), kQuestion);
  turns.without = after(render(chat::OrderedJson::array({question}), false), kQuestion);
  return turns;
}

// What `text` has beyond the beginning that it shares with `other`, without white space around.
std::string beyond(std::string_view text, std::string_view other) {
  const auto [mine, theirs] = std::ranges::mismatch(text, other);
  return std::string(trimmed(std::string_view(mine, text.end())));
}
std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}
std::string_view last_line(std::string_view text) {
  text = trimmed(text);
  const auto at = text.rfind('\n');
  return at == std::string_view::npos ? text : text.substr(at + 1);
}

void judge_generation_prompt(const Examination& e, const Turns& turns) {
  const auto wrong = [&](std::string text) {
    e.find({.cause = "generation_prompt",
            .stage = "embed_out",
            .explanation = std::move(text),
            .confidence = 0.9});
  };
  const std::string header = beyond(turns.begins, turns.without), prompt = beyond(turns.with, turns.without);
  if (header.empty()) return;  // answers follow questions without a word
  if (turns.with == turns.without) {
    wrong(fmt::format(
        "A generation prompt changes nothing, though answers begin with {}: the model goes on with the "
        "question.",
        printable(header)));
    return;
  }
  // Models that think add to the line, or leave it out.
  const std::string_view a = first_line(header), b = first_line(prompt);
  if (!prompt.empty() && !a.starts_with(b) && !b.starts_with(a))
    wrong(fmt::format("The generation prompt is {}, but answers begin with {}.", printable(prompt),
                      printable(header)));
}

// Of the tokens that published templates write around turns.
constexpr auto kTurnTokens = std::to_array<std::string_view>(
    {"<start_of_turn>", "<end_of_turn>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
     "<|end_header_id|>", "<|eot_id|>", "<|user|>", "<|assistant|>", "<|end|>", "<|START_OF_TURN_TOKEN|>",
     "<|END_OF_TURN_TOKEN|>"});

// A template of another model writes markers that are no tokens here, and none of this model's own.
void judge_markers(const Examination& e, const Turns& turns) {
  const tokenizer::Tokenizer& tokenizer = *e.subject.tokenizer;
  std::string own;
  for (const std::string_view name : kTurnTokens) {
    if (!tokenizer.find(name)) continue;
    if (turns.whole.find(name) != std::string::npos) return;
    if (own.empty()) own = name;
  }
  if (own.empty()) return;  // chat in plain words, as of base models
  for (const std::string_view name : kTurnTokens) {
    if (turns.whole.find(name) == std::string::npos) continue;
    e.find({.cause = "chat_template",
            .stage = "embed_out",
            .explanation =
                fmt::format("The chat template writes {}, which is no token of this model, and never {}, "
                            "which is one: it is another model's.",
                            name, own),
            .confidence = 0.9});
    return;
  }
}

// The special token that a text begins with.
const tokenizer::AddedToken* leading_token(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  text = trimmed(text);
  const tokenizer::AddedToken* found = nullptr;
  for (const tokenizer::AddedToken& token : tokenizer.spec().added) {
    if (token.special && !token.content.empty() && text.starts_with(token.content) &&
        (found == nullptr || token.content.size() > found->content.size()))
      found = &token;
  }
  return found;
}

void judge_end_of_turn(const Examination& e, const Turns& turns) {
  // Answers of several channels end otherwise in a history than when they are made (gpt-oss).
  if (turns.whole.find("<|channel|>") != std::string::npos) return;
  const tokenizer::AddedToken* end = leading_token(*e.subject.tokenizer, turns.continued);
  if (end == nullptr || std::ranges::find(e.subject.spec.eos_ids, end->id) != e.subject.spec.eos_ids.end())
    return;
  if (end->id == e.subject.spec.bos_id) return;  // the next conversation, not an end
  if (turns.whole.substr(0, turns.whole.find(kQuestion)).find(end->content) != std::string::npos) {
    e.find({.cause = "end_of_turn",
            .stage = "embed_out",
            .explanation =
                fmt::format("After an answer the chat template goes on with {}, which begins a turn: nothing "
                            "ends the answer.",
                            printable(end->content)),
            .confidence = 0.8});
    return;
  }
  e.find({.cause = "stop_tokens",
          .explanation = fmt::format(
              "The chat template ends an answer with {} ({}), but generation does not stop there: "
              "answers run on.",
              printable(end->content), end->id),
          .repair = e.subject.text.gguf
                        ? fmt::format("Set tokenizer.ggml.eot_token_id to {}.", end->id)
                        : fmt::format("Add {} to eos_token_id in generation_config.json.", end->id),
          .confidence = 0.9});
}

void judge_roles(const Examination& e, const Turns& turns) {
  const std::string_view model = last_line(turns.begins), user = last_line(turns.continued);
  if (model.empty() || model != user) return;
  e.find({.cause = "chat_role",
          .stage = "embed_out",
          .explanation =
              fmt::format("The chat template begins questions and answers alike, with {}.", printable(model)),
          .confidence = 0.9});
}

// ---- padding and defaults

// A piece that is part of texts.
bool is_word(const tokenizer::Tokenizer& tokenizer, TokenId id) {
  if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size()) return false;
  const auto piece = tokenizer.piece(id);
  const tokenizer::TokenizerSpec& spec = tokenizer.spec();
  if (!piece || spec.added.empty() || tokenizer.is_special(id) || spec.unknown == id) return false;
  const bool added =
      std::ranges::any_of(spec.added, [id](const tokenizer::AddedToken& token) { return token.id == id; });
  return !added && piece->find_first_of("<[") == std::string::npos;
}

struct Range {
  const char* key;
  double least, most;  // beyond these a model's text is wrecked: words by chance, or no word twice
};
constexpr auto kRanges = std::to_array<Range>({
    {"temperature", 0, 2},
    {"top_p", 0.05, 1},
    {"min_p", 0, 0.9},
    {"repetition_penalty", 0.9, 1.5},
});

}  // namespace

Result<Outcome> check_token_order(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return Outcome::skip("the model has no tokenizer");
  if (texts_are_known(e)) return kTextsCompared;
  if (found_by(e, "merges")) return Outcome::skip("what is wrong with the merges explains it");
  const tokenizer::TokenizerSpec& spec = e.subject.tokenizer->spec();
  const bool by_merges = spec.kind == tokenizer::ModelKind::kBpe;
  const std::vector<double> values = by_merges ? made_ids(spec) : falling_scores(spec);
  if (values.size() < kFewest) return Outcome::skip("too few pieces to tell");
  const double order = rises(values);
  std::string text = by_merges
                         ? fmt::format("ids follow the merges that make them (correlation {:.2f})", order)
                         : fmt::format("scores fall with the ids (correlation {:.2f})", order);
  if (order >= kInOrder) return Outcome::ok(std::move(text));
  if (!by_merges) {
    e.find({.cause = "piece_scores",
            .stage = "embed_out",
            .explanation =
                fmt::format("The scores of the {} pieces do not fall with their ids (correlation {:.2f}): "
                            "either of them is shuffled.",
                            values.size(), order),
            .confidence = 0.7});
    return Outcome::found({});
  }
  // Who shuffles merges makes pieces before their parts; who shuffles ids does not.
  const double late = share_made_later(spec);
  const bool merges = late > 0.1;
  e.find({.cause = merges ? "merges_order" : "token_ids",
          .stage = "embed_out",
          .explanation =
              merges ? fmt::format("The merges are out of order: {:.0f} % of the pieces that they join are "
                                   "made by later ones.",
                                   100 * late)
                     : fmt::format("The ids do not follow the order of the {} merges that make them "
                                   "(correlation {:.2f}): they are shuffled.",
                                   values.size(), order),
          .confidence = 0.9});
  return Outcome::found({});
}

Result<Outcome> check_turns(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return Outcome::skip("the model has no tokenizer");
  if (texts_are_known(e)) return kTextsCompared;
  const auto turns = turns_of(e.subject);
  if (!turns) return Outcome::skip("there is no template that takes two turns");
  judge_markers(e, *turns);
  judge_generation_prompt(e, *turns);
  judge_roles(e, *turns);
  judge_end_of_turn(e, *turns);
  return Outcome::ok(fmt::format("an answer begins with {} and ends with {}",
                                 printable(trimmed(turns->begins)),
                                 printable(first_line(trimmed(turns->continued)))));
}

Result<Outcome> check_defaults(const Examination& e) {
  if (e.subject.tokenizer != nullptr && is_word(*e.subject.tokenizer, e.subject.spec.pad_id)) {
    DOPPLER_ASSIGN(const std::string piece, e.subject.tokenizer->piece(e.subject.spec.pad_id));
    e.find({.cause = "pad_token",
            .explanation = fmt::format("PAD is {} ({}), a part of texts, which the model can then never say.",
                                       printable(piece), e.subject.spec.pad_id),
            .repair = "Set pad_token_id to the padding token, or leave it out.",
            .confidence = 0.8});
  }
  std::vector<std::string> said;
  for (const Range& range : kRanges) {
    const auto found = e.subject.text.sampling.find(range.key);
    if (found == e.subject.text.sampling.end()) continue;
    said.push_back(fmt::format("{} {}", range.key, found->second));
    if (found->second >= range.least && found->second <= range.most) continue;
    e.find({.cause = "generation_defaults",
            .explanation = fmt::format(
                "The model's own default for {} is {}, beyond {} to {}, within which text stays a text.",
                range.key, found->second, range.least, range.most),
            .repair = fmt::format("Correct {} in generation_config.json.", range.key),
            .confidence = 0.8});
  }
  return Outcome::ok(said.empty() ? "the model brings none" : join(said, ", "));
}

}  // namespace doppler::diagnosis::doctor
