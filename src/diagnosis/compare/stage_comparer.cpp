#include "diagnosis/compare/stage_comparer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/row_tokens.h"
#include "base/text.h"
#include "diagnosis/compare/compare_states.h"
#include "diagnosis/compare/stage_rows.h"
#include "model/weight_table.h"
#include "plan/residual.h"

namespace doppler::diagnosis {
namespace {

Status unknown(const TensorView& tensor) {
  std::vector<std::string> names;
  for (const StageInfo& info : all_stages()) names.emplace_back(info.name);
  return fail(ErrorCode::kMismatch, "The recording holds {}, which is no stage. Stages are {}.",
              printable(tensor.name), join(names, ", "));
}

double largest_magnitude(const TensorView& tensor) {
  std::vector<float> all(*element_count(tensor.shape));
  double largest = 0;
  if (decode_f32(tensor, 0, all)) {
    for (const float x : all) largest = std::max(largest, std::abs(static_cast<double>(x)));
  }
  return largest;
}

// Execution order: embedding, layers in order with their stages in order, then the rest.
std::pair<int, int> place(const StageComparison& c) {
  const bool before = c.layer < 0 && c.stage < Stage::kAttnInput;
  return {before ? -1 : c.layer >= 0 ? c.layer : INT32_MAX, static_cast<int>(c.stage)};
}

}  // namespace

double distance(float found, float expected) {
  const double difference = std::abs(static_cast<double>(found) - expected);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

void keep_worst(std::vector<WrongValue>& worst, const WrongValue& value, double difference) {
  const auto of = [](const WrongValue& v) { return distance(v.found, v.expected); };
  if (difference == 0 || (worst.size() == kMostWorst && difference <= of(worst.back()))) return;
  const auto place =
      std::find_if(worst.begin(), worst.end(), [&](const WrongValue& v) { return difference > of(v); });
  worst.insert(place, value);
  if (worst.size() > kMostWorst) worst.pop_back();
}

StageWidths planned_stages(const Plan& plan, const ModelSpec& spec) {
  std::vector<bool> written(plan.values.size());
  for (const Op& op : plan.ops) {
    for (const auto* ids : {&op.outputs, &op.emits}) {
      for (const ValueId id : *ids) written[id] = true;
    }
  }
  StageWidths stages;
  for (std::size_t id = 0; id < plan.values.size(); ++id) {
    const Value& value = plan.values[id];
    if (value.stage == Stage::kAttnScores) continue;
    const std::size_t width = written[id] ? value.width : 0;
    for_each_name(plan, value, [&](Stage stage, int layer) { stages[{stage, layer}] = width; });
  }
  for (const StageInfo& info : all_stages()) {
    for (int layer = 0; info.per_layer && layer < static_cast<int>(spec.layers.size()); ++layer) {
      if (is_stored_otherwise(spec, info.stage, layer)) stages.try_emplace({info.stage, layer}, 0);
    }
  }
  return stages;
}

Status StageComparer::prepare() {
  for (const auto& [name, tensor] : recording_.tensors.tensors()) {
    if (name == "prompt_ids" || name == "greedy_ids" || name == "decode_logits" ||
        name.ends_with(".attn_scores") || is_recorded_state(name))
      continue;
    DOPPLER_TRY(match(tensor));
  }
  order();
  return {};
}

void StageComparer::on_stage(const TapEvent& event) {
  const Target& target = targets_.at({event.stage, event.layer});
  const std::vector<std::size_t> tokens = row_tokens(event);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (event.input->slots[tokens[row]] != 0) continue;  // the companion's
    const auto position = static_cast<std::size_t>(event.input->positions[tokens[row]]);
    if (position < recording_.prompt_ids.size())
      compare_row(target, position, event.data.subspan(row * event.width, event.width));
  }
}

// The exponent's bits of a float32: logarithms would cost more than the comparison itself.
static std::size_t exponent_of(double share) {
  return (std::bit_cast<std::uint32_t>(static_cast<float>(share)) >> 23) & 0xFF;
}

Result<std::vector<StageComparison>> StageComparer::take_stages() {
  for (const StageComparison& c : stages_) {
    if (c.stage == Stage::kNone || c.tokens == recording_.prompt_ids.size()) continue;
    return fail(ErrorCode::kInternal,
                "The backend has shown {} of the prompt's {} tokens at {}. This is a bug in the backend.",
                c.tokens, recording_.prompt_ids.size(), c.key);
  }
  return std::move(stages_);
}

std::vector<StageComparison> StageComparer::take_shown_stages(bool lacking,
                                                              std::vector<std::string>& not_shared) {
  std::vector<StageComparison> shown;
  for (StageComparison& c : stages_) {
    const bool result = c.stage == Stage::kNone ? lacking : c.tokens == recording_.prompt_ids.size();
    if (result)
      shown.push_back(std::move(c));
    else
      not_shared.push_back(c.key);
  }
  return shown;
}

Status StageComparer::match(const TensorView& tensor) {
  int layer = -1;
  std::string_view stage_text = tensor.name;
  if (stage_text.starts_with("layers.")) {
    const std::size_t dot = stage_text.find('.', 7);
    const std::string index(stage_text.substr(7, dot == std::string_view::npos ? 0 : dot - 7));
    if (index.empty() || index.size() > 6 || index.find_first_not_of("0123456789") != std::string::npos)
      return unknown(tensor);
    layer = std::stoi(index);
    stage_text.remove_prefix(dot + 1);
  }
  const std::vector<Stage> parts = parts_of(stage_text);
  if (parts.empty() || stage_text.contains('.') || stage_info(parts[0]).per_layer != (layer >= 0))
    return unknown(tensor);
  if (parts.size() > 1) {
    DOPPLER_ASSIGN(const bool repeats, repeats_parts(tensor, parts, layer));
    if (repeats) return {};
  }
  StageComparison comparison{.key = tensor.name, .stage = parts[0], .layer = layer, .tolerance = tolerance_};
  const std::size_t row_width =
      tensor.shape.size() == 3 ? tensor.shape[1] * tensor.shape[2] : tensor.shape[1];
  comparison.largest = largest_magnitude(tensor);
  std::size_t column = 0;
  std::vector<std::pair<std::pair<Stage, int>, Target>> found;
  for (const Stage part : parts) {
    const auto planned = computed_.find({part, layer});
    if (planned == computed_.end()) {
      missing_.push_back(std::move(comparison));
      return {};
    }
    if (planned->second == 0) {
      elsewhere_.push_back(comparison.key);
      return {};
    }
    found.push_back({planned->first, {stages_.size(), &tensor, column, planned->second, row_width}});
    if (part == Stage::kRouterIds) add_scores(layer, found.back().second);
    column += planned->second;
  }
  if (column != row_width) {
    return fail(ErrorCode::kMismatch,
                "The recording's {} is {} wide, but the model computes {} values there. Check that the "
                "recording belongs to this model.",
                tensor.name, row_width, column);
  }
  for (const auto& [key, target] : found) {
    // Aliases (ffn_in) and parts of a composite may name a stage
    // twice; one of them would never be compared.
    if (const auto [other, fresh] = targets_.emplace(key, target); !fresh) {
      return fail(ErrorCode::kMismatch, "The recording holds the stage {} twice, as {} and {}. Remove one.",
                  stage_key(key.first, key.second), printable(other->second.tensor->name),
                  printable(tensor.name));
    }
  }
  stages_.push_back(std::move(comparison));
  return {};
}

// Whether every part of this composite is recorded by itself, too. Errors: kMismatch where they differ.
Result<bool> StageComparer::repeats_parts(const TensorView& tensor, std::span<const Stage> parts,
                                          int layer) const {
  std::vector<const TensorView*> own;
  std::uint64_t width = 0;
  for (const Stage part : parts) {
    const TensorView* found = recording_.tensors.find(stage_key(part, layer));
    if (found == nullptr || found->shape.empty() || found->shape[0] != tensor.shape[0]) return false;
    own.push_back(found);
    width += element_count(found->shape).value_or(0) / std::max<std::uint64_t>(found->shape[0], 1);
  }
  const std::uint64_t rows = tensor.shape[0];
  if (element_count(tensor.shape) != rows * width) return false;
  std::vector<float> whole(width), part;
  for (std::uint64_t row = 0; row < rows; ++row) {
    DOPPLER_TRY(decode_f32(tensor, row * width, whole));
    std::size_t column = 0;
    for (const TensorView* of : own) {
      part.resize(static_cast<std::size_t>(*element_count(of->shape) / rows));
      DOPPLER_TRY(decode_f32(*of, row * part.size(), part));
      if (!std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(column))) {
        return fail(
            ErrorCode::kMismatch,
            "The recording holds the stage {} twice, in {} and by itself, with other values. Remove one.",
            of->name, tensor.name);
      }
      column += part.size();
    }
  }
  return true;
}

void StageComparer::order() {
  // Stages that the recording has and the model does not compute keep their place in the order.
  std::vector<std::size_t> by_place(stages_.size());
  for (std::size_t i = 0; i < by_place.size(); ++i) by_place[i] = i;
  std::sort(by_place.begin(), by_place.end(),
            [&](std::size_t a, std::size_t b) { return place(stages_[a]) < place(stages_[b]); });
  std::vector<StageComparison> sorted;
  std::vector<std::size_t> now(stages_.size());
  std::sort(missing_.begin(), missing_.end(),
            [](const auto& a, const auto& b) { return place(a) < place(b); });
  std::size_t next_missing = 0;
  const auto add_missing = [&](std::pair<int, int> until) {
    for (; next_missing < missing_.size() && place(missing_[next_missing]) < until; ++next_missing) {
      sorted.push_back(missing_[next_missing]);
      sorted.back().stage = Stage::kNone;
      sorted.back().error = std::numeric_limits<double>::infinity();
    }
  };
  for (const std::size_t i : by_place) {
    add_missing(place(stages_[i]));
    now[i] = sorted.size();
    sorted.push_back(stages_[i]);
  }
  add_missing({INT32_MAX, INT32_MAX});
  stages_ = std::move(sorted);
  for (auto& [key, target] : targets_) target.comparison = now[target.comparison];
}

void StageComparer::add_scores(int layer, Target& target) const {
  const TensorView* scores = recording_.tensors.find(stage_key(Stage::kRouterLogits, layer));
  if (scores == nullptr || scores->shape.size() != 2 || scores->shape[0] != target.tensor->shape[0]) return;
  target.scores = scores;
  target.nearness = 2 * tolerance_ * largest_magnitude(*scores);  // each of the two may be off by so much
}

void StageComparer::settle_near_choices(const Target& target, std::size_t token,
                                        std::span<const float> ours) {
  const std::size_t experts = target.scores->cols();
  std::vector<float> scores(experts);
  if (!decode_f32(*target.scores, token * experts, scores)) return;
  const auto is_expert = [&](float id) {
    return id >= 0 && id < static_cast<float>(experts) && id == std::floor(id);
  };
  for (std::size_t i = 0; i < row_.size(); ++i) {
    if (ours[i] == row_[i] || !is_expert(ours[i]) || !is_expert(row_[i])) continue;
    const double apart =
        distance(scores[static_cast<std::size_t>(ours[i])], scores[static_cast<std::size_t>(row_[i])]);
    if (apart > target.nearness) continue;
    row_[i] = ours[i];
    ++stages_[target.comparison].near_choices;
  }
}

void StageComparer::compare_row(const Target& target, std::size_t token, std::span<const float> ours) {
  StageComparison& c = stages_[target.comparison];
  row_.resize(target.width);
  if (!decode_f32(*target.tensor, token * target.row_width + target.column, row_)) return;
  if (target.scores != nullptr) settle_near_choices(target, token, ours);
  c.spread.resize(256);
  const double allowed = c.tolerance * c.largest;
  double worst = 0;
  for (std::size_t i = 0; i < target.width; ++i) {
    const double difference = distance(ours[i], row_[i]);
    ++c.spread[exponent_of(difference == 0 ? 0 : difference / allowed)];
    worst = std::max(worst, difference);
    keep_worst(c.worst, {token, target.column + i, row_[i], ours[i]}, difference);
  }
  if (c.stage == Stage::kLogitsFinal) logits_.add(ours, row_);
  // A stage of zeros allows no difference at all.
  const double error = worst == 0 ? 0 : worst / c.largest;
  if (target.column == 0) ++c.tokens;
  c.token_errors.resize(recording_.prompt_ids.size());
  c.token_errors[token] = std::max(c.token_errors[token], static_cast<float>(error));
  if (error > c.error) c.error = error, c.worst_token = token;
  if (error > c.tolerance) c.first_bad_token = std::min(c.first_bad_token.value_or(token), token);
}

}  // namespace doppler::diagnosis
