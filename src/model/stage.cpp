#include "model/stage.h"

#include <fmt/format.h>

#include <array>

namespace doppler {
namespace {

constexpr std::array<StageInfo, static_cast<std::size_t>(Stage::kCount)> kStages = {{
    {Stage::kNone, "", false, ""},
    {Stage::kEmbedOut, "embed_out", false, "token embeddings, scaled"},
    {Stage::kPerLayerInputs, "per_layer_inputs", false, "each layer's own embedding of the tokens"},
    {Stage::kAltupIn, "altup_in", false, "the residual streams before the first layer"},
    {Stage::kAltupPredicted, "altup_predicted", true, "the residual streams as predicted before the layer"},
    {Stage::kAttnInput, "attn_input", true, "residual stream entering the layer"},
    {Stage::kAttnNormed, "attn_normed", true, "after the norm before attention"},
    {Stage::kLaurelOut, "laurel_out", true, "the low-rank branch beside attention, with what it reads"},
    {Stage::kQAProj, "q_a_proj", true, "latent query before its norm"},
    {Stage::kQANorm, "q_a_norm", true, "latent query after its norm"},
    {Stage::kKvAProj, "kv_a_proj", true, "latent of keys and values, then the shared rotary key"},
    {Stage::kKvANorm, "kv_a_norm", true, "latent of keys and values after its norm"},
    {Stage::kSsmIn, "ssm_in", true, "input projection of a recurrent layer"},
    {Stage::kSsmInBa, "ssm_in_ba", true, "projection of beta and decay, by key head"},
    {Stage::kSsmInB, "ssm_in_b", true, "projection of beta before its sigmoid"},
    {Stage::kSsmInA, "ssm_in_a", true, "projection of the decay before bias and softplus"},
    {Stage::kConvIn, "conv_in", true, "input of the causal convolution"},
    {Stage::kConvOut, "conv_out", true, "the causal convolution, with bias and activation"},
    {Stage::kDeltaQ, "delta_q", true, "queries of the delta net, normed and scaled"},
    {Stage::kDeltaK, "delta_k", true, "keys of the delta net, normed"},
    {Stage::kDeltaV, "delta_v", true, "values of the delta net"},
    {Stage::kDeltaBeta, "delta_beta", true, "share of a value that the delta net writes"},
    {Stage::kDeltaDecay, "delta_decay", true, "logarithm of the delta net's decay"},
    {Stage::kSsmX, "ssm_x", true, "what Mamba's state takes in"},
    {Stage::kSsmXProj, "ssm_x_proj", true, "projection of time step, B and C (Mamba 1)"},
    {Stage::kSsmDtNorm, "ssm_dt_norm", true, "norm of the time step before its projection"},
    {Stage::kSsmDt, "ssm_dt", true, "time step after bias and softplus"},
    {Stage::kSsmA, "ssm_a", true, "logarithm of the decay of Mamba's state"},
    {Stage::kSsmB, "ssm_b", true, "how the state takes x in"},
    {Stage::kSsmC, "ssm_c", true, "how the state is read"},
    {Stage::kSsmOut, "ssm_out", true, "what the recurrence gives, before gate and norm"},
    {Stage::kConvState, "conv_state", true,
     "the last inputs of the convolution; recordings, after the prompt"},
    {Stage::kState, "state", true, "the recurrent state; recordings, after the prompt"},
    {Stage::kSsmGate, "ssm_gate", true, "gate of the recurrent layer before its activation"},
    {Stage::kSsmGated, "ssm_gated", true, "after gate and norm: what the output projection reads"},
    {Stage::kSsmOProj, "ssm_o_proj", true, "output projection beside an attention's"},
    {Stage::kQProj, "q_proj", true, "query projection, with bias"},
    {Stage::kKProj, "k_proj", true, "key projection, with bias"},
    {Stage::kVProj, "v_proj", true, "value projection, with bias"},
    {Stage::kAttnGate, "attn_gate", true, "gate of the attention's output before its sigmoid"},
    {Stage::kQNorm, "q_norm", true, "queries after their norm"},
    {Stage::kKNorm, "k_norm", true, "keys after their norm"},
    {Stage::kVNorm, "v_norm", true, "values after their norm, which has no weight"},
    {Stage::kQRope, "q_rope", true, "queries after rotary embedding"},
    {Stage::kKRope, "k_rope", true, "keys after rotary embedding"},
    {Stage::kQScaled, "q_scaled", true, "queries scaled by their position"},
    {Stage::kAttnScores, "attn_scores", true,
     "scaled and softcapped scores before the softmax, -inf where masked"},
    {Stage::kAttnOut, "attn_out", true, "the heads' output before the output projection"},
    {Stage::kAttnGated, "attn_gated", true, "the heads' output times the sigmoid of its gate"},
    {Stage::kOProj, "o_proj", true, "output projection"},
    {Stage::kPostAttnNorm, "post_attn_norm", true, "norm of the attention result"},
    {Stage::kPostAttn, "post_attn", true, "residual stream after attention"},
    {Stage::kFfnNormed, "ffn_normed", true, "after the norm before the feed-forward"},
    {Stage::kRouterNormed, "router_normed", true, "what a router with a norm of its own reads"},
    {Stage::kRouterLogits, "router_logits", true, "expert scores"},
    {Stage::kRouterIds, "router_ids", true, "chosen experts, best first"},
    {Stage::kRouterWeights, "router_weights", true, "weights of the chosen experts"},
    {Stage::kExpertInputs, "expert_inputs", true, "what each chosen expert reads, where weights multiply it"},
    {Stage::kFfnGate, "ffn_gate", true, "gate projection before its activation"},
    {Stage::kFfnUp, "ffn_up", true, "up projection"},
    {Stage::kFfnAct, "ffn_act", true, "activation(gate) * up"},
    {Stage::kFfnExperts, "ffn_experts", true, "what each chosen expert gives"},
    {Stage::kSharedGateProj, "shared_gate_proj", true, "gate projection of a shared expert with a gate"},
    {Stage::kSharedUp, "shared_up", true, "up projection of the shared expert"},
    {Stage::kSharedAct, "shared_act", true, "activation(gate) * up of the shared expert"},
    {Stage::kSharedGate, "shared_gate", true,
     "the shared expert's gate before its sigmoid; without one, its gate projection"},
    {Stage::kFfnShared, "ffn_shared", true, "what the shared expert adds"},
    {Stage::kFfnMlp, "ffn_mlp", true, "feed-forward beside experts"},
    {Stage::kFfnMlpNorm, "ffn_mlp_norm", true, "norm of the feed-forward beside experts"},
    {Stage::kMoeNormed, "moe_normed", true, "what experts beside a feed-forward read"},
    {Stage::kMoeGate, "moe_gate", true, "their gates before the activation"},
    {Stage::kMoeUp, "moe_up", true, "their ups"},
    {Stage::kMoeAct, "moe_act", true, "their activation(gate) * up"},
    {Stage::kMoeOut, "moe_out", true, "their sum"},
    {Stage::kMoeNorm, "moe_norm", true, "norm of their sum"},
    {Stage::kFfnOut, "ffn_out", true, "feed-forward result before any norm"},
    {Stage::kPostFfnNorm, "post_ffn_norm", true, "norm of the feed-forward result"},
    {Stage::kAltupCorrected, "altup_corrected", true, "the residual streams after the layer's correction"},
    {Stage::kPleIn, "ple_in", true, "what the per-layer embedding's gate reads"},
    {Stage::kPleGate, "ple_gate", true, "gate of the per-layer embedding before its activation"},
    {Stage::kPleAct, "ple_act", true, "activation(gate) * per-layer embedding"},
    {Stage::kPleProj, "ple_proj", true, "projection of the per-layer embedding"},
    {Stage::kPleNorm, "ple_norm", true, "norm of the per-layer embedding's projection"},
    {Stage::kLayerOut, "layer_out", true, "residual stream leaving the layer"},
    {Stage::kPreFinalNorm, "pre_final_norm", false, "residual stream before the final norm"},
    {Stage::kFinalNorm, "final_norm", false, "after the final norm"},
    {Stage::kLogits, "logits", false, "head output before the final softcap"},
    {Stage::kLogitsFinal, "logits_final", false, "logits that are sampled from"},
}};

}  // namespace

const StageInfo& stage_info(Stage stage) {
  return kStages[static_cast<std::size_t>(stage)];
}

std::span<const StageInfo> all_stages() {
  return std::span(kStages).subspan(1);
}

std::optional<Stage> stage_from_name(std::string_view name) {
  if (name == "ffn_in") return Stage::kFfnNormed;
  for (const StageInfo& info : all_stages()) {
    if (info.name == name) return info.stage;
  }
  return std::nullopt;
}

std::string stage_key(Stage stage, int layer) {
  const StageInfo& info = stage_info(stage);
  return info.per_layer ? fmt::format("layers.{}.{}", layer, info.name) : std::string(info.name);
}

}  // namespace doppler
