// The catalogue of repairs: for each kind of op, every way in which models have been known to compute it
// wrongly. At a wrong op each repair is tried on that op alone; the one that restores agreement names the
// cause.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "diagnosis/doctor/op_case.h"

namespace doppler::diagnosis {

// Where a repair may be tried: on an op whose own output is known; also within a chain of ops (op_chain.h);
// also on several ops of a chain at once, as it changes what the description says of all of them.
enum class Reach : std::uint8_t { kOp, kChain, kOps };

struct Repair {
  OpKind kind;
  std::string_view tries;  // for people: "epsilons", "other layers' windows"
  void (*attempt)(OpCase& opcase);
  Reach reach = Reach::kOp;
  bool joint = false;  // of two numbers together: hundreds of attempts, made last along a chain
};
std::span<const Repair> all_repairs();

// The attempt that explains a case best.
struct Explanation {
  Attempt attempt;  // cause "unknown" if nothing fits
  double confidence = 0;
  std::string ruled_out;  // the attempts that do not fit, and the ratio of the nearest
};
Explanation explain(OpCase& opcase);

namespace repairs {
std::string number(double x);  // for sentences: six significant digits
double tidy(double x);         // a measured number, without the digits that are its error
// The multiple of a weight with which the case's output comes nearest to its target; nothing if it stays
// where it is. `scaled` makes the change for a multiple. Costs some ten runs of the case.
std::optional<double> fitted_scale(const OpCase& c, const std::function<OpChange(double scale)>& scaled);
// repairs_norm.cpp
void norm_offset(OpCase& c);
void norm_eps(OpCase& c);
void norm_both(OpCase& c);  // offset and epsilon
void norm_input(OpCase& c);
void norm_weight(OpCase& c);
// repairs_vectors.cpp
void small_weights(OpCase& c);
// repairs_rope.cpp
void rope_theta(OpCase& c);
void rope_layout(OpCase& c);
void rope_scaling(OpCase& c);
void rope_both(OpCase& c);  // base and scaling
void rope_position(OpCase& c);
void rope_dims(OpCase& c);
void rope_input(OpCase& c);
void rope_measured(OpCase& c);
// repairs_attention.cpp
void attention_scale(OpCase& c);
void attention_softcap(OpCase& c);
void attention_both(OpCase& c);  // scale and softcap
void attention_scale_and_window(OpCase& c);
void attention_window(OpCase& c);
void attention_kind(OpCase& c);
void attention_heads(OpCase& c);
void attention_cache(OpCase& c);
void attention_search(OpCase& c);
// repairs_elements.cpp
void embed_scale(OpCase& c);
void embed_rows(OpCase& c);
void activation(OpCase& c);
void residual(OpCase& c);
void softcap(OpCase& c);
// repairs_fused.cpp
void weight_fused(OpCase& c);
// repairs_factors.cpp
void weight_factors(OpCase& c);
void weight_columns(OpCase& c);
// repairs_bias.cpp
void weight_bias(OpCase& c);
// repairs_weight.cpp
void weight_values(OpCase& c);
void weight_rows(OpCase& c);
void weight_scale(OpCase& c);
void weight_others(OpCase& c);
void weight_layout(OpCase& c);
void weight_one_value(OpCase& c);
void matmul_input(OpCase& c);
// repairs_experts.cpp
void experts_order(OpCase& c);
void experts_parted(OpCase& c);
void experts_layout(OpCase& c);
void experts_bias(OpCase& c);  // and scales
void route_weights(OpCase& c);
void route_choice(OpCase& c);
void gated_limits(OpCase& c);
void search_limit(OpCase& c);
void attention_sinks(OpCase& c);
// repairs_one_expert.cpp
void one_expert(OpCase& c);
// repairs_states.cpp
void convolution(OpCase& c);
void decay_rate(OpCase& c);
void time_step(OpCase& c);
void state(OpCase& c);
void left_out_step(OpCase& c);
void multiplier(OpCase& c);
void residual_scale(OpCase& c);
void position_scale(OpCase& c);
// repairs_along.cpp
void weight_along(OpCase& c);
void rows_along(OpCase& c);
void head_weight(OpCase& c);
}  // namespace repairs

}  // namespace doppler::diagnosis
