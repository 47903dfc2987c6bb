// Repairs of norms. The factors of a norm follow from its input and output, so weights are compared, not
// guessed.
#include <algorithm>
#include <cmath>
#include <ranges>

#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/weight_probe.h"
#include "model/rope.h"

namespace doppler::diagnosis::repairs {
namespace {

// What models use, the commonest first.
constexpr double kEpsilons[] = {1e-6, 1e-5, 1e-12, 1e-8, 1e-7, 1e-4, 1e-3, 0.0};

NormParams& norm_params(OpSetup& setup) {
  return std::get<NormParams>(setup.params);
}
const NormParams& norm_params(const OpCase& c) {
  return std::get<NormParams>(c.setup().params);
}

std::string where(const OpCase& c) {
  return c.layer() < 0 ? std::string() : fmt::format(" of layer {}", c.layer());
}

// The factor of each dim that makes the input the target, as the mean over tokens and heads; nothing if these
// contradict each other: then no weight explains the target.
std::optional<std::vector<float>> measured_factors(const OpCase& c) {
  const OpSetup& s = c.setup();
  const std::size_t dim = s.width / s.heads, rows = s.inputs[0].data.size() / dim;
  std::vector<double> products(dim), squares(dim);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* x = &s.inputs[0].data[r * dim];
    double sum = 0;
    for (std::size_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double inverse = 1 / std::sqrt(sum / static_cast<double>(dim) + norm_params(c).eps);
    for (std::size_t i = 0; i < dim; ++i) {
      const double normed = x[i] * inverse;
      products[i] += normed * c.target()[r * dim + i];
      squares[i] += normed * normed;
    }
  }
  std::vector<float> factors(dim);
  for (std::size_t i = 0; i < dim; ++i) {
    if (squares[i] == 0) return std::nullopt;
    factors[i] = static_cast<float>(products[i] / squares[i]);
  }
  return factors;
}

// Norm weights of the whole model, by role and layer.
struct NormWeight {
  Stage stage;
  std::size_t op;
  WeightId id;
};
std::vector<NormWeight> all_norms(const OpCase& c) {
  std::vector<NormWeight> norms;
  for (std::size_t i = 0; i < c.plan().ops.size(); ++i) {
    const Op& op = c.plan().ops[i];
    if (op.kind == OpKind::kRmsNorm)
      norms.push_back({c.plan().values[op.outputs[0]].stage, i, op.weights[0]});
  }
  return norms;
}

// Does the other norm, which is wrong, too, agree with our weight?
bool other_fits(const OpCase& c, std::size_t other) {
  auto recorded = c.context().experiment.recorded(other);
  if (!recorded || other == c.index()) return false;
  auto there = OpCase::open(c.context(), other, std::move(*recorded));
  if (!there || there->misfit().agrees()) return false;
  return there->ratio_with([&](OpSetup& s) { s.weights[0] = c.setup().weights[0]; }) <= 1;
}

}  // namespace

void norm_offset(OpCase& c) {
  for (const double offset : {0.0, 1.0}) {
    if (offset == norm_params(c).weight_offset) continue;
    c.attempt(
        "norm_weight_offset", fmt::format("the weight offset is {}", offset),
        fmt::format("Set rms_norm_weight_offset to {} (it is {}).", offset, norm_params(c).weight_offset),
        [&](OpSetup& s) { norm_params(s).weight_offset = offset; });
    c.add_setting("norm.weight_offset", number(offset));
  }
}

void norm_eps(OpCase& c) {
  for (const double eps : kEpsilons) {
    if (eps == norm_params(c).eps) continue;
    c.attempt("norm_eps", fmt::format("epsilon is {}", eps),
              fmt::format("Set rms_norm_eps to {} (it is {}).", eps, norm_params(c).eps),
              [&](OpSetup& s) { norm_params(s).eps = eps; });
    c.add_setting("norm.eps", number(eps));
  }
}

void norm_both(OpCase& c) {
  if (c.explained()) return;
  const NormParams own = norm_params(c);
  const double offset = own.weight_offset == 0 ? 1 : 0;
  for (const double eps : kEpsilons) {
    if (eps == own.eps) continue;
    c.attempt("norm_weight_offset", fmt::format("the weight offset is {} and epsilon {}", offset, eps),
              fmt::format("Set rms_norm_weight_offset to {} (it is {}) and rms_norm_eps to {} (it is {}).",
                          offset, own.weight_offset, eps, own.eps),
              [&](OpSetup& s) { norm_params(s) = {.eps = eps, .weight_offset = offset}; });
    c.add_setting("norm.weight_offset", number(offset));
    c.add_setting("norm.eps", number(eps));
  }
}

void norm_input(OpCase& c) {
  const bool heads = c.stage() == Stage::kQNorm || c.stage() == Stage::kKNorm;
  const bool post = c.stage() == Stage::kPostAttnNorm || c.stage() == Stage::kPostFfnNorm;
  c.consider(heads  ? "qk_norm_misplaced"
             : post ? "post_norm_extra"
                    : "norm_order",
             "there is no norm at all",
             fmt::format("Take the norm {}{} out.", stage_name(c.stage()), where(c)),
             c.setup().inputs[0].data);
  for (const OpCase::Other& other : c.others(c.setup().inputs[0].width)) {
    if (other.rows == c.setup().inputs[0].data) continue;
    c.attempt(heads ? "qk_norm_misplaced" : "norm_order",
              fmt::format("it reads {}", stage_key(other.stage, other.layer)),
              fmt::format("Let {}{} read {}.", stage_name(c.stage()), where(c), stage_name(other.stage)),
              [&](OpSetup& s) { s.inputs[0].data = other.rows; });
  }
  if (c.stage() != Stage::kQRope && c.stage() != Stage::kKRope) return;
  // A norm where the rotation should be.
  const AttentionSpec& a = c.context().spec.layers[static_cast<std::size_t>(c.layer())].attention;
  c.attempt("qk_norm_misplaced", "it is rotated here, and normalised before", {}, [&](OpSetup& s) {
    s.kind = OpKind::kRope;
    s.params = RopeParams{0, a.rope.layout};
    s.rope = make_rope_table(a.rope, c.context().experiment.rows().ids().size());
    s.weights.clear();
  });
}

void norm_weight(OpCase& c) {
  const std::string name = c.setup().weights[0].name;
  const auto stored = c.setup().read_weight();
  if (!stored) return;
  // Read as another type; NaN may be what comes of that.
  for (const Relayout& layout : relayouts(c.setup().weights[0], 0)) {
    std::vector<float> values(stored->size());
    if (std::string_view(layout.cause) != "wrong_dtype" || !layout.read(0, values)) continue;
    if (!c.direct() && !layout.same_size) continue;
    c.attempt(layout.cause, layout.says, layout.repair,
              [&](OpSetup& s) { s.set_weight({values.size()}, values); });
    if (layout.type)
      c.add_fix({Fix::Kind::kTensor,
                 name,
                 fmt::format("type {}", dtype_name(*layout.type)),
                 {},
                 layout.read,
                 layout.type});
  }
  if (c.explained()) return;
  const double offset = norm_params(c).weight_offset;
  if (std::ranges::any_of(*stored, [](float w) { return !std::isfinite(w); })) {
    c.keep({"weight_nan", fmt::format("{} holds finite values", name), {}, 0, 1});
    return;
  }
  for (const NormWeight& norm : all_norms(c)) {
    const TensorView& weight = c.context().weights[norm.id];
    if (weight.shape != c.setup().weights[0].shape || norm.id == c.op().weights[0]) continue;
    c.attempt(other_fits(c, norm.op)    ? "tensor_swapped"
              : norm.stage == c.stage() ? "stale_weight"
                                        : "norm_order",
              fmt::format("the weight is {}", weight.name),
              fmt::format("{} holds what belongs elsewhere: convert it again.", name),
              [&](OpSetup& s) { s.weights[0] = weight; });
    c.add_fix(
        {Fix::Kind::kTensor,
         name,
         fmt::format("the values of {}", weight.name),
         {},
         [read = weight](std::uint64_t, std::span<float> values) { return decode_f32(read, 0, values); }});
  }
  if (!c.direct()) {  // the factors cannot be measured
    if (const std::string other = same_bytes_as(c); !other.empty())
      c.keep({"stale_weight", fmt::format("{} is another than {}", name, other), {}, 0.5, 0.9});
    return;
  }
  const auto factors = measured_factors(c);
  if (!factors) return;
  // Does any weight explain it?
  std::vector<float> truth = *factors;
  for (float& w : truth) w = static_cast<float>(w - offset);
  const double ratio = c.ratio_with([&](OpSetup& s) { s.set_weight({truth.size()}, truth); });
  if (ratio > 1) return;
  if (const std::string other = same_bytes_as(c); !other.empty()) {
    c.keep({"stale_weight", fmt::format("{} is another than {}", name, other), {}, ratio, 1});
    return;
  }
  const std::size_t n = truth.size();
  const auto near = [](double a, double b) {
    return std::abs(a - b) <= 2e-3 * std::max(std::abs(a), std::abs(b)) + 1e-4;
  };
  std::size_t zeros = 0, good = 0;
  for (std::size_t i = n; i-- > 0 && (*stored)[i] == 0;) ++zeros;
  for (std::size_t i = 0; i + zeros < n; ++i) good += near((*stored)[i], truth[i]);
  if (zeros > 0 && good + zeros == n) {
    c.keep({"truncated_weight",
            fmt::format("the last {} of the {} values of {} are not zero", zeros, n, name),
            {},
            ratio,
            1});
    return;
  }
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < n; ++i)
    products += (*stored)[i] * truth[i], squares += (*stored)[i] * (*stored)[i];
  const double scale = squares > 0 ? products / squares : 0;
  if (std::ranges::all_of(std::views::iota(std::size_t{0}, n),
                          [&](std::size_t i) { return near((*stored)[i] * scale, truth[i]); })) {
    c.keep({"weight_scaled", fmt::format("{} is multiplied by {:.4g}", name, scale), {}, ratio, 1});
    return;
  }
  // A checkpoint of the other convention, perhaps rounded again.
  double mean = 0, spread = 0, size = 1;
  for (std::size_t i = 0; i < n; ++i) mean += (truth[i] - (*stored)[i]) / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    spread = std::max(spread, std::abs(truth[i] - (*stored)[i] - mean));
    size = std::max(size, std::abs(static_cast<double>(truth[i])));
  }
  if (std::abs(std::abs(mean) - 1) < 0.01 && spread < 0.01 * size) {
    c.keep({"norm_weight_offset",
            fmt::format("the weight offset is {:.0f}, as {} holds its weights {} 1", offset + mean, name,
                        mean < 0 ? "plus" : "minus"),
            fmt::format("Convert {} again without {} 1; or set rms_norm_weight_offset to {:.0f} (it is {}).",
                        name, mean < 0 ? "adding" : "subtracting", offset + mean, offset),
            ratio, 0.97});
    return;
  }
  for (std::size_t shift = 1; shift < n; ++shift) {
    const std::size_t wrapped = std::min(shift, n - shift);  // these have no counterpart
    std::size_t equal = 0, unequal_unshifted = 0;
    for (std::size_t i = 0; i < n; ++i) {
      equal += near((*stored)[(i + shift) % n], truth[i]);
      unequal_unshifted += !near((*stored)[i], truth[i]);
    }
    // Equal values cannot show a shift.
    if (equal + wrapped < n || wrapped > n / 4 || unequal_unshifted < n / 2) continue;
    c.keep({"weight_shifted",
            fmt::format("{} begins {} values {}", name, wrapped, shift <= n / 2 ? "later" : "earlier"),
            {},
            ratio,
            1});
    return;
  }
  std::size_t different = 0, first = n;
  for (std::size_t i = 0; i < n; ++i) {
    if (near((*stored)[i], truth[i])) continue;
    ++different;
    first = std::min(first, i);
  }
  c.keep({"weight_wrong",
          different == 0
              ? fmt::format("{} is read as it should be", name)
              : fmt::format("{} of the {} values of {} are others, the first at {}: {:.4g} instead of {:.4g}",
                            different, n, name, first, truth[first], (*stored)[first]),
          {},
          ratio,
          0.8});
}

}  // namespace doppler::diagnosis::repairs
