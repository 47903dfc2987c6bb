#include "inspect/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"

namespace doppler {
namespace {

// Float32 weights and activations everywhere; the numbers are shares of a stage's largest value.
struct ToleranceRow {
  std::string_view backend;
  double plain, softcapped;
};
constexpr std::array<ToleranceRow, 2> kTolerances = {{
    // transformers in float32 differs from itself in double by 2e-6, with softcapped scores (Gemma 2) by
    // 4e-5: five times that covers other summation orders and stays far below any real fault.
    {"reference", 1e-5, 2e-4},
    // Float32 accumulation in another order: rows of thousands of products lose about 1e-5 each layer; a
    // wrong constant or index moves a stage by 1e-2 or more.
    {"cpu", 2e-4, 1e-3},
}};

// Backends that round on purpose. Measured on the fixtures, whose two or three layers of random weights pass
// errors on like real ones: the worst stage lies 1.1e-3 (f16 cache) and 0.075 (8-bit blocks) from the
// reference.
struct RoundingRow {
  Rounding rounding;
  double tolerance;
};
constexpr std::array<RoundingRow, 2> kRoundings = {{
    {Rounding::kHalfCache, 4e-3},
    {Rounding::kEightBits, 0.15},
}};

// Stages that some models' modules compute in one tensor; ours are its columns, in this order.
struct Composite {
  std::string_view name;
  std::array<Stage, 3> parts;
};
constexpr std::array<Composite, 2> kComposites = {{
    {"qkv_proj", {Stage::kQProj, Stage::kKProj, Stage::kVProj}},
    {"ffn_gate_up", {Stage::kFfnGate, Stage::kFfnUp, Stage::kNone}},
}};

// NaN is as far as infinity.
double distance(float found, float expected) {
  const double difference = std::abs(static_cast<double>(found) - expected);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

// Keeps the largest differences, the largest first.
void keep_worst(std::vector<WrongValue>& worst, const WrongValue& value, double difference) {
  const auto of = [](const WrongValue& v) { return distance(v.found, v.expected); };
  if (difference == 0 || (worst.size() == kMostWorst && difference <= of(worst.back()))) return;
  const auto place =
      std::find_if(worst.begin(), worst.end(), [&](const WrongValue& v) { return difference > of(v); });
  worst.insert(place, value);
  if (worst.size() > kMostWorst) worst.pop_back();
}

// Where a stage's values lie in the recording.
struct Target {
  std::size_t comparison = 0;  // index into Comparison::stages
  const TensorView* tensor = nullptr;
  std::size_t column = 0, width = 0, row_width = 0;
};

// All stages the plan computes, with their widths.
std::map<std::pair<Stage, int>, std::size_t> planned_stages(const Plan& plan) {
  std::map<std::pair<Stage, int>, std::size_t> stages;
  for (const Value& value : plan.values) {
    if (value.stage == Stage::kNone || value.stage == Stage::kAttnScores) continue;
    stages[{value.stage, value.layer}] = value.width;
    const bool feeds_layer = value.stage == Stage::kEmbedOut || value.stage == Stage::kLayerOut;
    if (feeds_layer && static_cast<std::size_t>(value.layer + 1) < plan.kv_layers.size()) {
      stages[{Stage::kAttnInput, value.layer + 1}] = value.width;
    }
  }
  return stages;
}

class Comparer final : public Tap {
 public:
  Comparer(const Plan& plan, const Recording& recording, double tolerance)
      : recording_(recording), tolerance_(tolerance), planned_(planned_stages(plan)) {}

  // Matches the recording's tensors with the plan's stages.
  Status prepare() {
    for (const auto& [name, tensor] : recording_.tensors.tensors()) {
      if (name == "prompt_ids" || name == "greedy_ids" || name == "decode_logits" ||
          name.ends_with(".attn_scores"))
        continue;
      DOPPLER_TRY(match(tensor));
    }
    order();
    return {};
  }

  bool wants(Stage stage, int layer) const override { return targets_.contains({stage, layer}); }

  void on_stage(const TapEvent& event) override {
    const Target& target = targets_.at({event.stage, event.layer});
    for (std::size_t row = 0; row < event.rows; ++row) {
      if (event.input->slots[row] != 0) continue;  // the companion's
      const auto token = static_cast<std::size_t>(event.input->positions[row]);
      if (token < recording_.prompt_ids.size())
        compare_row(target, token, event.data.subspan(row * event.width, event.width));
    }
  }

  // Every stage's result, once the prompt has run. Errors: kInternal for a backend that has not shown every
  // token of every stage, which would otherwise pass for agreement.
  Result<std::vector<StageComparison>> take_stages() {
    for (const StageComparison& c : stages_) {
      if (c.stage == Stage::kNone || c.tokens == recording_.prompt_ids.size()) continue;
      return fail(ErrorCode::kInternal,
                  "The backend has shown {} of the prompt's {} tokens at {}. This is a bug in the backend.",
                  c.tokens, recording_.prompt_ids.size(), c.key);
    }
    return std::move(stages_);
  }

 private:
  Status match(const TensorView& tensor) {
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
    std::array<Stage, 3> parts = {Stage::kNone, Stage::kNone, Stage::kNone};
    for (const Composite& composite : kComposites) {
      if (composite.name == stage_text) parts = composite.parts;
    }
    if (parts[0] == Stage::kNone) {
      const auto stage = stage_from_name(stage_text);
      if (!stage || stage_info(*stage).per_layer != (layer >= 0)) return unknown(tensor);
      parts[0] = *stage;
    }
    StageComparison comparison{
        .key = tensor.name, .stage = parts[0], .layer = layer, .tolerance = tolerance_};
    const std::size_t row_width =
        tensor.shape.size() == 3 ? tensor.shape[1] * tensor.shape[2] : tensor.shape[1];
    comparison.largest = largest_magnitude(tensor);
    std::size_t column = 0;
    std::vector<std::pair<std::pair<Stage, int>, Target>> found;
    for (const Stage part : parts) {
      if (part == Stage::kNone) continue;
      const auto planned = planned_.find({part, layer});
      if (planned == planned_.end()) {
        missing_.push_back(std::move(comparison));
        return {};
      }
      found.push_back({planned->first, {stages_.size(), &tensor, column, planned->second, row_width}});
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

  Status unknown(const TensorView& tensor) const {
    std::vector<std::string> names;
    for (const StageInfo& info : all_stages()) names.emplace_back(info.name);
    return fail(ErrorCode::kMismatch, "The recording holds {}, which is no stage. Stages are {}.",
                printable(tensor.name), join(names, ", "));
  }

  static double largest_magnitude(const TensorView& tensor) {
    std::vector<float> all(*element_count(tensor.shape));
    double largest = 0;
    if (decode_f32(tensor, 0, all)) {
      for (const float x : all) largest = std::max(largest, std::abs(static_cast<double>(x)));
    }
    return largest;
  }

  // Execution order: embedding, layers in order with their stages in order, then the rest.
  static std::pair<int, int> place(const StageComparison& c) {
    const bool before = c.stage == Stage::kEmbedOut;
    return {before ? -1 : c.layer >= 0 ? c.layer : INT32_MAX, static_cast<int>(c.stage)};
  }

  void order() {
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

  void compare_row(const Target& target, std::size_t token, std::span<const float> ours) {
    StageComparison& c = stages_[target.comparison];
    row_.resize(target.width);
    if (!decode_f32(*target.tensor, token * target.row_width + target.column, row_)) return;
    double worst = 0;
    for (std::size_t i = 0; i < target.width; ++i) {
      const double difference = distance(ours[i], row_[i]);
      worst = std::max(worst, difference);
      keep_worst(c.worst, {token, target.column + i, row_[i], ours[i]}, difference);
    }
    // A stage of zeros allows no difference at all.
    const double error = worst == 0 ? 0 : worst / c.largest;
    if (target.column == 0) ++c.tokens;
    c.token_errors.resize(recording_.prompt_ids.size());
    c.token_errors[token] = std::max(c.token_errors[token], static_cast<float>(error));
    if (error > c.error) c.error = error, c.worst_token = token;
    if (error > c.tolerance) c.first_bad_token = std::min(c.first_bad_token.value_or(token), token);
  }

  const Recording& recording_;
  const double tolerance_;
  const std::map<std::pair<Stage, int>, std::size_t> planned_;
  std::map<std::pair<Stage, int>, Target> targets_;
  std::vector<StageComparison> stages_, missing_;
  std::vector<float> row_;
};

Status check_ids(const Plan& plan, const BackendOptions& options, const Recording& recording) {
  for (const auto* ids : {&recording.prompt_ids, &recording.greedy_ids}) {
    for (const std::int32_t id : *ids) {
      if (static_cast<std::uint32_t>(id) < plan.vocab_size) continue;
      return fail(ErrorCode::kMismatch,
                  "The recording holds the token id {}, but the model's vocabulary has {} tokens. Check that "
                  "it belongs to this model.",
                  id, plan.vocab_size);
    }
  }
  // The last greedy id is judged, never fed.
  const std::size_t length =
      recording.prompt_ids.size() + std::max<std::size_t>(1, recording.greedy_ids.size()) - 1;
  if (length > options.context) {
    return fail(ErrorCode::kLimit,
                "The recording covers {} tokens, more than the context of {}. Raise the context.", length,
                options.context);
  }
  return {};
}

// One step over two sequences, tokens taken in turn; slot 1 runs the companion.
Result<std::span<const float>> step_with_companion(Backend& backend, std::span<const std::int32_t> ids,
                                                   std::span<const std::int32_t> companion, Tap* tap) {
  StepInput input;
  const std::array<std::span<const std::int32_t>, 2> sequences = {ids, companion};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      input.add(sequences[slot][i], backend.length(slot) + i, slot, true);
    }
  }
  return backend.step(input, tap);
}

// Runs sequences in step: the recording's ids in slot 0, and with a companion the reversed prompt in slot 1.
class Runner {
 public:
  Runner(Backend& backend, const Recording& recording, const CompareOptions& options)
      : backend_(backend),
        options_(options),
        companion_(recording.prompt_ids.rbegin(), recording.prompt_ids.rend()) {}

  // Empties the slots it will use. A cache that survives this would shift every position.
  Status clear() {
    const std::uint32_t wanted = options_.companion ? 2 : 1;
    if (backend_.options().slots < wanted) {
      return fail(ErrorCode::kUsage,
                  "A comparison beside a companion needs 2 slots, but the backend has {}. Give it more.",
                  backend_.options().slots);
    }
    for (std::uint32_t slot = 0; slot < wanted; ++slot) {
      backend_.clear(slot);
      if (backend_.length(slot) == 0) continue;
      return fail(
          ErrorCode::kInternal,
          "The backend still holds {} tokens in slot {} after it was cleared. This is a bug in the backend.",
          backend_.length(slot), slot);
    }
    return {};
  }

  Result<std::span<const float>> run(std::span<const std::int32_t> ids, Tap* tap) {
    if (!options_.companion) return feed(backend_, 0, ids, options_.piece, true, tap);
    const std::size_t most =
        std::max<std::size_t>(1, std::min<std::size_t>(options_.piece == 0 ? SIZE_MAX : options_.piece,
                                                       backend_.options().max_step_tokens / 2));
    std::span<const float> logits;
    for (std::size_t begin = 0; begin < ids.size(); begin += most) {
      const std::size_t count = std::min(most, ids.size() - begin);
      std::vector<std::int32_t> beside(count);
      for (auto& id : beside) id = companion_[next_++ % companion_.size()];
      DOPPLER_ASSIGN(logits, step_with_companion(backend_, ids.subspan(begin, count), beside, tap));
    }
    const std::size_t vocab = backend_.plan().vocab_size;
    return logits.subspan(logits.size() - 2 * vocab, vocab);  // the last row is the companion's
  }

 private:
  Backend& backend_;
  const CompareOptions& options_;
  std::vector<std::int32_t> companion_;
  std::size_t next_ = 0;
};

// True if the wanted id is the likeliest, or lies within `slack` of it, as a share of the largest logit.
bool chooses(std::span<const float> logits, std::int32_t wanted, double slack) {
  const std::int32_t best = argmax(logits);
  if (best == wanted) return true;
  if (best < 0) return false;  // nothing but NaN
  double largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  const double behind =
      static_cast<double>(logits[static_cast<std::size_t>(best)]) - logits[static_cast<std::size_t>(wanted)];
  return behind < slack * largest;
}

void compare_decode_row(Comparison& result, const TensorView& recorded, std::size_t step,
                        std::span<const float> logits, std::int32_t wanted, double slack) {
  StageComparison& c = *result.decode;
  std::vector<float> row(logits.size());
  double worst = std::numeric_limits<double>::infinity();
  if (decode_f32(recorded, step * row.size(), row)) {
    worst = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      c.largest = std::max(c.largest, std::abs(static_cast<double>(row[i])));
      const double difference = distance(logits[i], row[i]);
      worst = std::max(worst, difference);
      keep_worst(c.worst, {step, i, row[i], logits[i]}, difference);
    }
  }
  const double error = worst == 0 ? 0 : worst / c.largest;
  c.token_errors.push_back(static_cast<float>(error));
  if (error > c.error) c.error = error, c.worst_token = step;
  if (error > c.tolerance && !c.first_bad_token) c.first_bad_token = step;
  ++c.tokens;
  if (chooses(logits, wanted, slack)) ++result.top1_equal;
}

}  // namespace

double stage_tolerance(const Backend& backend, const ModelSpec& spec) {
  for (const RoundingRow& row : kRoundings) {
    if (row.rounding == backend.rounding()) return row.tolerance;
  }
  const bool softcapped = !spec.layers.empty() && spec.layers.front().attention.softcap > 0;
  for (const ToleranceRow& row : kTolerances) {
    if (row.backend == backend.name()) return softcapped ? row.softcapped : row.plain;
  }
  return softcapped ? 1e-3 : 2e-4;
}

Disagreement StageComparison::disagreement() const {
  if (stage == Stage::kNone) return Disagreement::kNotComputed;
  if (execution && !execution->agrees()) return Disagreement::kExecution;
  if (description && !description->agrees()) return Disagreement::kDescription;
  return first_bad_token ? Disagreement::kTotal : Disagreement::kNone;
}

const StageComparison* Comparison::first_divergence() const {
  const StageComparison* outside = nullptr;
  for (const StageComparison& c : stages) {
    const Disagreement why = c.disagreement();
    if (why == Disagreement::kNone) continue;
    if (why != Disagreement::kTotal) return &c;
    // Inherited from an op that may yet be found only where this stage's own op is known to be right.
    if (outside == nullptr) outside = &c;
    if (!c.execution || !c.description) break;
  }
  if (outside != nullptr) return outside;
  return decode && !decode->agrees() ? &*decode : nullptr;
}

Result<Comparison> compare_run(Backend& backend, const ModelSpec& spec, const Recording& recording,
                               const CompareOptions& options) {
  DOPPLER_TRY(check_ids(backend.plan(), backend.options(), recording));
  const std::size_t vocab = backend.plan().vocab_size;
  const TensorView* recorded = recording.tensors.find("decode_logits");
  if (recorded != nullptr && (recorded->shape.size() != 2 || recorded->cols() != vocab)) {
    return fail(
        ErrorCode::kMismatch,
        "The recording's decode_logits have the shape {}, but the vocabulary has {} tokens. Check that the "
        "recording belongs to this model.",
        describe_shape(recorded->shape), vocab);
  }
  const double tolerance = options.tolerance > 0 ? options.tolerance : stage_tolerance(backend, spec);
  Comparer comparer(backend.plan(), recording, tolerance);
  DOPPLER_TRY(comparer.prepare());
  Runner runner(backend, recording, options);
  DOPPLER_TRY(runner.clear());
  DOPPLER_ASSIGN(std::span<const float> logits, runner.run(recording.prompt_ids, &comparer));
  Comparison result;
  DOPPLER_ASSIGN(result.stages, comparer.take_stages());
  if (recording.greedy_ids.empty()) return result;
  // The first greedy id is the prompt's own answer; each further one follows from feeding the one before it.
  result.decode_steps = recording.greedy_ids.size();
  // Coarse arithmetic may turn a choice whose margin is within its error.
  const double slack = backend.rounding() == Rounding::kFloat ? 0 : tolerance;
  if (chooses(logits.last(vocab), recording.greedy_ids[0], slack)) ++result.top1_equal;
  if (recorded != nullptr) {
    result.decode =
        StageComparison{.key = "decode_logits", .stage = Stage::kLogitsFinal, .tolerance = tolerance};
    // One largest value for all steps, so that the order of steps does not matter.
    std::vector<float> all(*element_count(recorded->shape));
    DOPPLER_TRY(decode_f32(*recorded, 0, all));
    for (const float x : all)
      result.decode->largest = std::max(result.decode->largest, std::abs(static_cast<double>(x)));
  }
  for (std::size_t step = 0; step + 1 < recording.greedy_ids.size(); ++step) {
    DOPPLER_ASSIGN(logits, runner.run(std::span(&recording.greedy_ids[step], 1), nullptr));
    if (recorded != nullptr)
      compare_decode_row(result, *recorded, step, logits.last(vocab), recording.greedy_ids[step + 1], slack);
    else if (chooses(logits.last(vocab), recording.greedy_ids[step + 1], slack))
      ++result.top1_equal;
  }
  return result;
}

}  // namespace doppler
