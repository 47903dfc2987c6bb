#include "diagnosis/compare/compare_recordings.h"

#include <algorithm>

#include "base/text.h"
#include "diagnosis/compare/decode_comparer.h"
#include "diagnosis/compare/stage_comparer.h"

namespace doppler::diagnosis {
namespace {

// The stages of a recording with their widths, under the names by which a comparer asks for them. A composite
// is listed whole under its first part; its other parts have no width.
StageWidths recorded_stages(const Recording& recording) {
  StageWidths widths;
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    const std::vector<Stage> parts = parts_of(name);
    if (parts.empty() || parts[0] == Stage::kAttnScores || tensor.shape.size() < 2) continue;
    const std::size_t width = tensor.shape.size() == 3 ? tensor.shape[1] * tensor.shape[2] : tensor.cols();
    for (const Stage part : parts) widths[{part, layer_of(name)}] = part == parts[0] ? width : 0;
  }
  return widths;
}

Status check_prompts(const Recording& found, const Recording& expected) {
  const auto &a = found.prompt_ids, &b = expected.prompt_ids;
  if (a.size() != b.size()) {
    return fail(ErrorCode::kMismatch,
                "The recordings are of prompts of {} and {} tokens. Record the same prompt twice.", a.size(),
                b.size());
  }
  const auto at = std::mismatch(a.begin(), a.end(), b.begin());
  if (at.first == a.end()) return {};
  return fail(
      ErrorCode::kMismatch,
      "The recordings are of different prompts: at place {} one holds the id {}, the other {}. Record "
      "the same prompt twice.",
      at.first - a.begin(), *at.first, *at.second);
}

const TensorView* find_tensor(const Recording& recording, Stage stage, int layer) {
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    const std::vector<Stage> parts = parts_of(name);
    if (!parts.empty() && parts[0] == stage && layer_of(name) == layer) return &tensor;
  }
  return nullptr;
}

// Shows a recording's stages to a tap as its run has done.
Status replay(const Recording& found, const Plan* plan, StageComparer& comparer, const StageWidths& widths) {
  StepInput input;
  for (std::size_t i = 0; i < found.prompt_ids.size(); ++i) input.add(found.prompt_ids[i], i, 0, true);
  const RecordedRows rows(found);
  for (const auto& [key, width] : widths) {
    const auto [stage, layer] = key;
    if (width == 0 || !comparer.wants(stage, layer)) continue;
    std::vector<float> data;
    if (plan != nullptr) {
      if (!rows.locate(*plan, stage, layer)) continue;  // this run did not record it
      DOPPLER_ASSIGN(data, rows.read(*plan, stage, layer));
    } else {
      const TensorView* tensor = find_tensor(found, stage, layer);
      if (tensor == nullptr) continue;
      data.resize(found.prompt_ids.size() * width);
      DOPPLER_TRY(decode_f32(*tensor, 0, data));
    }
    comparer.on_stage({stage, layer, data, found.prompt_ids.size(), width, 1, &input});
  }
  return {};
}

// The tolerance between two runs: the coarser one's.
double tolerance_between(const Recording& found, const Recording& expected, bool softcapped) {
  double tolerance = 0;
  for (const Recording* recording : {&found, &expected}) {
    const Arithmetic a = arithmetic_from(recording->tensors.metadata());
    const Rounding rounding = a.eight_bit_products || a.kv == KvType::kQ8_0 ? Rounding::kEightBits
                              : a.half_products                             ? Rounding::kHalf
                              : a.kv == KvType::kF16                        ? Rounding::kHalfCache
                                                                            : Rounding::kFloat;
    const std::string origin = describe_origin(*recording);
    const bool oracle = origin.starts_with("transformers") || origin.ends_with("reference");
    tolerance = std::max(tolerance, stage_tolerance(oracle ? "reference" : "cpu", rounding, softcapped));
  }
  return tolerance;
}

Status compare_decoding(const Recording& found, const Recording& expected, double tolerance, double slack,
                        Comparison& result) {
  const TensorView* logits = found.tensors.find("decode_logits");
  if (logits == nullptr || found.greedy_ids.empty() || expected.greedy_ids.empty()) return {};
  DecodeComparer decode(expected, tolerance, slack);
  DOPPLER_TRY(decode.prepare(logits->cols()));
  decode.widen(result.stages);
  std::vector<float> row(logits->cols());
  if (const TensorView* prompt = find_tensor(found, Stage::kLogitsFinal, -1);
      prompt != nullptr && prompt->cols() == row.size()) {
    DOPPLER_TRY(decode_f32(*prompt, (prompt->rows() - 1) * row.size(), row));
    decode.prompt_answer(row);
  }
  for (std::size_t step = 0; step < std::min<std::size_t>(decode.steps(), logits->rows()); ++step) {
    if (found.greedy_ids[step] != expected.greedy_ids[step])
      break;  // from here on they were fed other tokens
    DOPPLER_TRY(decode_f32(*logits, step * row.size(), row));
    DOPPLER_TRY(decode.step(step, row));
  }
  decode.finish(result);
  return {};
}

}  // namespace

std::string describe_origin(const Recording& recording) {
  const auto& metadata = recording.tensors.metadata();
  const auto producer = metadata.find("producer");
  return producer == metadata.end() ? "unknown" : printable(producer->second);
}

Result<Comparison> compare_recordings(const Recording& found, const Recording& expected,
                                      const ComparedModel* model, const CompareOptions& options) {
  DOPPLER_TRY(check_prompts(found, expected));
  std::optional<Plan> plan;
  bool softcapped = false;
  if (model != nullptr) {
    DOPPLER_ASSIGN(plan, build_plan(model->spec, model->weights, model->context));
    softcapped = !model->spec.layers.empty() && model->spec.layers.front().attention.softcap > 0;
  }
  const StageWidths widths = plan ? planned_stages(*plan, model->spec) : recorded_stages(found);
  const double tolerance =
      options.tolerance > 0 ? options.tolerance : tolerance_between(found, expected, softcapped);
  StageComparer comparer(widths, expected, tolerance);
  DOPPLER_TRY(comparer.prepare());
  DOPPLER_TRY(replay(found, plan ? &*plan : nullptr, comparer, widths));
  Comparison result;
  result.found = describe_origin(found), result.expected = describe_origin(expected);
  result.elsewhere = comparer.take_elsewhere();
  result.stages = comparer.take_shown_stages(plan.has_value(), result.not_shared);
  if (result.stages.empty()) {
    return fail(ErrorCode::kMismatch,
                "The recordings share no stage: nothing can be compared. Record both with all their stages.");
  }
  if (plan && options.local && options.tolerance == 0) {
    const RecordedRows found_rows(found), expected_rows(expected);
    DOPPLER_TRY(judge_ops(result.stages, *plan, model->weights,
                          {found_rows, arithmetic_of(found, model->weights)},
                          {expected_rows, arithmetic_of(expected, model->weights)}, model->threads));
  }
  result.prompt_logits = comparer.prompt_logits();
  const bool coarse = tolerance > stage_tolerance("cpu", Rounding::kFloat, true);
  DOPPLER_TRY(compare_decoding(found, expected, tolerance, coarse ? tolerance : 0, result));
  return result;
}

}  // namespace doppler::diagnosis
