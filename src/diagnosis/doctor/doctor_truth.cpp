// The model against a recording: does it belong to the model, and does every op compute what was recorded?
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/filled_rows.h"
#include "diagnosis/compare/recording_form.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/doctor_ops.h"

namespace doppler::diagnosis::doctor {
namespace {

const Outcome kNoReference = Outcome::skip("no --reference is given");

// Limits of activations that no recorded value reaches.
std::set<double> unreached_limits(const Plan& plan, OpExperiment& experiment) {
  std::set<double> limits, reached;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto* gated = std::get_if<GatedParams>(&plan.ops[i].params);
    if (gated == nullptr || gated->clamp == 0) continue;
    limits.insert(gated->clamp);
    const auto setup = experiment.setup(i);
    if (!setup) continue;
    const bool over =
        std::ranges::any_of(setup->inputs[0].data, [&](float x) { return x > gated->clamp; }) ||
        std::ranges::any_of(setup->inputs[1].data, [&](float x) { return std::abs(x) > gated->clamp; });
    if (over) reached.insert(gated->clamp);
  }
  for (const double limit : reached) limits.erase(limit);
  return limits;
}

// What a recording cannot show, though everything that it has agrees.
void list_untested(const Examination& e, const Plan& plan, OpExperiment& experiment, const OpJudge& judge) {
  const Recording& recording = *e.options.reference;
  const std::size_t tokens = recording.prompt_ids.size();
  std::set<std::size_t> covered(judge.judged_ops().begin(), judge.judged_ops().end());
  std::vector<std::string> ends;
  for (const OpChain& chain : judge.chains()) {
    covered.insert(chain.ops().begin(), chain.ops().end());
    if (!chain.single()) ends.push_back(chain.key_of(chain.end()));
  }
  std::vector<std::size_t> none;
  for (std::size_t op = 0; op < plan.ops.size(); ++op) {
    if (!covered.contains(op)) none.push_back(op);
  }
  if (!none.empty())
    e.untested.push_back(fmt::format("{}: nothing recorded depends on {}", describe_ops(plan, none),
                                     none.size() == 1 ? "it" : "them"));
  if (!ends.empty()) {
    e.untested.push_back(
        fmt::format("which op is wrong where {}{} differs: what comes before is not recorded", ends[0],
                    ends.size() == 1 ? "" : fmt::format(", or one of {} more,", ends.size() - 1)));
  }
  const std::size_t last =
      tokens + (recording.tensors.find("decode_logits") != nullptr && !recording.greedy_ids.empty()
                    ? recording.greedy_ids.size() - 1
                    : 0);
  for (const double limit : unreached_limits(plan, experiment))
    e.untested.push_back(
        fmt::format("the activation's limit of {}: no recorded gate or up reaches it", limit));
  std::set<std::uint32_t> windows;
  for (const LayerSpec& layer : e.subject.spec.layers) {
    if (layer.attention.window >= last) windows.insert(layer.attention.window);
  }
  for (const std::uint32_t window : windows)
    e.untested.push_back(fmt::format("the window of {}: the recording has {} tokens", window, last));
  e.untested.push_back(
      fmt::format("positions from {} on, and what counts only there (scaled angles, the context)", last));
}

// Beyond the context that a description names, its angles need not be those that were recorded: the rope type
// dynamic takes another base there. So what they differ by is no repair of the model.
void doubt_angles_beyond_context(const Examination& e) {
  const std::uint64_t tokens = e.options.reference->prompt_ids.size();
  const std::uint64_t context = e.subject.spec.context_length;
  if (context == 0 || tokens <= context) return;
  constexpr double kDoubted = 0.5;  // as likely the recording's length as the model
  for (Finding& finding : e.findings) {
    if (finding.check != e.check || (finding.cause != "rope_theta" && finding.cause != "rope_scaling"))
      continue;
    finding.explanation += fmt::format(
        " But the recording has {} tokens and the model's context {}, beyond which some rope types (dynamic) "
        "turn by other angles.",
        tokens, context);
    finding.repair =
        fmt::format("Record a prompt of at most {} tokens and examine that. If it differs, too: {}", context,
                    finding.repair);
    finding.fixes.clear();
    finding.confidence = std::min(finding.confidence, kDoubted);
  }
}

}  // namespace

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
  judge.arithmetic = arithmetic_of(recording, e.subject.weights);
  // Of finer weights that the header does not tell of, the ops themselves tell.
  judge.arithmetic.other_weights = judge.arithmetic.other_error > 0;
  // Blocks in a folder are what the model was published with; those of a GGUF file were made of finer
  // weights.
  judge.finer_weights = e.subject.model->files.gguf ||
                        std::ranges::none_of(e.subject.weights.tensors(),
                                             [](const TensorView& t) { return is_quantised(t.dtype); });
  judge.filled = &rows;
  judge.stored = stored_type(recording).share;
  const bool other_layers =
      std::ranges::any_of(e.findings, [](const Finding& f) { return f.cause == "layer_count"; });
  judge.skip = [&](std::size_t op) {  // with layers missing, the stages after the last one have other inputs
    return rows.filled(op) || (other_layers && plan.ops[op].kind == OpKind::kSelect);
  };
  DOPPLER_TRY(judge.measure());
  judge.tell_ops();
  DOPPLER_TRY(judge.explain_wrong());
  doubt_angles_beyond_context(e);
  if (judge.judged() == 0) return Outcome::skip("the recording holds no stage that can be computed again");
  list_untested(e, plan, experiment, judge);
  std::string text = judge.summary();
  if (judge.arithmetic.other_weights)
    text += fmt::format("; the recording is of coarser weights ({}), which explains some of it",
                        printable(recording.tensors.metadata().at("weights")));
  return Outcome::ok(std::move(text));
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
