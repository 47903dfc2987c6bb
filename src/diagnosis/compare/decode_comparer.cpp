#include "diagnosis/compare/decode_comparer.h"

#include <algorithm>
#include <cmath>

#include "diagnosis/compare/stage_comparer.h"

namespace doppler::diagnosis {
namespace {

// True if the wanted id is the likeliest, or lies within `slack` of it, as a share of the largest logit.
bool chooses(std::span<const float> logits, std::int32_t wanted, double slack) {
  const std::int32_t best = argmax(logits);
  if (best == wanted) return true;
  if (best < 0 || static_cast<std::size_t>(wanted) >= logits.size()) return false;  // NaN, another vocabulary
  double largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  const double behind =
      static_cast<double>(logits[static_cast<std::size_t>(best)]) - logits[static_cast<std::size_t>(wanted)];
  return behind < slack * largest;
}

}  // namespace

void DecodeComparer::widen(const std::vector<StageComparison>& stages) {
  for (const StageComparison& c : stages) {
    if (c.stage != Stage::kLogitsFinal || !c.explained || 2 * c.error <= tolerance_) continue;
    tolerance_ = slack_ = 2 * c.error;
    if (stage_) stage_->tolerance = tolerance_;
  }
}

Status DecodeComparer::prepare(std::size_t vocab) {
  logits_ = recording_.tensors.find("decode_logits");
  if (logits_ == nullptr) return {};
  if (logits_->shape.size() != 2 || logits_->cols() != vocab) {
    return fail(
        ErrorCode::kMismatch,
        "The recording's decode_logits have the shape {}, but the vocabulary has {} tokens. Check that the "
        "recording belongs to this model.",
        describe_shape(logits_->shape), vocab);
  }
  if (recording_.greedy_ids.empty()) return {};
  stage_ = StageComparison{.key = "decode_logits", .stage = Stage::kLogitsFinal, .tolerance = tolerance_};
  // One largest value for all steps, so that the order of steps does not matter.
  std::vector<float> row(vocab);
  for (std::size_t step = 0; step < logits_->rows(); ++step) {
    DOPPLER_TRY(decode_f32(*logits_, step * vocab, row));
    for (const float x : row) stage_->largest = std::max(stage_->largest, std::abs(static_cast<double>(x)));
  }
  return {};
}

void DecodeComparer::prompt_answer(std::span<const float> logits) {
  if (recording_.greedy_ids.empty()) return;
  ++judged_;
  if (chooses(logits, recording_.greedy_ids[0], slack_)) ++equal_;
}

Status DecodeComparer::step(std::size_t step, std::span<const float> logits) {
  ++judged_;
  if (chooses(logits, recording_.greedy_ids[step + 1], slack_)) ++equal_;
  if (!stage_) return {};
  StageComparison& c = *stage_;
  std::vector<float> row(logits.size());
  DOPPLER_TRY(decode_f32(*logits_, step * row.size(), row));
  double worst = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double difference = distance(logits[i], row[i]);
    worst = std::max(worst, difference);
    keep_worst(c.worst, {step, i, row[i], logits[i]}, difference);
  }
  meter_.add(logits, row);
  const double error = worst == 0 ? 0 : worst / c.largest;
  c.token_errors.push_back(static_cast<float>(error));
  if (error > c.error) c.error = error, c.worst_token = step;
  if (error > c.tolerance && !c.first_bad_token) c.first_bad_token = step;
  ++c.tokens;
  return {};
}

void DecodeComparer::finish(Comparison& result) {
  result.decode_steps = judged_, result.top1_equal = equal_;
  result.decode = std::move(stage_);
  result.decode_logits = meter_.result();
}

}  // namespace doppler::diagnosis
