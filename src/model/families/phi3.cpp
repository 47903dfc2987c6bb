// Phi 3, 3.5 and Phi 4: q, k, v in one tensor, gate and up in another. Source: transformers' Phi3Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kPhi3Types[] = {"phi3"};
constexpr WeightRole kPhi3RopeFactors[] = {WeightRole::kRopeLongFactors, WeightRole::kRopeShortFactors};
constexpr WeightNames kPhi3GgufNames = {.style = NameStyle::kGguf, .rope_factors = kPhi3RopeFactors};

Status fill_phi3(SpecBuilder& builder) {
  builder.spec().fused_qkv = builder.spec().fused_gate_up = true;
  builder.note("fused", "qkv_proj, gate_up_proj", "rule of the phi3 family");
  DOPPLER_TRY(read_common(builder, {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_window_of_all_layers(builder));
  return read_rope(builder, {.theta = 10000, .rotary_part = 1});
}

}  // namespace

const FamilyRule kPhi3Rule = {
    "phi3", kPhi3Types, fill_phi3, {.architecture = "phi3", .weight_names = kPhi3GgufNames}};

}  // namespace doppler
