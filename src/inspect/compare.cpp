#include "inspect/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "inspect/op_errors.h"
#include "inspect/stage_comparer.h"

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

// Hands events to both.
class BothTaps final : public Tap {
 public:
  BothTaps(Tap& first, Tap& second) : taps_{&first, &second} {}
  bool wants(Stage stage, int layer) const override {
    return std::any_of(taps_.begin(), taps_.end(), [&](const Tap* tap) { return tap->wants(stage, layer); });
  }
  void on_stage(const TapEvent& event) override {
    for (Tap* tap : taps_) {
      if (tap->wants(event.stage, event.layer)) tap->on_stage(event);
    }
  }

 private:
  std::array<Tap*, 2> taps_;
};

// The rows of a prompt that are kept for judging ops one by one: those of 500 tokens of a model of 1 billion
// parameters, and few enough for a machine that holds the model.
constexpr std::uint64_t kMostKeptBytes = std::uint64_t{2} << 30;

bool can_keep(const Plan& plan, const Recording& recording) {
  std::uint64_t row = 0;
  for (const Value& value : plan.values) row += value.width;
  return row * sizeof(float) * recording.prompt_ids.size() <= kMostKeptBytes;
}

Status judge_run(std::vector<StageComparison>& stages, const Backend& backend, const ModelSpec& spec,
                 const Weights& weights, const CapturedRows& captured, const Recording& recording) {
  // A backend without fused ops may run another plan than the spec's: that is what is to be judged.
  Plan plan = backend.plan();
  if (!plan.passes.empty()) {
    DOPPLER_ASSIGN(plan, build_plan(spec, weights, backend.options().context));
  }
  const RecordedRows recorded(recording);
  return judge_ops(stages, plan, weights, {captured, arithmetic_of(backend)},
                   {recorded, arithmetic_from(recording.tensors.metadata())}, backend.options().threads);
}

void mark_explained(std::vector<StageComparison>& stages) {
  for (StageComparison& c : stages) {
    const bool right = c.execution && c.execution->agrees() && c.description && c.description->agrees();
    if (!right) return;
    c.explained = true;
  }
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
  return first_bad_token && !explained ? Disagreement::kTotal : Disagreement::kNone;
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
                               const CompareOptions& options, const Weights* weights) {
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
  StageComparer comparer(planned_stages(backend.plan()), recording, tolerance);
  DOPPLER_TRY(comparer.prepare());
  Runner runner(backend, recording, options);
  DOPPLER_TRY(runner.clear());
  CapturedRows captured;
  BothTaps both(comparer, captured);
  const bool judge = weights != nullptr && options.local && can_keep(backend.plan(), recording);
  DOPPLER_ASSIGN(std::span<const float> logits,
                 runner.run(recording.prompt_ids, judge ? static_cast<Tap*>(&both) : &comparer));
  Comparison result;
  DOPPLER_ASSIGN(result.stages, comparer.take_stages());
  if (judge) DOPPLER_TRY(judge_run(result.stages, backend, spec, *weights, captured, recording));
  if (options.tolerance == 0) mark_explained(result.stages);
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
