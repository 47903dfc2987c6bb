#include "diagnosis/doctor/repairs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"

namespace doppler::diagnosis {

std::string repairs::number(double x) {
  return fmt::format("{:.6g}", x);
}

double repairs::tidy(double x) {
  for (const double digits : {1.0, 2.0, 10.0, 100.0, 1000.0, 10000.0}) {
    const double rounded = std::round(x * digits) / digits;
    if (rounded != 0 && std::abs(rounded - x) < 2e-4 * std::abs(x)) return rounded;
  }
  return x;
}

std::optional<double> repairs::fitted_scale(const OpCase& c,
                                            const std::function<OpChange(double scale)>& scaled) {
  constexpr double kStep = 1e-2;  // large against the rounding of what is computed
  constexpr int kMostSteps = 5;
  double scale = 1;
  for (int i = 0; i < kMostSteps; ++i) {
    const auto here = c.output_with(scaled(scale)), beside = c.output_with(scaled(scale * (1 + kStep)));
    if (!here || !beside || here->size() != c.target().size()) return std::nullopt;
    double products = 0, squares = 0;
    for (std::size_t j = 0; j < here->size(); ++j) {
      const double weight = 1 / c.allowed_at(j / c.judged_width(), j % c.judged_width());
      const double slope = (static_cast<double>((*beside)[j]) - (*here)[j]) * weight;
      const double rest = (static_cast<double>(c.target()[j]) - (*here)[j]) * weight;
      if (!std::isfinite(slope) || !std::isfinite(rest)) continue;
      products += slope * rest, squares += slope * slope;
    }
    if (!(squares > 0)) return std::nullopt;
    const double by = products / squares * kStep;
    scale *= 1 + by;
    if (std::abs(by) < 1e-6) break;
  }
  if (!std::isfinite(scale) || std::abs(scale - 1) < 1e-3 || std::abs(scale) < 1e-4) return std::nullopt;
  return tidy(scale);
}

namespace {

// In the order of plausibility: of several that fit equally well the first counts.
constexpr auto kRepairs = std::to_array<Repair>({
    {OpKind::kEmbed, "embedding scales", repairs::embed_scale, Reach::kChain},
    {OpKind::kEmbed, "transposed, shifted and missing rows", repairs::embed_rows, Reach::kChain},
    {OpKind::kRmsNorm, "weight offsets", repairs::norm_offset, Reach::kOps},
    {OpKind::kRmsNorm, "epsilons", repairs::norm_eps, Reach::kOps},
    {OpKind::kRmsNorm, "no norm, other inputs", repairs::norm_input, Reach::kChain},
    {OpKind::kRmsNorm, "offset and epsilon together", repairs::norm_both, Reach::kOps, true},
    {OpKind::kRmsNorm, "other norms' weights, damaged weights", repairs::norm_weight, Reach::kChain},
    {OpKind::kRmsNorm, "weights and biases that were measured", repairs::small_weights, Reach::kChain},
    {OpKind::kMatmul, "NaN and zeros in the weight", repairs::weight_values},
    {OpKind::kMatmul, "biases", repairs::weight_bias, Reach::kChain},
    {OpKind::kMatmul, "rows of siblings", repairs::weight_fused},
    {OpKind::kMatmul, "permuted and shifted rows", repairs::weight_rows},
    {OpKind::kMatmul, "transposed, shifted and otherwise read weights, types, block layouts",
     repairs::weight_layout},
    {OpKind::kMatmul, "weights read otherwise, of other layers, scaled", repairs::weight_along,
     Reach::kChain},
    {OpKind::kMatmul, "rows of queries and keys in the other order of pairs", repairs::rows_along,
     Reach::kOps, true},
    {OpKind::kMatmul, "scales", repairs::weight_scale},
    {OpKind::kMatmul, "other tensors", repairs::weight_others},
    {OpKind::kMatmul, "other inputs", repairs::matmul_input, Reach::kChain},
    {OpKind::kMatmul, "permuted columns", repairs::weight_columns},
    {OpKind::kMatmul, "scales of rows, columns and blocks", repairs::weight_factors},
    {OpKind::kMatmul, "single values", repairs::weight_one_value},
    {OpKind::kRope, "layouts", repairs::rope_layout, Reach::kOps},
    {OpKind::kRope, "bases", repairs::rope_theta, Reach::kOps},
    {OpKind::kRope, "scalings", repairs::rope_scaling, Reach::kOps},
    {OpKind::kRope, "positions", repairs::rope_position, Reach::kOps},
    {OpKind::kRope, "rotating dims", repairs::rope_dims, Reach::kOps},
    {OpKind::kRope, "other inputs", repairs::rope_input, Reach::kOps},
    {OpKind::kRope, "base, scaling, layout and dims together", repairs::rope_both, Reach::kOps, true},
    {OpKind::kRope, "the angles that were measured", repairs::rope_measured},
    {OpKind::kAttention, "score scales", repairs::attention_scale, Reach::kOps},
    {OpKind::kAttention, "softcaps", repairs::attention_softcap, Reach::kOps},
    {OpKind::kAttention, "windows and masks", repairs::attention_window, Reach::kOps},
    {OpKind::kAttention, "layers of the other kind", repairs::attention_kind},
    {OpKind::kAttention, "head maps", repairs::attention_heads, Reach::kOps},
    {OpKind::kAttention, "sinks", repairs::attention_sinks, Reach::kOps},
    {OpKind::kAttention, "cache positions", repairs::attention_cache, Reach::kChain},
    {OpKind::kAttention, "scale and softcap together", repairs::attention_both, Reach::kOps, true},
    {OpKind::kAttention, "scale and window together", repairs::attention_scale_and_window, Reach::kOps, true},
    {OpKind::kAttention, "a search over scales and softcaps", repairs::attention_search},
    {OpKind::kAttention, "sinks that were measured", repairs::small_weights, Reach::kChain},
    {OpKind::kAdd, "multipliers", repairs::residual_scale, Reach::kOps},
    {OpKind::kAdd, "missing and other terms", repairs::residual, Reach::kChain},
    {OpKind::kGated, "activations", repairs::activation, Reach::kOps},
    {OpKind::kGated, "limits and offsets", repairs::gated_limits, Reach::kOps},
    {OpKind::kGated, "a search over limits", repairs::search_limit},
    {OpKind::kChoose, "scores, corrections, groups", repairs::route_choice, Reach::kOps},
    {OpKind::kWeigh, "scores, sums, scales", repairs::route_weights, Reach::kOps},
    {OpKind::kExpertMatmul, "other orders of experts", repairs::experts_order, Reach::kOps},
    {OpKind::kExpertMatmul, "gates and ups parted otherwise", repairs::experts_parted, Reach::kOps},
    {OpKind::kExpertMatmul, "biases and scales of experts", repairs::experts_bias, Reach::kChain},
    {OpKind::kExpertMatmul, "experts' weights read otherwise", repairs::experts_layout, Reach::kOps},
    {OpKind::kExpertMatmul, "single experts' weights", repairs::one_expert, Reach::kOps},
    {OpKind::kHeadMatmul, "weights read otherwise, scaled", repairs::head_weight, Reach::kChain},
    {OpKind::kScaleQuery, "factors of positions", repairs::position_scale, Reach::kOps},
    {OpKind::kConvolution, "shifts, taps, biases, activations", repairs::convolution, Reach::kChain},
    {OpKind::kConvolution, "taps and biases that were measured", repairs::small_weights, Reach::kChain},
    {OpKind::kTimeStep, "biases and limits", repairs::time_step, Reach::kChain},
    {OpKind::kTimeStep, "a bias that was measured", repairs::small_weights, Reach::kChain},
    {OpKind::kDecay, "signs, rates and roundings", repairs::decay_rate, Reach::kChain},
    {OpKind::kDecay, "rates that were measured", repairs::small_weights, Reach::kChain},
    {OpKind::kDeltaRule, "where states begin", repairs::state, Reach::kChain},
    {OpKind::kScan, "where states begin", repairs::state, Reach::kChain},
    {OpKind::kScan, "a weight that was measured", repairs::small_weights, Reach::kChain},
    {OpKind::kChannelScan, "where states begin, rates", repairs::state, Reach::kChain},
    {OpKind::kChannelScan, "weights that were measured", repairs::small_weights, Reach::kChain},
    {OpKind::kScale, "a weight that was measured", repairs::small_weights, Reach::kChain},
    {OpKind::kSoftcap, "norms and gates that are left out", repairs::left_out_step, Reach::kChain},
    {OpKind::kSoftcap, "caps and multipliers", repairs::softcap, Reach::kChain},
});

// Repairs that an op alone has better ones for.
bool is_of_chains(const Repair& repair) {
  return repair.attempt == repairs::weight_along || repair.attempt == repairs::rows_along;
}

// A repair that reduces the error by this factor is the cause, even if some rounding remains, as of a tensor
// that was stored again.
constexpr double kNearly = 300;
// The error that rounding to bfloat16 leaves, in float32's allowed errors; more is no rounding.
constexpr double kMostLeft = 5000;

// The first attempt that fits, unless a later one fits far better.
const Attempt* best_of(const std::vector<Attempt>& attempts) {
  const Attempt* best = nullptr;
  for (const Attempt& attempt : attempts) {
    if (attempt.ratio > 1) continue;
    if (best == nullptr || attempt.ratio < 0.1 * best->ratio) best = &attempt;
  }
  return best;
}

double confidence_in(const OpCase& c, const Attempt& best) {
  // How far the repair reduces the error: from `misfit` times the allowed error to `ratio`.
  const double gain = c.misfit().ratio / std::max(best.ratio, 0.02);
  double confidence = best.weight * (1 - 1 / (1 + gain / 4));
  std::map<std::string, int> others;
  for (const Attempt& attempt : c.attempts()) {
    if (attempt.ratio <= 1 && attempt.cause != best.cause) ++others[attempt.cause];
  }
  return confidence / (1 + 0.5 * static_cast<double>(others.size()));
}

// What explains the case as well and asks for another repair.
std::string equally_good(const OpCase& c, const Attempt& best) {
  std::string text;
  std::map<std::string, bool> named = {{best.cause, true}};
  for (const Attempt& attempt : c.attempts()) {
    const bool as_good = attempt.ratio <= std::max(10 * best.ratio, 0.1) && attempt.ratio <= 1;
    if (as_good && attempt.weight >= best.weight && !std::exchange(named[attempt.cause], true))
      text += fmt::format("; or just as well ({}) when {}", attempt.cause, attempt.says);
  }
  return text;
}

}  // namespace

std::span<const Repair> all_repairs() {
  return kRepairs;
}

Explanation explain(OpCase& c) {
  std::vector<std::string> tried;
  for (const Repair& repair : kRepairs) {
    if (repair.kind != c.op().kind || is_of_chains(repair)) continue;
    const bool found_before = c.explained();
    const std::size_t left_out = c.left_out().size();
    repair.attempt(c);
    if ((found_before || !c.explained()) && c.left_out().size() == left_out) tried.emplace_back(repair.tries);
    // A good explanation needs no searches with more freedom than it has.
    const Attempt* best = best_of(c.attempts());
    if (best != nullptr && best->ratio < 0.5 && best->weight >= 1 && &repair != &kRepairs.back()) {
      bool more_of_kind = false;
      for (const Repair* next = &repair + 1; next != kRepairs.data() + kRepairs.size(); ++next)
        more_of_kind |= next->kind == c.op().kind;
      if (!more_of_kind) break;
    }
  }
  Explanation explanation;
  const Attempt* best = best_of(c.attempts());
  const auto nearest_of_all = std::ranges::min_element(c.attempts(), {}, &Attempt::ratio);
  if (best == nullptr && nearest_of_all != c.attempts().end() &&
      nearest_of_all->ratio * kNearly < c.misfit().ratio && nearest_of_all->ratio < kMostLeft) {
    explanation.attempt = *nearest_of_all;
    explanation.attempt.says += fmt::format(
        ", nearly (what is left is {:.2g} times the allowed error, as if something was rounded again)",
        nearest_of_all->ratio);
    explanation.confidence = 0.7 * nearest_of_all->weight;
  } else if (best != nullptr) {
    explanation.attempt = *best;
    explanation.attempt.says += equally_good(c, *best);
    explanation.confidence = confidence_in(c, *best);
  } else {
    explanation.attempt = {.cause = "unknown", .ratio = c.misfit().ratio};
    explanation.confidence = 0;
    const auto nearest = std::ranges::min_element(c.attempts(), {}, &Attempt::ratio);
    if (nearest != c.attempts().end() && nearest->ratio < 0.5 * c.misfit().ratio)
      tried.push_back(
          fmt::format("nearest: {} leaves {:.2g} times the allowed error", nearest->says, nearest->ratio));
  }
  explanation.ruled_out = join(tried, ", ");
  if (best == nullptr && !c.left_out().empty())
    explanation.ruled_out += "; too large to be tried: " + join(c.left_out(), ", ");
  return explanation;
}

}  // namespace doppler::diagnosis
