#include "diagnosis/compare/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "backend/tap_list.h"
#include "base/text.h"
#include "diagnosis/compare/compare_recordings.h"
#include "diagnosis/compare/compare_states.h"
#include "diagnosis/compare/decode_comparer.h"
#include "diagnosis/compare/op_errors.h"
#include "diagnosis/compare/recording_form.h"
#include "diagnosis/compare/stage_comparer.h"

namespace doppler::diagnosis {
namespace {

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
                                                       step_tokens(backend_.options()) / 2));
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

Status judge_run(std::vector<StageComparison>& stages, const Backend& backend, const ModelSpec& spec,
                 const Weights& weights, const CapturedRows& captured, const Recording& recording) {
  // A backend without fused ops may run another plan than the spec's: then its own plan is judged.
  Plan plan = backend.plan();
  if (!plan.passes.empty()) {
    DOPPLER_ASSIGN(plan, build_plan(spec, weights, backend.options().context));
  }
  const RecordedRows recorded(recording);
  return judge_ops(stages, plan, weights, {captured, arithmetic_of(backend)},
                   {recorded, arithmetic_of(recording, weights)}, backend.options().threads);
}

}  // namespace

double stage_tolerance(const Backend& backend, const ModelSpec& spec) {
  // Scores that are not made smaller (Gemma 4) are as large as those that need a cap, and as ill conditioned.
  const bool softcapped = !spec.layers.empty() && (spec.layers.front().attention.softcap > 0 ||
                                                   spec.layers.front().attention.scale == 1);
  return stage_tolerance(backend.name(), backend.rounding(), softcapped);
}

Result<Comparison> compare_run(Backend& backend, const ModelSpec& spec, const Recording& given,
                               const CompareOptions& options, const Weights* weights) {
  std::optional<Recording> named;
  if (weights != nullptr) named = with_named_last_norm(given, spec, *weights);
  const Recording& recording = named ? *named : given;
  DOPPLER_TRY(check_ids(backend.plan(), backend.options(), recording));
  const std::size_t vocab = backend.plan().vocab_size;
  const double tolerance = options.tolerance > 0 ? options.tolerance : stage_tolerance(backend, spec);
  // Coarse arithmetic may change a choice whose margin is within its error.
  // Two logits that may each be off by the tolerance may change places within twice that.
  DecodeComparer decode(recording, tolerance, 2 * tolerance);
  DOPPLER_TRY(decode.prepare(vocab));
  StageComparer comparer(planned_stages(backend.plan(), spec), recording, tolerance);
  DOPPLER_TRY(comparer.prepare());
  Runner runner(backend, recording, options);
  DOPPLER_TRY(runner.clear());
  CapturedRows captured;
  TapList taps;
  taps.add(&comparer);
  // A tolerance that the user gives is the only criterion.
  const bool judge = weights != nullptr && options.local && options.tolerance == 0 &&
                     can_keep(backend.plan(), recording.prompt_ids.size());
  if (judge) taps.add(&captured);
  DOPPLER_ASSIGN(std::span<const float> logits, runner.run(recording.prompt_ids, taps.get()));
  Comparison result;
  DOPPLER_ASSIGN(result.stages, comparer.take_stages());
  result.elsewhere = comparer.take_elsewhere();
  if (judge) DOPPLER_TRY(judge_run(result.stages, backend, spec, *weights, captured, recording));
  DOPPLER_TRY(compare_states(backend, recording, tolerance, result.stages));
  result.prompt_logits = comparer.prompt_logits();
  result.found = backend.name(), result.expected = describe_origin(recording);
  decode.widen(result.stages);
  decode.prompt_answer(logits.last(vocab));
  for (std::size_t step = 0; step < decode.steps(); ++step) {
    DOPPLER_ASSIGN(logits, runner.run(std::span(&recording.greedy_ids[step], 1), nullptr));
    DOPPLER_TRY(decode.step(step, logits.last(vocab)));
  }
  decode.finish(result);
  return result;
}

}  // namespace doppler::diagnosis
