// Does the recording belong to the model? What is not of this model is said before anything is blamed.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "base/text.h"
#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/recording_form.h"
#include "diagnosis/compare/stage_rows.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/doctor_recording.h"

namespace doppler::diagnosis::doctor {
namespace {

// A stage that is recorded but not in the plan, and the cause that this shows.
struct OptionalStage {
  Stage stage;
  std::string_view lacking;
};
constexpr auto kOptionalStages = std::to_array<OptionalStage>({
    {Stage::kQNorm, "qk_norm_missing"},
    {Stage::kKNorm, "qk_norm_missing"},
    {Stage::kPostAttnNorm, "post_norm_missing"},
    {Stage::kPostFfnNorm, "post_norm_missing"},
});

bool planned(const Plan& plan, Stage stage, int layer) {
  return std::ranges::any_of(plan.values,
                             [&](const Value& v) { return v.stage == stage && v.layer == layer; });
}

void compare_stages(const Examination& e, const Plan& plan) {
  const Recording& recording = *e.options.reference;
  const int layers = static_cast<int>(plan.kv_layers.size());
  std::map<std::string_view, Finding> found;
  for (int i = 0; i < layers; ++i) {
    for (const OptionalStage& optional : kOptionalStages) {
      const bool recorded = recording.tensors.find(stage_key(optional.stage, i)) != nullptr;
      if (!recorded || planned(plan, optional.stage, i)) continue;
      Finding& finding = found[optional.lacking];
      if (finding.stage.empty()) {
        finding = {.cause = std::string(optional.lacking),
                   .stage = std::string(stage_name(optional.stage)),
                   .layer = i,
                   .places = 0};
        finding.explanation =
            fmt::format("The recording has {} in layer {}, but this description does not compute it.",
                        stage_name(optional.stage), i);
        finding.confidence = 0.97;
      }
      ++finding.places;
    }
  }
  for (auto& [cause, finding] : found) e.find(std::move(finding));
}

// Layers that are recorded, at most.
int recorded_layers(const Recording& recording) {
  int most = 0;
  for (const auto& [name, tensor] : recording.tensors.tensors()) most = std::max(most, layer_of(name) + 1);
  return most;
}

// Heads of a recorded stage, 0 if it does not say.
std::uint64_t recorded_heads(const Recording& recording, Stage stage) {
  const TensorView* tensor = recording.tensors.find(stage_key(stage, 0));
  return tensor != nullptr && tensor->shape.size() == 3 ? tensor->shape[1] : 0;
}

std::vector<float> rows_of(const Recording& recording, Stage stage, int layer) {
  const TensorView* tensor = recording.tensors.find(stage_key(stage, layer));
  std::vector<float> rows(tensor == nullptr ? 0 : element_count(tensor->shape).value_or(0));
  if (rows.empty() || !decode_f32(*tensor, 0, rows)) return {};
  return rows;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double products = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    products += static_cast<double>(a[i]) * b[i];
    first += static_cast<double>(a[i]) * a[i], second += static_cast<double>(b[i]) * b[i];
  }
  return first > 0 && second > 0 ? products / std::sqrt(first * second) : 0;
}

// Rows that are alike but for their length: of numbers that were rounded, or multiplied by one factor.
constexpr double kAlike = 0.9999;

// Whether the last recorded layer's output is what the final norm read: then the model has no layers after
// it. A recording that merely lacks layers does not say how many there are.
bool ends_with(const Examination& e, int layers) {
  const Recording& recording = *e.options.reference;
  std::vector<float> last = rows_of(recording, Stage::kLayerOut, layers - 1);
  if (last.empty()) return false;
  const std::size_t width = last.size() / recording.prompt_ids.size();
  std::vector<float> end = rows_of(recording, Stage::kPreFinalNorm, -1);
  if (end.empty()) {  // the norm turns rows only by its weight
    end = rows_of(recording, Stage::kFinalNorm, -1);
    const WeightId id = e.subject.weights.find(WeightRole::kFinalNorm);
    std::vector<float> weight(width);
    if (id == kNoWeight || element_count(e.subject.weights[id].shape) != width ||
        !decode_f32(e.subject.weights[id], 0, weight))
      return false;
    for (std::size_t i = 0; i < last.size(); ++i)
      last[i] *= static_cast<float>(weight[i % width] + e.subject.spec.norm.weight_offset);
  }
  if (end.size() != last.size()) return false;
  for (std::size_t begin = 0; begin < last.size(); begin += width) {
    if (cosine(std::span(last).subspan(begin, width), std::span(end).subspan(begin, width)) < kAlike)
      return false;
  }
  return true;
}

// What says that the recording is of a model of another size, as "64 wide (this model: 96)".
std::vector<std::string> other_sizes(const Examination& e, const Plan& plan, int layers) {
  const Recording& recording = *e.options.reference;
  std::vector<std::string> sizes;
  const auto note = [&](std::string_view what, std::uint64_t theirs, std::uint64_t ours) {
    if (theirs != 0 && theirs != ours)
      sizes.push_back(fmt::format("{} {} (this model: {})", theirs, what, ours));
  };
  const auto width = [&](std::initializer_list<Stage> stages) -> std::uint64_t {
    for (const auto& [name, tensor] : recording.tensors.tensors()) {
      for (const Stage stage : parts_of(name)) {
        if (std::ranges::find(stages, stage) != stages.end() && parts_of(name).size() == 1)
          return *element_count(tensor.shape) / std::max<std::uint64_t>(tensor.shape[0], 1);
      }
    }
    return 0;
  };
  note("values in a row of the stream",
       width({Stage::kEmbedOut, Stage::kAttnInput, Stage::kLayerOut, Stage::kPostAttn, Stage::kFinalNorm}),
       e.subject.spec.hidden);
  note("logits", width({Stage::kLogits, Stage::kLogitsFinal}), plan.vocab_size);
  note("values between gate and down", width({Stage::kFfnAct, Stage::kFfnGate}),
       stage_width(plan, Stage::kFfnAct, 0));
  const AttentionSpec& attention = e.subject.spec.layers[0].attention;
  // One item: whoever gives a wrong number of heads mostly has both wrong.
  const std::uint64_t queries = recorded_heads(recording, Stage::kQRope);
  if (queries != 0 && queries != attention.heads)
    note("heads of queries", queries, attention.heads);
  else
    note("heads of keys", recorded_heads(recording, Stage::kKRope), attention.kv_heads);
  const int ours = static_cast<int>(plan.kv_layers.size());
  if (layers > ours || (layers > 0 && layers < ours && ends_with(e, layers)))
    note("layers", static_cast<std::uint64_t>(layers), static_cast<std::uint64_t>(ours));
  return sizes;
}

// Rows of embed_out that are another token's: the place of the prompt that they belong to, 0 if they are
// right.
std::optional<std::ptrdiff_t> shift_of_ids(const Examination& e) {
  const Recording& recording = *e.options.reference;
  std::vector<float> rows = rows_of(recording, Stage::kEmbedOut, -1);
  if (rows.empty()) rows = rows_of(recording, Stage::kAttnInput, 0);
  const WeightId id = e.subject.weights.find(WeightRole::kTokenEmbedding);
  const auto& ids = recording.prompt_ids;
  if (rows.empty() || id == kNoWeight || ids.size() < 4) return std::nullopt;
  const TensorView& table = e.subject.weights[id];
  const std::size_t width = rows.size() / ids.size();
  if (table.cols() != width) return std::nullopt;
  std::vector<float> row(width);
  const auto share = [&](std::ptrdiff_t shift) {
    std::size_t alike = 0, all = 0;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const auto from = static_cast<std::ptrdiff_t>(t) + shift;
      if (from < 0 || from >= static_cast<std::ptrdiff_t>(ids.size())) continue;
      const auto token = static_cast<std::uint64_t>(ids[static_cast<std::size_t>(from)]);
      if (token >= table.rows() || !decode_f32(table, token * width, row)) continue;
      ++all;
      alike += cosine(row, std::span(rows).subspan(t * width, width)) > kAlike;
    }
    return all == 0 ? 0.0 : static_cast<double>(alike) / static_cast<double>(all);
  };
  constexpr double kMost = 0.8, kFew = 0.5;
  if (share(0) > kFew) return 0;
  for (const std::ptrdiff_t shift : {-1, 1, -2, 2, -3, 3}) {
    if (share(shift) >= kMost) return shift;
  }
  return std::nullopt;
}

// Whether the table, as the head that it is, too, gives the recorded logits of the recorded final norm: then
// it is right, whatever ids the recording gives to its rows. Some hundred tokens of the vocabulary tell.
bool table_gives_logits(const Examination& e) {
  const Recording& recording = *e.options.reference;
  const WeightId id = e.subject.weights.find(WeightRole::kTokenEmbedding);
  const std::vector<float> rows = rows_of(recording, Stage::kFinalNorm, -1),
                           logits = rows_of(recording, Stage::kLogits, -1);
  if (!e.subject.spec.tied_head || id == kNoWeight || rows.empty() || logits.empty()) return false;
  const TensorView& table = e.subject.weights[id];
  const std::size_t width = table.cols(), vocab = logits.size() / recording.prompt_ids.size();
  if (rows.size() != width * recording.prompt_ids.size() || vocab > table.rows()) return false;
  constexpr std::size_t kTried = 256;
  const std::size_t step = std::max<std::size_t>(1, vocab / kTried);
  std::vector<float> row(width), said, computed;
  for (std::size_t token = 0; token < vocab; token += step) {
    if (!decode_f32(table, token * width, row)) return false;
    said.push_back(logits[logits.size() - vocab + token]);
    computed.push_back(static_cast<float>(
        std::inner_product(row.begin(), row.end(), rows.end() - static_cast<std::ptrdiff_t>(width), 0.0)));
  }
  return cosine(said, computed) > kAlike;
}

// A token of the prompt whose recorded row is the embedding of another one, which the second is.
struct OtherToken {
  std::size_t place = 0;
  std::uint64_t token = 0;
};
std::optional<OtherToken> find_other_token(const Examination& e) {
  const Recording& recording = *e.options.reference;
  const std::vector<float> rows = rows_of(recording, Stage::kEmbedOut, -1);
  const WeightId id = e.subject.weights.find(WeightRole::kTokenEmbedding);
  if (rows.empty() || id == kNoWeight) return std::nullopt;
  const TensorView& table = e.subject.weights[id];
  const std::size_t width = table.cols();
  if (rows.size() != width * recording.prompt_ids.size()) return std::nullopt;
  std::vector<float> row(width);
  const auto is = [&](std::size_t place, std::uint64_t token) {
    return token < table.rows() && decode_f32(table, token * width, row) &&
           cosine(row, std::span(rows).subspan(place * width, width)) > kAlike;
  };
  for (std::size_t place = 0; place < recording.prompt_ids.size(); ++place) {
    if (is(place, static_cast<std::uint64_t>(recording.prompt_ids[place]))) continue;
    for (std::uint64_t token = 0; token < table.rows(); ++token) {
      if (is(place, token)) return OtherToken{place, token};
    }
    return std::nullopt;
  }
  return std::nullopt;
}

// The first decoded token is chosen by the prompt's last logits; if it cannot be, the prompt was cut.
bool was_cut(const Recording& recording) {
  const std::vector<float> logits = rows_of(recording, Stage::kLogitsFinal, -1);
  if (logits.empty() || recording.greedy_ids.empty()) return false;
  const std::size_t vocab = logits.size() / recording.prompt_ids.size();
  const auto last = std::span(logits).last(vocab);
  const auto chosen = static_cast<std::size_t>(recording.greedy_ids[0]);
  const float best = last[static_cast<std::size_t>(std::max(argmax(last), 0))];
  constexpr float kTie = 1e-2f;  // of logits that were rounded
  return chosen < vocab && best - last[chosen] > kTie * std::max(1.0f, std::abs(best));
}

void mismatch(const Examination& e, std::string explanation, std::string repair = {}) {
  e.find({.cause = "reference_mismatch",
          .stage = "embed_out",
          .explanation = std::move(explanation),
          .repair = std::move(repair)});
}

}  // namespace

std::string whose_recording(const Recording& recording, const Weights& weights) {
  const auto& metadata = recording.tensors.metadata();
  std::vector<std::string> parts;
  if (const auto found = metadata.find("model"); found != metadata.end())
    parts.push_back("of " + printable(found->second));
  if (const auto found = metadata.find("weights");
      found != metadata.end() && found->second != describe_weights(weights))
    parts.push_back(fmt::format("with the weights {}", printable(found->second)));
  return parts.empty() ? std::string() : fmt::format(" Its header says that it is {}.", join(parts, " "));
}

Result<Outcome> check_recording(const Examination& e) {
  if (e.options.reference == nullptr) return Outcome::skip("no --reference is given");
  const Recording& recording = *e.options.reference;
  const ModelSpec& spec = e.subject.spec;
  DOPPLER_ASSIGN(const Plan plan,
                 e.subject.make_plan(std::max<std::uint64_t>(recording.prompt_ids.size(), 1)));
  for (const std::int32_t id : recording.prompt_ids) {
    if (static_cast<std::uint32_t>(id) < spec.vocab_size) continue;
    mismatch(e, fmt::format("The recording's prompt holds the token {}, but the vocabulary has {} tokens.{}",
                            id, spec.vocab_size, whose_recording(recording, e.subject.weights)));
    return Outcome::found({});
  }
  const int layers = recorded_layers(recording), ours = static_cast<int>(plan.kv_layers.size());
  const std::vector<std::string> sizes = other_sizes(e, plan, layers);
  if (sizes.size() > 1) {
    mismatch(e, fmt::format("The recording is of a model of another size. It has {}.{}", join(sizes, ", "),
                            whose_recording(recording, e.subject.weights)));
    return Outcome::found({});
  }
  if (layers > ours || (layers > 0 && layers < ours && ends_with(e, layers))) {
    e.find(
        {.cause = "layer_count",
         .stage = "attn_input",
         .layer = std::min(layers, ours),
         .explanation = fmt::format("The recording has {} layers, but this description {}.", layers, ours)});
  }
  for (const Stage stage : {Stage::kQRope, Stage::kKRope}) {
    const std::uint64_t heads = recorded_heads(recording, stage);
    const AttentionSpec& a = spec.layers[0].attention;
    const std::uint64_t planned_heads = stage == Stage::kQRope ? a.heads : a.kv_heads;
    if (heads == 0 || heads == planned_heads) continue;
    e.find({.cause = "head_grouping",
            .stage = std::string(stage_name(stage)),
            .layer = 0,
            .explanation = fmt::format("The recording has {} heads in {}, but this description {}.", heads,
                                       stage_name(stage), planned_heads),
            .repair = "Set num_attention_heads, num_key_value_heads and head_dim."});
    return Outcome::found({});
  }
  for (const Value& value : plan.values) {
    const TensorView* tensor = recording.tensors.find(stage_key(value.stage, value.layer));
    if (tensor == nullptr || value.stage == Stage::kNone || value.stage == Stage::kAttnScores) continue;
    const std::uint64_t width = *element_count(tensor->shape) / tensor->shape[0];
    if (width == value.width) continue;
    if (value.stage == Stage::kRouterIds || value.stage == Stage::kRouterWeights) {
      e.find({.cause = "router_choice",
              .stage = std::string(stage_name(Stage::kRouterIds)),
              .layer = value.layer,
              .explanation =
                  fmt::format("The recording's router chooses {} experts for a token, this description {}.",
                              width, value.width),
              .repair = fmt::format("Set num_experts_per_tok to {} (it is {}).", width, value.width),
              .confidence = 0.95,
              .fixes = {{.target = "ffn.router.top_k", .value = std::to_string(width)}}});
      return Outcome::found({});
    }
    e.find(
        {.cause = "reference_mismatch",
         .stage = std::string(stage_name(value.stage)),
         .layer = value.layer,
         .explanation = fmt::format("The recording's {} is {} wide, but this model computes {} values there.",
                                    tensor->name, width, value.width)});
    return Outcome::found({});
  }
  if (const auto shift = shift_of_ids(e); shift && *shift != 0) {
    mismatch(
        e,
        fmt::format("The recording's prompt_ids are not those of its rows: each row of embed_out is the "
                    "embedding of the id {} place{} {}, so that its ids were shifted.",
                    std::abs(*shift), std::abs(*shift) == 1 ? "" : "s", *shift < 0 ? "before" : "after"),
        "Record the prompt again, with the ids that the model was given (one BOS more or less shifts all).");
    return Outcome::found({});
  }
  if (const auto other = table_gives_logits(e) ? find_other_token(e) : std::nullopt) {
    mismatch(e,
             fmt::format("The recording's prompt_ids are not those of its rows: at place {} they say {}, and "
                         "the row of embed_out is the embedding of {}; the table itself is right, because as "
                         "the head it gives the recorded logits.",
                         other->place, recording.prompt_ids[other->place], other->token),
             "Record the prompt again, with the ids that the model was given.");
    return Outcome::found({});
  }
  if (was_cut(recording)) {
    mismatch(
        e,
        fmt::format("The recording was cut: its first decoded token, {}, is not the likeliest after its last "
                    "prompt token.",
                    recording.greedy_ids[0]),
        "Record the whole prompt, or leave greedy_ids and decode_logits out.");
    return Outcome::found({});
  }
  compare_stages(e, plan);
  std::string text = fmt::format("{} prompt tokens, {} tensors, {} layers", recording.prompt_ids.size(),
                                 recording.tensors.tensors().size(), layers);
  for (const std::string& note : recording.notes) text += "; " + note;
  if (const StoredType type = stored_type(recording); type.share > 0)
    text += fmt::format("; its values were rounded to {}, and are judged as such", type.name);
  return Outcome::ok(std::move(text));
}

}  // namespace doppler::diagnosis::doctor
