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
    if (op.kind == OpKind::kRmsNorm && !op.weights.empty())
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
  if (c.setup().weights.empty()) return;
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
  if (c.direct()) return;  // what the weight should hold is measured
  if (const std::string other = same_bytes_as(c); !other.empty())
    c.keep({"stale_weight", fmt::format("{} is another than {}", name, other), {}, 0.5, 0.9});
}

}  // namespace doppler::diagnosis::repairs
