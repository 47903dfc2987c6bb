// Differences that the prompt is too short to show: windows, scalings and caps that matter only at later
// positions. The recorded tokens are fed to the oracle one by one; where its logits leave the recorded ones,
// it tries other descriptions that agree up to there.
#include <algorithm>
#include <cmath>

#include "backend/reference/reference_backend.h"
#include "diagnosis/compare/recording_form.h"
#include "diagnosis/doctor/doctor_ops.h"

namespace doppler::diagnosis::doctor {
namespace {

// Logits of transformers and of the oracle agree within 2e-6 to 5e-5 of the largest; faults move them by 1e-3
// or more.
constexpr double kAgree = 5e-4;
// Each candidate runs the whole sequence; beyond this many multiplications that takes too long.
constexpr double kMostWork = 3e9;

struct Departure {
  std::size_t step = SIZE_MAX;  // of decoding; SIZE_MAX: none
  double error = 0;             // the largest, as a share of the largest logit
  bool agrees() const { return step == SIZE_MAX; }
};

// Feeds prompt and recorded tokens to the oracle; returns where its logits first differ from the recorded
// ones.
Result<Departure> follow(const Subject& subject, const ModelSpec& spec, const Recording& recording) {
  const std::size_t prompt = recording.prompt_ids.size(), steps = recording.greedy_ids.size() - 1;
  Subject changed = subject;
  changed.spec = spec;
  DOPPLER_ASSIGN(Plan plan, changed.make_plan(prompt + steps + 1));
  BackendOptions options = subject.options;
  options.context = prompt + steps + 1;
  options.slots = 1;
  options.max_step_tokens = static_cast<std::uint32_t>(std::min<std::size_t>(prompt, 256));
  options.cut_tokens = 0;  // rings turn as early as they can
  DOPPLER_ASSIGN(const auto oracle,
                 make_reference_backend_for_plan(std::move(plan), subject.weights, options));
  DOPPLER_ASSIGN(auto logits, feed(*oracle, 0, recording.prompt_ids, 0, false, nullptr));
  const TensorView* recorded = recording.tensors.find("decode_logits");
  const std::size_t vocab = spec.vocab_size;
  std::vector<float> row(vocab);
  const double stored = stored_type(recording).share;  // the logits are rounded, too
  Departure departure;
  for (std::size_t step = 0; step < steps; ++step) {
    DOPPLER_ASSIGN(logits, feed(*oracle, 0, std::span(&recording.greedy_ids[step], 1), 0, true, nullptr,
                                static_cast<std::int64_t>(step) + 1));
    DOPPLER_TRY(decode_f32(*recorded, step * vocab, row));
    double largest = 1e-30, worst = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(row[i])));
      worst = std::max(worst, std::abs(static_cast<double>(row[i]) - logits[i]));
    }
    departure.error = std::max(departure.error, worst / largest);
    if (!(worst <= (kAgree + stored) * largest)) departure.step = std::min(departure.step, step);
  }
  return departure;
}

struct Candidate {
  std::string cause, says, repair;
  ModelSpec spec;
};

// Descriptions that compute the same for the prompt.
std::vector<Candidate> candidates(const ModelSpec& spec, std::size_t prompt, std::size_t length) {
  std::vector<Candidate> all;
  const auto windows = [&](std::uint32_t window, std::string says) {
    Candidate made{
        "sliding_window", std::move(says),
        fmt::format("Set sliding_window to {}.", window == 0 ? "more, or null" : std::to_string(window)),
        spec};
    bool any = false;
    for (LayerSpec& layer : made.spec.layers) {
      if (layer.attention.window == 0 && window == 0) continue;
      if (layer.attention.kind == AttentionKind::kFull && layer.attention.window == 0) continue;
      layer.attention.window = window;
      any = true;
    }
    if (any) all.push_back(std::move(made));
  };
  windows(0, "the window is as long as the recording, or there is none");
  for (std::size_t window = prompt; window < length; ++window)
    windows(static_cast<std::uint32_t>(window), fmt::format("the window is {}", window));
  // No layer slides, but all should: the windows of models that have only one kind of layer.
  for (std::size_t window = prompt; window < length; ++window) {
    Candidate made{"sliding_window", fmt::format("every layer has a window of {}", window),
                   fmt::format("Set sliding_window to {}.", window), spec};
    for (LayerSpec& layer : made.spec.layers) layer.attention.window = static_cast<std::uint32_t>(window);
    all.push_back(std::move(made));
  }
  return all;
}

double work_of(const Subject& subject, std::size_t tokens) {
  double values = 0;
  for (const TensorView& tensor : subject.weights.tensors())
    values += static_cast<double>(tensor.rows() * tensor.cols());
  return values * static_cast<double>(tokens);
}

}  // namespace

Result<Outcome> check_late_choices(const Examination& e) {
  const Recording& recording = *e.options.reference;
  const std::size_t steps = recording.greedy_ids.size() - 1, length = recording.prompt_ids.size() + steps;
  if (steps == 0 || recording.tensors.find("decode_logits") == nullptr)
    return Outcome::skip("the recording has no logits of decode steps");
  // The oracle computes some 2e9 products a second on two cores.
  const double work = work_of(e.subject, length);
  if (work / 2e9 > 0.5 * e.seconds_left())
    return Outcome::skip("following the recorded tokens would take too long: raise --seconds");
  DOPPLER_ASSIGN(const Departure own, follow(e.subject, e.subject.spec, recording));
  const std::string text = fmt::format(
      "{} decode steps followed, logits differ by at most {:.1e} of the largest", steps, own.error);
  if (own.agrees()) return Outcome::ok(text);
  Finding finding{.cause = "unknown", .stage = "logits_final", .confidence = 0.5};
  finding.explanation = fmt::format(
      "Everything agrees over the prompt of {} tokens, but the logits of decode step {} (position {}) "
      "differ: something "
      "counts only from there on.",
      recording.prompt_ids.size(), own.step, recording.prompt_ids.size() + own.step);
  for (const Candidate& candidate : candidates(e.subject.spec, recording.prompt_ids.size(), length)) {
    if (work > kMostWork || e.seconds_left() < 0) break;
    const auto departure = follow(e.subject, candidate.spec, recording);
    if (!departure || !departure->agrees()) continue;
    finding.cause = candidate.cause;
    finding.stage = "attn_out";
    for (std::size_t i = 0; i < e.subject.spec.layers.size() && finding.layer < 0; ++i) {
      if (candidate.spec.layers[i].attention.window != e.subject.spec.layers[i].attention.window)
        finding.layer = static_cast<int>(i);
    }
    finding.explanation += fmt::format(" They agree when {}.", candidate.says);
    finding.repair = candidate.repair;
    finding.confidence = 0.9;
    break;
  }
  e.find(std::move(finding));
  return Outcome::found(text);
}

}  // namespace doppler::diagnosis::doctor
