// What families with experts have in common: which keys of config.json say how many there are, which layers
// have them, and how a token is sent to them.
#pragma once

#include <functional>
#include <optional>

#include "model/families/rules.h"

namespace doppler {

// What a family's configuration class says where the file does not, and the family's own rule of routing.
struct ExpertDefaults {
  std::optional<std::uint64_t> experts, top_k, width;  // width: none where experts are intermediate_size wide
  RouterSpec router;                                   // but for top_k
  bool reads_normalise = false;                        // norm_topk_prob; router.normalise is its default
  bool reads_scale = false;                            // routed_scaling_factor
  bool reads_groups = false;                           // n_group, topk_group
};

// Gives the layers for which has_experts holds experts. Errors: kCorrupt for numbers that contradict each
// other.
Status read_experts(SpecBuilder& builder, const ExpertDefaults& defaults,
                    const std::function<bool(std::size_t layer)>& has_experts);
inline bool every_layer(std::size_t) {
  return true;
}

// The layers but for those of mlp_only_layers, of which each decoder_sparse_step-th has experts.
Result<std::vector<bool>> read_sparse_layers(SpecBuilder& builder);

// The shared expert of every layer with experts.
void set_shared_expert(SpecBuilder& builder, std::uint64_t width, bool gate, std::string source);

// num_nextn_predict_layers: layers behind the last that predict several tokens at once, which do not run.
Status read_predicting_layers(SpecBuilder& builder);

// block_sparse_moe with w1, w2 and w3 (Mixtral).
inline constexpr std::array<WeightName, 5> kMixtralNames = {{
    {WeightRole::kRouter, "model.layers.{}.block_sparse_moe.gate.weight"},
    {WeightRole::kRouterCorrection, "model.layers.{}.block_sparse_moe.e_score_correction_bias"},
    {WeightRole::kGateExperts, "model.layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    {WeightRole::kUpExperts, "model.layers.{}.block_sparse_moe.experts.{}.w3.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.block_sparse_moe.experts.{}.w2.weight"},
}};

}  // namespace doppler
