// What families with recurrent layers have in common to say about a spec.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/family.h"
#include "model/spec_builder.h"

namespace doppler {

// Of models in which nothing depends on positions; their published files give none.
inline constexpr std::uint64_t kAnyContext = 1 << 20;

// A kind of layer by the names that configs give it.
struct LayerKind {
  std::string_view name;
  bool attention = false, recurrent = false, ffn = true;
};

// The kinds of all layers: from the list `key` if it is there, else as kind_of(layer) says. A layer is set to
// have what its kind has; one without feed-forward or without a mixer has no norm for it. Errors: kCorrupt
// for a list of another length than the layers; kUnsupported for a name that `kinds` lacks.
Status read_layer_kinds(SpecBuilder& builder, std::string_view key, std::span<const LayerKind> kinds,
                        const std::function<std::string_view(std::size_t layer)>& kind_of, std::string rule);

// Gives every layer of a recurrent kind this recurrent half, and notes its sizes. Errors: kCorrupt for widths
// that contradict each other or are too large to be true.
Status set_recurrent(SpecBuilder& builder, const RecurrentSpec& recurrent);

// Reads the limits of the time step (time_step_limit), of which the upper one may be infinite.
Status read_step_limits(SpecBuilder& builder, RecurrentSpec& recurrent);

// The activation behind the convolution, which the key says; that of gates is SiLU in any case.
Status read_convolution_activation(SpecBuilder& builder, std::string_view key, RecurrentSpec& recurrent);

// The keys of a family's sizes, and their defaults.
struct Mamba2Keys {
  std::string_view heads, head_dim, groups, states, taps, conv_bias, activation;
  std::uint32_t default_heads, default_head_dim, default_groups, default_states;
};
// A Mamba 2 whose gate comes before a norm over the whole inner width. Errors: those of the getters and of
// what it reads by the functions above.
Result<RecurrentSpec> read_mamba2(SpecBuilder& builder, const Mamba2Keys& keys);
// The flag `key` for biases of both projections.
Status read_projection_bias(SpecBuilder& builder, std::string_view key, RecurrentSpec& recurrent);
// The inner width that is `expand` times the hidden one. Errors: kCorrupt if it is too large to be true.
Result<std::uint32_t> checked_inner(SpecBuilder& builder, std::uint32_t expand);

// Whether two names of a file say one thing, as new and old ones do.
std::string_view known_key(const ConfigReader& config, std::string_view now, std::string_view before);

extern const FamilyRule kMambaRule;

// Files of the original Mamba and of what follows it: one part a layer, called mixer, whatever it is; with
// backbone for model.
inline constexpr WeightName kBackboneNames[] = {
    {WeightRole::kTokenEmbedding, "model.embeddings.weight"},
    {WeightRole::kAttnNorm, "model.layers.{}.norm.weight"},
    {WeightRole::kFfnNorm, "model.layers.{}.norm.weight"},
    {WeightRole::kQ, "model.layers.{}.mixer.q_proj.weight"},
    {WeightRole::kK, "model.layers.{}.mixer.k_proj.weight"},
    {WeightRole::kV, "model.layers.{}.mixer.v_proj.weight"},
    {WeightRole::kO, "model.layers.{}.mixer.o_proj.weight"},
    {WeightRole::kQBias, "model.layers.{}.mixer.q_proj.bias", WeightCondition::kQkvBias},
    {WeightRole::kKBias, "model.layers.{}.mixer.k_proj.bias", WeightCondition::kQkvBias},
    {WeightRole::kVBias, "model.layers.{}.mixer.v_proj.bias", WeightCondition::kQkvBias},
    {WeightRole::kOBias, "model.layers.{}.mixer.o_proj.bias", WeightCondition::kOBias},
    {WeightRole::kMixerIn, "model.layers.{}.mixer.in_proj.weight"},
    {WeightRole::kMixerInBias, "model.layers.{}.mixer.in_proj.bias", WeightCondition::kInBias},
    {WeightRole::kConvolution, "model.layers.{}.mixer.conv1d.weight"},
    {WeightRole::kConvolutionBias, "model.layers.{}.mixer.conv1d.bias", WeightCondition::kConvolutionBias},
    {WeightRole::kStateProjection, "model.layers.{}.mixer.x_proj.weight"},
    {WeightRole::kStepProjection, "model.layers.{}.mixer.dt_proj.weight"},
    {WeightRole::kStepBias, "model.layers.{}.mixer.dt_proj.bias", WeightCondition::kMamba1},
    {WeightRole::kDecayRates, "model.layers.{}.mixer.A_log"},
    {WeightRole::kStepBias, "model.layers.{}.mixer.dt_bias"},
    {WeightRole::kDecayRate, "model.layers.{}.mixer.A_log"},
    {WeightRole::kSkip, "model.layers.{}.mixer.D"},
    {WeightRole::kMixerNorm, "model.layers.{}.mixer.norm.weight"},
    {WeightRole::kMixerOut, "model.layers.{}.mixer.out_proj.weight"},
    {WeightRole::kMixerOutBias, "model.layers.{}.mixer.out_proj.bias", WeightCondition::kMixerOutBias},
    {WeightRole::kUp, "model.layers.{}.mixer.up_proj.weight"},
    {WeightRole::kUpBias, "model.layers.{}.mixer.up_proj.bias", WeightCondition::kDenseBias},
    {WeightRole::kDown, "model.layers.{}.mixer.down_proj.weight"},
    {WeightRole::kDownBias, "model.layers.{}.mixer.down_proj.bias", WeightCondition::kDenseBias},
    {WeightRole::kRouter, "model.layers.{}.mixer.gate.weight"},
    {WeightRole::kRouterCorrection, "model.layers.{}.mixer.gate.e_score_correction_bias"},
    {WeightRole::kUpExperts, "model.layers.{}.mixer.experts.{}.up_proj.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.mixer.experts.{}.down_proj.weight"},
    {WeightRole::kSharedUp, "model.layers.{}.mixer.shared_experts.up_proj.weight"},
    {WeightRole::kSharedUpBias, "model.layers.{}.mixer.shared_experts.up_proj.bias",
     WeightCondition::kSharedBias},
    {WeightRole::kSharedDown, "model.layers.{}.mixer.shared_experts.down_proj.weight"},
    {WeightRole::kSharedDownBias, "model.layers.{}.mixer.shared_experts.down_proj.bias",
     WeightCondition::kSharedBias},
    {WeightRole::kFinalNorm, "model.norm_f.weight"},
};

}  // namespace doppler
