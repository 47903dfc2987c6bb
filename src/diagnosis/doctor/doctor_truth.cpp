// The model against a recording: does it belong to the model, and does every op compute what was recorded?
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/filled_rows.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/doctor_ops.h"

namespace doppler::diagnosis::doctor {
namespace {

const Outcome kNoReference = Outcome::skip("no --reference is given");

// A stage that is recorded but not in the plan, or the reverse, and the cause that this shows.
struct OptionalStage {
  Stage stage;
  std::string_view lacking, extra;  // causes
};
constexpr auto kOptionalStages = std::to_array<OptionalStage>({
    {Stage::kQNorm, "qk_norm_missing", "qk_norm_misplaced"},
    {Stage::kKNorm, "qk_norm_missing", "qk_norm_misplaced"},
    {Stage::kPostAttnNorm, "post_norm_missing", "post_norm_extra"},
    {Stage::kPostFfnNorm, "post_norm_missing", "post_norm_extra"},
});

bool planned(const Plan& plan, Stage stage, int layer) {
  return std::ranges::any_of(plan.values,
                             [&](const Value& v) { return v.stage == stage && v.layer == layer; });
}

std::string key_of(Stage stage, int layer) {
  return stage_key(stage, layer);
}

void compare_stages(const Examination& e, const Plan& plan) {
  const Recording& recording = *e.options.reference;
  const int layers = static_cast<int>(plan.kv_layers.size());
  std::map<std::string_view, Finding> found;
  for (int i = 0; i < layers; ++i) {
    for (const OptionalStage& optional : kOptionalStages) {
      const bool recorded = recording.tensors.find(key_of(optional.stage, i)) != nullptr;
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
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    if (!name.starts_with("layers.")) continue;
    most = std::max(most, std::atoi(name.c_str() + 7) + 1);
  }
  return most;
}

// Heads of a recorded stage, 0 if it does not say.
std::uint64_t recorded_heads(const Recording& recording, Stage stage) {
  const TensorView* tensor = recording.tensors.find(key_of(stage, 0));
  return tensor != nullptr && tensor->shape.size() == 3 ? tensor->shape[1] : 0;
}

}  // namespace

Result<Outcome> check_recording(const Examination& e) {
  if (e.options.reference == nullptr) return kNoReference;
  const Recording& recording = *e.options.reference;
  const ModelSpec& spec = e.subject.spec;
  DOPPLER_ASSIGN(const Plan plan,
                 e.subject.make_plan(std::max<std::uint64_t>(recording.prompt_ids.size(), 1)));
  for (const std::int32_t id : recording.prompt_ids) {
    if (static_cast<std::uint32_t>(id) < spec.vocab_size) continue;
    e.find({.cause = "reference_mismatch",
            .stage = "embed_out",
            .explanation =
                fmt::format("The recording's prompt holds the token {}, but the vocabulary has {} tokens.",
                            id, spec.vocab_size)});
    return Outcome::found({});
  }
  const int layers = recorded_layers(recording), ours = static_cast<int>(plan.kv_layers.size());
  if (layers != ours && layers > 0) {
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
    const TensorView* tensor = recording.tensors.find(key_of(value.stage, value.layer));
    if (tensor == nullptr || value.stage == Stage::kNone || value.stage == Stage::kAttnScores) continue;
    const std::uint64_t width = *element_count(tensor->shape) / tensor->shape[0];
    if (width == value.width) continue;
    e.find(
        {.cause = "reference_mismatch",
         .stage = std::string(stage_name(value.stage)),
         .layer = value.layer,
         .explanation = fmt::format("The recording's {} is {} wide, but this model computes {} values there.",
                                    tensor->name, width, value.width)});
    return Outcome::found({});
  }
  compare_stages(e, plan);
  return Outcome::ok(fmt::format("{} prompt tokens, {} tensors, {} layers", recording.prompt_ids.size(),
                                 recording.tensors.tensors().size(), layers));
}

Result<Outcome> check_truth(const Examination& e) {
  if (e.options.reference == nullptr) return kNoReference;
  const Recording& recording = *e.options.reference;
  for (const Finding& finding : e.findings) {
    if (finding.cause == "reference_mismatch" || finding.cause == "head_grouping")
      return Outcome::skip("the recording does not fit");
  }
  DOPPLER_ASSIGN(const Plan plan, e.subject.make_plan(recording.prompt_ids.size()));
  const RecordedRows recorded(recording);
  FilledRows rows(recorded);
  DOPPLER_TRY(rows.fill(plan, e.subject.weights));
  OpExperiment experiment(plan, e.subject.weights, rows);
  OpJudge judge(e, experiment);
  judge.arithmetic = arithmetic_from(recording.tensors.metadata());
  const bool other_layers =
      std::ranges::any_of(e.findings, [](const Finding& f) { return f.cause == "layer_count"; });
  judge.skip = [&](std::size_t op) {  // with layers missing, the stages after the last one have other inputs
    return rows.filled(op) || (other_layers && plan.ops[op].kind == OpKind::kSelect);
  };
  DOPPLER_TRY(judge.measure());
  judge.tell_ops();
  DOPPLER_TRY(judge.explain_wrong());
  if (judge.judged() == 0) return Outcome::skip("the recording holds no op with its inputs");
  return Outcome::ok(judge.summary());
}

Result<Outcome> check_choices(const Examination& e) {
  if (e.options.reference == nullptr) return kNoReference;
  const Recording& recording = *e.options.reference;
  if (recording.greedy_ids.empty()) return Outcome::skip("the recording has no decode steps");
  if (!e.findings.empty()) return Outcome::skip("what is wrong already explains other choices");
  const bool finer = std::ranges::any_of(e.subject.weights.tensors(),
                                         [](const TensorView& t) { return is_quantised(t.dtype); });
  if (finer) return Outcome::skip("the weights are quantised: other choices may be right");
  return check_late_choices(e);
}

}  // namespace doppler::diagnosis::doctor
