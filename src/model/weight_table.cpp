#include "model/weight_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "model/rope.h"

namespace doppler {
namespace {

using enum WeightRole;
using Kind = WeightKind;
using When = WeightCondition;
constexpr std::string_view kBraces = "{}";

using S = Size;
constexpr std::array<Size, 3> kFromParts = {};

// clang-format off
constexpr std::array<WeightInfo, static_cast<std::size_t>(kCount)> kTable = {{
    {kRopeDivisors, "rope divisors", Kind::kRopeFactors, Stage::kNone, {S::kRotaryPairs}, When::kDivisors,
     "", "rope_freqs.weight"},
    {kRopeLongFactors, "rope factors of long contexts", Kind::kRopeFactors, Stage::kNone, {S::kRotaryPairs},
     When::kLongRope, "", "rope_factors_long.weight"},
    {kRopeShortFactors, "rope factors of short contexts", Kind::kRopeFactors, Stage::kNone, {S::kRotaryPairs},
     When::kLongRope, "", "rope_factors_short.weight"},
    {kTokenEmbedding, "embedding", Kind::kEmbedding, Stage::kEmbedOut, {S::kVocab, S::kHidden}, When::kAlways,
     "model.embed_tokens.weight", "token_embd.weight"},
    {kPositionEmbedding, "embedding of positions", Kind::kEmbedding, Stage::kEmbedOut,
     {S::kPositions, S::kHidden}, When::kLearnedPositions, "model.embed_positions.weight",
     "position_embd.weight"},
    {kPerLayerEmbedding, "per-layer embedding", Kind::kEmbedding, Stage::kPerLayerInputs,
     {S::kPerLayerTokens, S::kPerLayerAll}, When::kPerLayer, "model.embed_tokens_per_layer.weight",
     "per_layer_token_embd.weight"},
    {kPerLayerModelProjection, "projection to per-layer inputs", Kind::kProjection, Stage::kPerLayerInputs,
     {S::kPerLayerAll, S::kHidden}, When::kPerLayer, "model.per_layer_model_projection.weight",
     "per_layer_model_proj.weight"},
    {kPerLayerProjectionNorm, "norm of per-layer inputs", Kind::kNorm, Stage::kPerLayerInputs, {S::kPerLayer},
     When::kPerLayer, "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},

    {kAltupProjection, "projection to a stream", Kind::kProjection, Stage::kAltupIn, {S::kHidden, S::kHidden},
     When::kAltupOthers, "model.altup_projections.{}.weight", "altup_proj.weight"},
    {kAltupUnprojection, "projection of a stream", Kind::kProjection, Stage::kPreFinalNorm,
     {S::kHidden, S::kHidden}, When::kAltupOthers, "model.altup_unembed_projections.{}.weight",
     "altup_unembd_proj.weight"},
    {kAltupRouterNorm, "norm of what weighs streams", Kind::kNorm, Stage::kAltupPredicted, {S::kHidden},
     When::kAltup, "model.layers.{}.altup.router_norm.weight", "blk.{}.altup_router_norm.weight"},
    {kAltupRouter, "weights of streams", Kind::kProjection, Stage::kAltupPredicted, {S::kStreams, S::kHidden},
     When::kAltup, "model.layers.{}.altup.modality_router.weight", "blk.{}.altup_router.weight"},
    {kAltupPrediction, "prediction of streams", Kind::kProjection, Stage::kAltupPredicted,
     {S::kStreamPairs, S::kStreams}, When::kAltup, "model.layers.{}.altup.prediction_coefs.weight", "blk.{}.altup_predict_coef.weight"},

    {kAttnNorm, "norm before attention", Kind::kNorm, Stage::kAttnNormed, {S::kHidden}, When::kAttnNorm,
     "model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {kAttnNormBias, "bias of the norm before attention", Kind::kBias, Stage::kAttnNormed, {S::kHidden},
     When::kAttnNormBias, "model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    {kLaurelDown, "low-rank branch", Kind::kProjection, Stage::kLaurelOut, {S::kLaurel, S::kHidden},
     When::kAltup, "model.layers.{}.laurel.linear_left.weight", "blk.{}.laurel_l.weight"},
    {kLaurelUp, "output of the low-rank branch", Kind::kProjection, Stage::kLaurelOut, {S::kHidden, S::kLaurel},
     When::kAltup, "model.layers.{}.laurel.linear_right.weight", "blk.{}.laurel_r.weight"},
    {kLaurelNorm, "norm of the low-rank branch", Kind::kNorm, Stage::kLaurelOut, {S::kHidden}, When::kAltup,
     "model.layers.{}.laurel.post_laurel_norm.weight", "blk.{}.laurel_post_norm.weight"},
    {kQDown, "latent queries", Kind::kProjection, Stage::kQAProj, {S::kQLatent, S::kHidden}, When::kLatentQ,
     "model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    {kQDownBias, "bias of latent queries", Kind::kBias, Stage::kQAProj, {S::kQLatent}, When::kLatentQBias,
     "model.layers.{}.self_attn.q_a_proj.bias", "blk.{}.attn_q_a.bias"},
    {kQDownNorm, "norm of latent queries", Kind::kNorm, Stage::kQANorm, {S::kQLatent}, When::kLatentQ,
     "model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight"},
    {kQUp, "queries of the latent", Kind::kProjection, Stage::kQProj, {S::kQueries, S::kQLatent}, When::kLatentQ,
     "model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
    {kKvDown, "latent keys and values", Kind::kProjection, Stage::kKvAProj, {S::kKvDown, S::kHidden},
     When::kLatent, "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    {kKvDownBias, "bias of latent keys and values", Kind::kBias, Stage::kKvAProj, {S::kKvDown},
     When::kLatentBias, "model.layers.{}.self_attn.kv_a_proj_with_mqa.bias", "blk.{}.attn_kv_a_mqa.bias"},
    {kKvDownNorm, "norm of latent keys and values", Kind::kNorm, Stage::kKvANorm, {S::kKvLatent}, When::kLatent,
     "model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    {kKvUp, "keys and values of the latent", Kind::kProjection, Stage::kKProj, {S::kKvUp, S::kKvLatent},
     When::kLatentWhole, "model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_kv_b.weight"},
    {kKUp, "keys of the latent", Kind::kProjection, Stage::kKProj, {S::kHeads, S::kKvLatent, S::kOwnDims},
     When::kLatentSplit, "", "blk.{}.attn_k_b.weight"},
    {kVUp, "values of the latent", Kind::kProjection, Stage::kVProj, {S::kHeads, S::kValueDim, S::kKvLatent},
     When::kLatentSplit, "", "blk.{}.attn_v_b.weight"},
    {kQkv, "queries, keys and values", Kind::kProjection, Stage::kQProj, kFromParts, When::kFusedQkv,
     "model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight", {}, {kQ, kK, kV}},
    {kQ, "queries", Kind::kProjection, Stage::kQProj, {S::kQueryRows, S::kHidden}, When::kQ,
     "model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", RotatedHeads::kQuery},
    {kK, "keys", Kind::kProjection, Stage::kKProj, {S::kKeys, S::kHidden}, When::kOwnK,
     "model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", RotatedHeads::kKey},
    {kV, "values", Kind::kProjection, Stage::kVProj, {S::kKeys, S::kHidden}, When::kOwnV,
     "model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {kQkvBias, "bias of queries, keys and values", Kind::kBias, Stage::kQProj, kFromParts, When::kFusedQkvBias,
     "model.layers.{}.self_attn.qkv_proj.bias", "blk.{}.attn_qkv.bias", {}, {kQBias, kKBias, kVBias}},
    {kQBias, "bias of queries", Kind::kBias, Stage::kQProj, {S::kQueryRows}, When::kQkvBias,
     "model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", RotatedHeads::kQuery},
    {kKBias, "bias of keys", Kind::kBias, Stage::kKProj, {S::kKeys}, When::kOwnKBias,
     "model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", RotatedHeads::kKey},
    {kVBias, "bias of values", Kind::kBias, Stage::kVProj, {S::kKeys}, When::kOwnVBias,
     "model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {kQNorm, "norm of queries", Kind::kNorm, Stage::kQNorm, {S::kQNorm}, When::kQkNorm,
     "model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {kQNormBias, "bias of the norm of queries", Kind::kBias, Stage::kQNorm, {S::kQNorm}, When::kQNormBias,
     "model.layers.{}.self_attn.q_norm.bias", "blk.{}.attn_q_norm.bias"},
    {kKNorm, "norm of keys", Kind::kNorm, Stage::kKNorm, {S::kKNorm}, When::kKNorm,
     "model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {kKNormBias, "bias of the norm of keys", Kind::kBias, Stage::kKNorm, {S::kKNorm}, When::kKNormBias,
     "model.layers.{}.self_attn.k_norm.bias", "blk.{}.attn_k_norm.bias"},
    {kSinks, "attention sinks", Kind::kBias, Stage::kAttnOut, {S::kHeads}, When::kSinks,
     "model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {kO, "attention output", Kind::kProjection, Stage::kOProj, {S::kHidden, S::kAttnOut}, When::kAttention,
     "model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {kOBias, "bias of attention output", Kind::kBias, Stage::kOProj, {S::kHidden}, When::kOBias,
     "model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"},

    {kMixerIn, "input of the recurrent half", Kind::kProjection, Stage::kSsmIn, {S::kMixerIn, S::kHidden},
     When::kInWhole, "model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight"},
    {kMixerInBias, "bias of the recurrent half's input", Kind::kBias, Stage::kSsmIn, {S::kMixerIn},
     When::kInBias, "model.layers.{}.mamba.in_proj.bias", "blk.{}.ssm_in.bias"},
    {kMixerInConv, "input of the convolution", Kind::kProjection, Stage::kConvIn, {S::kChannels, S::kHidden},
     When::kInSeparate, "model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight"},
    {kMixerInGate, "gate of the recurrent half", Kind::kProjection, Stage::kSsmGate, {S::kInner, S::kHidden},
     When::kInSeparate, "model.layers.{}.linear_attn.in_proj_z.weight", "blk.{}.attn_gate.weight"},
    {kMixerInB, "shares of values that are written", Kind::kProjection, Stage::kSsmInB,
     {S::kMixerHeads, S::kHidden}, When::kInSeparate, "model.layers.{}.linear_attn.in_proj_b.weight",
     "blk.{}.ssm_beta.weight"},
    {kMixerInA, "decays", Kind::kProjection, Stage::kSsmInA, {S::kMixerHeads, S::kHidden}, When::kInSeparate,
     "model.layers.{}.linear_attn.in_proj_a.weight", "blk.{}.ssm_alpha.weight"},
    {kMixerInBa, "shares and decays", Kind::kProjection, Stage::kSsmInBa, {S::kMixerInBa, S::kHidden},
     When::kInByKeyHead, "model.layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight"},
    {kConvolution, "convolution", Kind::kConvolution, Stage::kConvOut, {S::kChannels, S::kTaps},
     When::kRecurrent, "model.layers.{}.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight"},
    {kConvolutionBias, "bias of the convolution", Kind::kBias, Stage::kConvOut, {S::kChannels},
     When::kConvolutionBias, "model.layers.{}.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    {kStateProjection, "time step, B and C", Kind::kProjection, Stage::kSsmXProj,
     {S::kStateProjection, S::kInner}, When::kMamba1, "model.layers.{}.mamba.x_proj.weight",
     "blk.{}.ssm_x.weight"},
    {kStepNorm, "norm of the time step", Kind::kNorm, Stage::kSsmDtNorm, {S::kRank}, When::kPartNorms,
     "model.layers.{}.mamba.dt_layernorm.weight", "blk.{}.ssm_dt_norm.weight"},
    {kStateInNorm, "norm of B", Kind::kNorm, Stage::kSsmB, {S::kStates}, When::kPartNorms,
     "model.layers.{}.mamba.b_layernorm.weight", "blk.{}.ssm_b_norm.weight"},
    {kStateOutNorm, "norm of C", Kind::kNorm, Stage::kSsmC, {S::kStates}, When::kPartNorms,
     "model.layers.{}.mamba.c_layernorm.weight", "blk.{}.ssm_c_norm.weight"},
    {kStepProjection, "time step", Kind::kProjection, Stage::kSsmDt, {S::kInner, S::kRank}, When::kMamba1,
     "model.layers.{}.mamba.dt_proj.weight", "blk.{}.ssm_dt.weight"},
    {kStepBias, "bias of the time step", Kind::kBias, Stage::kSsmDt, {S::kMixerHeads}, When::kMemory,
     "model.layers.{}.mamba.dt_bias", "blk.{}.ssm_dt.bias"},
    {kDecayRate, "decay rates", Kind::kRecurrence, Stage::kSsmA, {S::kMixerHeads}, When::kOneRate,
     "model.layers.{}.mamba.A_log", "blk.{}.ssm_a"},
    {kDecayRates, "decay rates of channels", Kind::kRecurrence, Stage::kSsmOut, {S::kInner, S::kStates},
     When::kMamba1, "model.layers.{}.mamba.A_log", "blk.{}.ssm_a"},
    {kSkip, "share of x that passes by the state", Kind::kRecurrence, Stage::kSsmOut, {S::kMixerHeads},
     When::kMamba, "model.layers.{}.mamba.D", "blk.{}.ssm_d"},
    {kMixerNorm, "norm of the recurrent half's result", Kind::kNorm, Stage::kSsmGated, {S::kMixerNorm},
     When::kGatedNorm, "model.layers.{}.mamba.norm.weight", "blk.{}.ssm_norm.weight"},
    {kMixerOut, "output of the recurrent half", Kind::kProjection, Stage::kOProj, {S::kHidden, S::kInner},
     When::kRecurrent, "model.layers.{}.mamba.out_proj.weight", "blk.{}.ssm_out.weight"},
    {kMixerOutBias, "bias of the recurrent half's output", Kind::kBias, Stage::kOProj, {S::kHidden},
     When::kMixerOutBias, "model.layers.{}.mamba.out_proj.bias", "blk.{}.ssm_out.bias"},
    {kPostAttnNorm, "norm after attention", Kind::kNorm, Stage::kPostAttnNorm, {S::kHidden},
     When::kPostAttnNorm, "", "blk.{}.post_attention_norm.weight"},

    {kFfnNorm, "norm before the feed-forward", Kind::kNorm, Stage::kFfnNormed, {S::kHidden}, When::kFfnNorm,
     "model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {kFfnNormBias, "bias of the norm before the feed-forward", Kind::kBias, Stage::kFfnNormed, {S::kHidden},
     When::kFfnNormBias, "model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    {kXieluAlphaP, "xIELU's alpha_p", Kind::kNumber, Stage::kNone, {S::kNumber}, When::kXielu,
     "model.layers.{}.mlp.act_fn.alpha_p", ""},
    {kXieluAlphaN, "xIELU's alpha_n", Kind::kNumber, Stage::kNone, {S::kNumber}, When::kXielu,
     "model.layers.{}.mlp.act_fn.alpha_n", ""},
    {kXieluBeta, "xIELU's beta", Kind::kNumber, Stage::kNone, {S::kNumber}, When::kXielu,
     "model.layers.{}.mlp.act_fn.beta", ""},
    {kXieluEps, "xIELU's eps", Kind::kNumber, Stage::kNone, {S::kNumber}, When::kXielu,
     "model.layers.{}.mlp.act_fn.eps", ""},
    {kRouter, "router", Kind::kRouter, Stage::kRouterLogits, {S::kExperts, S::kHidden}, When::kExperts,
     "model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {kRouterBias, "bias of the router", Kind::kBias, Stage::kRouterLogits, {S::kExperts}, When::kRouterBias,
     "model.layers.{}.mlp.gate.bias", "blk.{}.ffn_gate_inp.bias"},
    {kRouterCorrection, "correction of the router's scores", Kind::kBias, Stage::kRouterIds, {S::kExperts},
     When::kRouterCorrection, "model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {kExpertScale, "scales of experts", Kind::kBias, Stage::kRouterWeights, {S::kExperts}, When::kExpertScale,
     "model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale"},
    {kLatentIn, "projection to the experts' width", Kind::kProjection, Stage::kFfnLatent,
     {S::kExpertIo, S::kHidden}, When::kLatentExperts, "model.layers.{}.mixer.fc1_latent_proj.weight",
     "blk.{}.ffn_latent_down.weight"},
    {kLatentInBias, "bias of the projection to the experts' width", Kind::kBias, Stage::kFfnLatent,
     {S::kExpertIo}, When::kLatentExpertsBias, "model.layers.{}.mixer.fc1_latent_proj.bias",
     "blk.{}.ffn_latent_down.bias"},
    {kRouterNorm, "factors of what the router reads", Kind::kNorm, Stage::kRouterNormed, {S::kHidden},
     When::kRouterNorm, "model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale"},
    {kExpertsNorm, "norm before experts beside a feed-forward", Kind::kNorm, Stage::kMoeNormed, {S::kHidden},
     When::kDenseBeside, "model.layers.{}.pre_feedforward_layernorm_2.weight", "blk.{}.pre_ffw_norm_2.weight"},
    // In GGUF files ffn_up holds the gate's rows, too, where the two are fused.
    {kGateUp, "gate and up", Kind::kProjection, Stage::kFfnUp, kFromParts, When::kFusedGateUp,
     "model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", {}, {kGate, kUp, kCount}},
    {kGate, "gate", Kind::kProjection, Stage::kFfnGate, {S::kDense, S::kHidden}, When::kGate,
     "model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {kUp, "up", Kind::kProjection, Stage::kFfnUp, {S::kDense, S::kHidden}, When::kDense,
     "model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {kGateBias, "bias of gate", Kind::kBias, Stage::kFfnGate, {S::kDense}, When::kGateBias,
     "model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias"},
    {kUpBias, "bias of up", Kind::kBias, Stage::kFfnUp, {S::kDense}, When::kDenseBias,
     "model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias"},
    {kGateUpExperts, "gates and ups of experts", Kind::kExperts, Stage::kFfnUp, kFromParts, When::kFusedExperts,
     "model.layers.{}.mlp.experts.gate_up_proj", "", {},
     {kGateExperts, kUpExperts, kCount}},
    {kGateExperts, "gates of experts", Kind::kExperts, Stage::kFfnGate, {S::kExperts, S::kFfn, S::kExpertIo},
     When::kGatedExperts, "model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    {kUpExperts, "ups of experts", Kind::kExperts, Stage::kFfnUp, {S::kExperts, S::kFfn, S::kExpertIo},
     When::kExperts, "model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {kGateExpertsBias, "biases of experts' gates", Kind::kBias, Stage::kFfnGate, {S::kExperts, S::kFfn},
     When::kGatedExpertBias, "model.layers.{}.mlp.experts.{}.gate_proj.bias", "blk.{}.ffn_gate_exps.bias"},
    {kUpExpertsBias, "biases of experts' ups", Kind::kBias, Stage::kFfnUp, {S::kExperts, S::kFfn},
     When::kExpertBias, "model.layers.{}.mlp.experts.{}.up_proj.bias", "blk.{}.ffn_up_exps.bias"},
    {kDown, "down", Kind::kProjection, Stage::kFfnOut, {S::kHidden, S::kDense}, When::kDense,
     "model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {kDownBias, "bias of down", Kind::kBias, Stage::kFfnOut, {S::kHidden}, When::kDenseBias,
     "model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias"},
    {kDownExperts, "downs of experts", Kind::kExperts, Stage::kFfnExperts, {S::kExperts, S::kExpertIo, S::kFfn},
     When::kExperts, "model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    {kDownExpertsBias, "biases of experts' downs", Kind::kBias, Stage::kFfnExperts, {S::kExperts, S::kExpertIo},
     When::kExpertBias, "model.layers.{}.mlp.experts.{}.down_proj.bias", "blk.{}.ffn_down_exps.bias"},
    {kLatentOut, "projection from the experts' width", Kind::kProjection, Stage::kFfnOut,
     {S::kHidden, S::kExpertIo}, When::kLatentExperts, "model.layers.{}.mixer.fc2_latent_proj.weight",
     "blk.{}.ffn_latent_up.weight"},
    {kLatentOutBias, "bias of the projection from the experts' width", Kind::kBias, Stage::kFfnOut,
     {S::kHidden}, When::kLatentExpertsBias, "model.layers.{}.mixer.fc2_latent_proj.bias",
     "blk.{}.ffn_latent_up.bias"},
    {kSharedGateUp, "gate and up of the shared expert", Kind::kProjection, Stage::kSharedUp, kFromParts,
     When::kFusedShared, "model.layers.{}.shared_mlp.input_linear.weight", "", {},
     {kSharedGateProj, kSharedUp, kCount}},
    {kSharedGateProj, "gate of the shared expert", Kind::kProjection, Stage::kSharedGateProj,
     {S::kShared, S::kHidden}, When::kSharedProj, "model.layers.{}.mlp.shared_experts.gate_proj.weight",
     "blk.{}.ffn_gate_shexp.weight"},
    {kSharedUp, "up of the shared expert", Kind::kProjection, Stage::kSharedUp, {S::kShared, S::kHidden},
     When::kShared, "model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {kSharedGateProjBias, "bias of the shared expert's gate", Kind::kBias, Stage::kSharedGateProj,
     {S::kShared}, When::kSharedProjBias, "model.layers.{}.mlp.shared_experts.gate_proj.bias",
     "blk.{}.ffn_gate_shexp.bias"},
    {kSharedUpBias, "bias of the shared expert's up", Kind::kBias, Stage::kSharedUp, {S::kShared},
     When::kSharedBias, "model.layers.{}.mlp.shared_experts.up_proj.bias", "blk.{}.ffn_up_shexp.bias"},
    {kSharedDown, "down of the shared expert", Kind::kProjection, Stage::kFfnShared, {S::kHidden, S::kShared},
     When::kShared, "model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
    {kSharedDownBias, "bias of the shared expert's down", Kind::kBias, Stage::kFfnShared, {S::kHidden},
     When::kSharedBias, "model.layers.{}.mlp.shared_experts.down_proj.bias", "blk.{}.ffn_down_shexp.bias"},
    {kSharedGate, "gate on the shared expert", Kind::kRouter, Stage::kSharedGate, {S::kOne, S::kHidden},
     When::kSharedGate, "model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight"},
    {kDensePostNorm, "norm after a feed-forward beside experts", Kind::kNorm, Stage::kFfnMlpNorm, {S::kHidden},
     When::kDenseBeside, "model.layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight"},
    {kExpertsPostNorm, "norm after experts beside a feed-forward", Kind::kNorm, Stage::kMoeNorm, {S::kHidden},
     When::kDenseBeside, "model.layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight"},
    {kPostFfnNorm, "norm after the feed-forward", Kind::kNorm, Stage::kPostFfnNorm, {S::kHidden},
     When::kPostFfnNorm, "model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    {kAltupCorrection, "correction of streams", Kind::kProjection, Stage::kAltupCorrected,
     {S::kStreams, S::kStreams}, When::kAltup, "model.layers.{}.altup.correction_coefs.weight", "blk.{}.altup_correct_coef.weight"},
    {kAltupOutScale, "scale of the corrected stream", Kind::kNorm, Stage::kPleIn, {S::kHidden},
     When::kAltupOutScale,
     "model.layers.{}.altup.correct_output_scale", "blk.{}.altup_correct_scale.weight"},
    {kPleGate, "gate of the per-layer input", Kind::kProjection, Stage::kPleGate, {S::kPerLayer, S::kHidden},
     When::kPerLayer, "model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight"},
    {kPleProjection, "projection of the per-layer input", Kind::kProjection, Stage::kPleProj,
     {S::kHidden, S::kPerLayer}, When::kPerLayer, "model.layers.{}.per_layer_projection.weight",
     "blk.{}.proj.weight"},
    {kPleNorm, "norm of the per-layer input", Kind::kNorm, Stage::kPleNorm, {S::kHidden}, When::kPerLayer,
     "model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight"},
    {kLayerScale, "scale of the layer's output", Kind::kNorm, Stage::kLayerOut, {S::kOne}, When::kLayerScale,
     "model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},

    {kFinalNorm, "final norm", Kind::kNorm, Stage::kFinalNorm, {S::kHidden}, When::kAlways,
     "model.norm.weight", "output_norm.weight"},
    {kFinalNormBias, "bias of the final norm", Kind::kBias, Stage::kFinalNorm, {S::kHidden}, When::kNormBias,
     "model.norm.bias", "output_norm.bias"},
    {kHead, "head", Kind::kHead, Stage::kLogits, {S::kVocab, S::kHidden}, When::kUntiedHead,
     "lm_head.weight", "output.weight"},
    {kHeadBias, "bias of the head", Kind::kBias, Stage::kLogits, {S::kVocab}, When::kHeadBias,
     "lm_head.bias", "output.bias"},
}};
// clang-format on

constexpr bool in_order_of_roles() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].role) != i) return false;
  }
  return true;
}
static_assert(in_order_of_roles(), "weight_info() finds a role's row by its number.");

struct SizeInfo {
  Size size;
  std::string_view text;  // in config.json's words
  std::uint64_t (*of)(const ModelSpec& spec, const LayerSpec& layer);
};
using Spec = const ModelSpec&;
using Layer = const LayerSpec&;

// The values in the weight of a norm of queries or keys.
std::uint64_t norm_width(const AttentionSpec& attention, std::uint32_t projection) {
  return attention.qk_norm_span == NormSpan::kHead ? attention.head_dim : projection;
}

std::uint64_t own_dims(const LayerSpec& layer) {
  const AttentionSpec& attention = layer.attention;
  return attention.head_dim - std::min(attention.head_dim, attention.latent.rope_dim);
}

constexpr std::array kSizes = {
    SizeInfo{S::kVocab, "vocab_size", [](Spec s, Layer) -> std::uint64_t { return s.vocab_size; }},
    SizeInfo{S::kHidden, "hidden_size", [](Spec s, Layer) -> std::uint64_t { return s.hidden; }},
    SizeInfo{S::kQueries, "num_attention_heads x head_dim",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.q_width(); }},
    SizeInfo{S::kQueryRows, "num_attention_heads x head_dim",
             [](Spec, Layer l) -> std::uint64_t {
               return std::uint64_t{l.attention.q_width()} * (l.attention.output_gate ? 2 : 1);
             }},
    SizeInfo{S::kKeys, "num_key_value_heads x head_dim",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.kv_width(); }},
    SizeInfo{S::kAttnOut, "num_attention_heads x head_dim",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.out_width(); }},
    SizeInfo{S::kOwnDims, "qk_nope_head_dim", [](Spec, Layer l) -> std::uint64_t { return own_dims(l); }},
    SizeInfo{S::kQLatent, "q_lora_rank",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.latent.q_rank; }},
    SizeInfo{S::kKvLatent, "kv_lora_rank",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.latent.kv_rank; }},
    SizeInfo{S::kKvDown, "kv_lora_rank + qk_rope_head_dim",
             [](Spec, Layer l) {
               return std::uint64_t{l.attention.latent.kv_rank} + l.attention.latent.rope_dim;
             }},
    SizeInfo{S::kKvUp, "num_attention_heads x (qk_nope_head_dim + v_head_dim)",
             [](Spec, Layer l) { return l.attention.heads * (own_dims(l) + l.attention.latent.value_dim); }},
    SizeInfo{S::kValueDim, "v_head_dim",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.latent.value_dim; }},
    SizeInfo{S::kPerLayer, "hidden_size_per_layer_input",
             [](Spec s, Layer) -> std::uint64_t { return s.per_layer.width; }},
    SizeInfo{S::kPerLayerAll, "num_hidden_layers x hidden_size_per_layer_input",
             [](Spec s, Layer) { return s.layers.size() * std::uint64_t{s.per_layer.width}; }},
    SizeInfo{S::kStreams, "altup_num_inputs", [](Spec s, Layer) -> std::uint64_t { return s.altup.streams; }},
    SizeInfo{S::kStreamPairs, "the square of altup_num_inputs",
             [](Spec s, Layer) { return std::uint64_t{s.altup.streams} * s.altup.streams; }},
    SizeInfo{S::kLaurel, "laurel_rank", [](Spec s, Layer) -> std::uint64_t { return s.altup.laurel_rank; }},
    SizeInfo{S::kPerLayerTokens, "vocab_size_per_layer_input",
             [](Spec s, Layer) -> std::uint64_t { return s.per_layer.tokens; }},
    SizeInfo{S::kQNorm, "head_dim",
             [](Spec, Layer l) { return norm_width(l.attention, l.attention.q_width()); }},
    SizeInfo{S::kKNorm, "head_dim",
             [](Spec, Layer l) { return norm_width(l.attention, l.attention.kv_width()); }},
    SizeInfo{S::kPositions, "learned positions",
             [](Spec s, Layer) -> std::uint64_t { return s.learned_positions; }},
    SizeInfo{S::kHeads, "num_attention_heads",
             [](Spec, Layer l) -> std::uint64_t { return l.attention.heads; }},
    SizeInfo{S::kShared, "the shared expert's intermediate_size",
             [](Spec, Layer l) -> std::uint64_t { return l.ffn.shared_width; }},
    SizeInfo{S::kOne, "", [](Spec, Layer) -> std::uint64_t { return 1; }},
    SizeInfo{S::kFfn, "intermediate_size", [](Spec, Layer l) -> std::uint64_t { return l.ffn.width; }},
    SizeInfo{
        S::kDense, "intermediate_size",
        [](Spec, Layer l) -> std::uint64_t { return l.ffn.experts > 0 ? l.ffn.dense_width : l.ffn.width; }},
    SizeInfo{S::kExperts, "num_experts", [](Spec, Layer l) -> std::uint64_t { return l.ffn.experts; }},
    SizeInfo{S::kExpertIo, "hidden_size",
             [](Spec s,
                Layer l) -> std::uint64_t { return l.ffn.latent_width > 0 ? l.ffn.latent_width : s.hidden; }},
    SizeInfo{S::kRotaryPairs, "half the rotary dims",
             [](Spec s, Layer) -> std::uint64_t { return rope_with_factors(s).rotary_dim / 2; }},
    SizeInfo{S::kMixerIn, "the widths of the recurrent half",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.in_width(); }},
    SizeInfo{S::kMixerInBa, "2 x recurrent heads",
             [](Spec, Layer l) { return std::uint64_t{2} * l.recurrent.heads; }},
    SizeInfo{S::kMixerHeads, "recurrent heads",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.heads; }},
    SizeInfo{S::kInner, "the inner width of the recurrent half",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.inner(); }},
    SizeInfo{S::kChannels, "the convolved width",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.channels(); }},
    SizeInfo{S::kTaps, "the taps of the convolution",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.taps; }},
    SizeInfo{S::kMixerNorm, "the inner width of the recurrent half",
             [](Spec, Layer l) -> std::
                                   uint64_t {
                                     return l.recurrent.one_norm_for_heads ? l.recurrent.head_dim
                                                                           : l.recurrent.inner();
                                   }},
    SizeInfo{S::kStateProjection, "the rank of the time step and the states",
             [](Spec, Layer l) { return l.recurrent.rank + std::uint64_t{2} * l.recurrent.state_dim; }},
    SizeInfo{S::kRank, "the rank of the time step",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.rank; }},
    SizeInfo{S::kStates, "the states of a channel",
             [](Spec, Layer l) -> std::uint64_t { return l.recurrent.state_dim; }},
    SizeInfo{S::kNumber, "one number", [](Spec, Layer) -> std::uint64_t { return 1; }},
};

bool is(const RecurrentSpec& recurrent, RecurrentKind kind) {
  return recurrent.kind == kind;
}

bool has_dense_ffn(const LayerSpec& layer) {
  return layer.has_ffn && (layer.ffn.experts == 0 || layer.ffn.dense_width > 0);
}
bool has_experts(const LayerSpec& layer) {
  return layer.has_ffn && layer.ffn.experts > 0;
}

struct ConditionInfo {
  WeightCondition condition;
  std::string_view met, unmet;  // as messages say that a spec meets it, or does not; empty: no flag says it
  bool (*holds)(const ModelSpec& spec, const LayerSpec& layer);
};
constexpr std::array kConditions = {
    ConditionInfo{When::kAlways, "", "", [](Spec, Layer) { return true; }},
    ConditionInfo{When::kAttention, "", "no attention", [](Spec, Layer l) { return l.has_attention; }},
    ConditionInfo{When::kUntiedHead, "tie_word_embeddings = false", "tie_word_embeddings = true",
                  [](Spec s, Layer) { return !s.tied_head; }},
    ConditionInfo{When::kHeadBias, "head.bias = true", "head.bias = false",
                  [](Spec s, Layer) { return s.head_bias; }},
    ConditionInfo{When::kLearnedPositions, "learned positions", "no learned positions",
                  [](Spec s, Layer) { return s.learned_positions > 0; }},
    ConditionInfo{When::kAttnNorm, "", "attn_norm = false", [](Spec, Layer l) { return l.attn_norm; }},
    ConditionInfo{When::kAttnNormBias, "norm.bias = true", "norm.bias = false",
                  [](Spec s, Layer l) { return l.attn_norm && s.norm.bias; }},
    ConditionInfo{When::kFfnNorm, "", "ffn_norm = false", [](Spec, Layer l) { return l.ffn_norm; }},
    ConditionInfo{When::kFfnNormBias, "norm.bias = true", "norm.bias = false",
                  [](Spec s, Layer l) { return l.ffn_norm && s.norm.bias; }},
    ConditionInfo{When::kNormBias, "norm.bias = true", "norm.bias = false",
                  [](Spec s, Layer) { return s.norm.bias; }},
    ConditionInfo{When::kQkNorm, "attention.qk_norm = true", "attention.qk_norm = false",
                  [](Spec, Layer l) {
                    return l.has_attention && l.attention.qk_norm && !l.attention.qk_norm_plain;
                  }},
    ConditionInfo{When::kKNorm, "attention.qk_norm = true", "attention.qk_norm = false",
                  [](Spec, Layer l) {
                    const AttentionSpec& a = l.attention;
                    return l.has_attention && a.qk_norm && !a.qk_norm_plain && a.has_own_kv();
                  }},
    ConditionInfo{When::kQNormBias, "attention.qk_norm_bias = true", "attention.qk_norm_bias = false",
                  [](Spec, Layer l) {
                    return l.has_attention && l.attention.qk_norm && l.attention.qk_norm_bias;
                  }},
    ConditionInfo{When::kKNormBias, "attention.qk_norm_bias = true", "attention.qk_norm_bias = false",
                  [](Spec, Layer l) {
                    const AttentionSpec& a = l.attention;
                    return l.has_attention && a.qk_norm && a.qk_norm_bias && a.has_own_kv();
                  }},
    ConditionInfo{When::kQ, "", "attention.latent.q_rank > 0",
                  [](Spec, Layer l) {
                    const AttentionSpec& a = l.attention;
                    return l.has_attention && (!a.is_latent() || a.latent.q_rank == 0);
                  }},
    ConditionInfo{When::kOwnK, "", "attention.kv_source: keys and values are an earlier layer's",
                  [](Spec, Layer l) {
                    return l.has_attention && !l.attention.is_latent() && l.attention.has_own_kv();
                  }},
    ConditionInfo{When::kOwnV, "", "attention.kv_source or keys_as_values: values are not its own",
                  [](Spec, Layer l) {
                    const AttentionSpec& a = l.attention;
                    return l.has_attention && !a.is_latent() && a.has_own_kv() && !a.keys_as_values;
                  }},
    ConditionInfo{When::kLatent, "attention.latent.kv_rank > 0", "attention.latent.kv_rank = 0",
                  [](Spec, Layer l) { return l.has_attention && l.attention.is_latent(); }},
    ConditionInfo{When::kLatentQ, "attention.latent.q_rank > 0", "attention.latent.q_rank = 0",
                  [](Spec, Layer l) { return l.attention.is_latent() && l.attention.latent.q_rank > 0; }},
    ConditionInfo{When::kLatentBias, "attention.latent.bias = true", "attention.latent.bias = false",
                  [](Spec, Layer l) {
                    return l.has_attention && l.attention.is_latent() && l.attention.latent.bias;
                  }},
    ConditionInfo{When::kLatentQBias, "attention.latent.bias = true", "attention.latent.bias = false",
                  [](Spec, Layer l) {
                    const LatentSpec& latent = l.attention.latent;
                    return l.has_attention && l.attention.is_latent() && latent.q_rank > 0 && latent.bias;
                  }},
    ConditionInfo{When::kLatentWhole, "attention.latent.kv_rank > 0", "attention.latent.kv_rank = 0",
                  [](Spec, Layer l) { return l.attention.is_latent() && !l.attention.latent.split_up; }},
    ConditionInfo{When::kLatentSplit, "attention.latent.kv_rank > 0", "attention.latent.kv_rank = 0",
                  [](Spec, Layer l) { return l.attention.is_latent() && l.attention.latent.split_up; }},
    ConditionInfo{When::kPerLayer, "per_layer.width > 0", "per_layer.width = 0",
                  [](Spec s, Layer) { return s.per_layer.width > 0; }},
    ConditionInfo{When::kAltup, "altup.streams > 0", "altup.streams = 0",
                  [](Spec s, Layer) { return s.altup.streams > 0; }},
    ConditionInfo{When::kAltupOutScale, "altup.out_scale = true", "altup.out_scale = false",
                  [](Spec s, Layer) { return s.altup.streams > 0 && s.altup.out_scale; }},
    ConditionInfo{When::kAltupOthers, "altup.streams > 0", "altup.streams = 0",
                  [](Spec s, Layer l) {
                    const auto number = static_cast<std::size_t>(&l - s.layers.data());
                    return !s.layers.empty() && number + 1 < s.altup.streams;
                  }},
    ConditionInfo{When::kLayerScale, "out_scale = true", "out_scale = false",
                  [](Spec, Layer l) { return l.out_scale; }},
    ConditionInfo{When::kQkvBias, "attention.qkv_bias = true", "attention.qkv_bias = false",
                  [](Spec, Layer l) { return l.has_attention && l.attention.qkv_bias; }},
    ConditionInfo{When::kOwnKBias, "attention.qkv_bias = true", "attention.qkv_bias = false",
                  [](Spec, Layer l) {
                    return l.has_attention && l.attention.qkv_bias && l.attention.has_own_kv();
                  }},
    ConditionInfo{When::kOwnVBias, "attention.qkv_bias = true", "attention.qkv_bias = false",
                  [](Spec, Layer l) {
                    const AttentionSpec& a = l.attention;
                    return l.has_attention && a.qkv_bias && a.has_own_kv() && !a.keys_as_values;
                  }},
    ConditionInfo{When::kOBias, "attention.o_bias = true", "attention.o_bias = false",
                  [](Spec, Layer l) { return l.has_attention && l.attention.o_bias; }},
    ConditionInfo{When::kPostAttnNorm, "post_attn_norm = true", "post_attn_norm = false",
                  [](Spec, Layer l) { return l.post_attn_norm; }},
    ConditionInfo{When::kPostFfnNorm, "post_ffn_norm = true", "post_ffn_norm = false",
                  [](Spec, Layer l) { return l.post_ffn_norm; }},
    ConditionInfo{When::kFusedQkv, "", "", [](Spec s, Layer l) { return s.fused_qkv && l.has_attention; }},
    ConditionInfo{When::kFusedQkvBias, "attention.qkv_bias = true", "attention.qkv_bias = false",
                  [](Spec s, Layer l) { return s.fused_qkv && l.has_attention && l.attention.qkv_bias; }},
    ConditionInfo{When::kFusedGateUp, "", "",
                  [](Spec s, Layer l) { return s.fused_gate_up && l.ffn.gated && has_dense_ffn(l); }},
    ConditionInfo{When::kDense, "", "ffn.experts > 0", [](Spec, Layer l) { return has_dense_ffn(l); }},
    ConditionInfo{When::kGate, "", "ffn.experts > 0 or ffn.gated = false",
                  [](Spec, Layer l) { return has_dense_ffn(l) && l.ffn.gated; }},
    ConditionInfo{When::kGateBias, "ffn.bias = true", "ffn.bias = false",
                  [](Spec, Layer l) { return has_dense_ffn(l) && l.ffn.gated && l.ffn.bias; }},
    ConditionInfo{When::kDenseBias, "ffn.bias = true", "ffn.bias = false",
                  [](Spec, Layer l) { return has_dense_ffn(l) && l.ffn.bias; }},
    ConditionInfo{When::kDenseBeside, "ffn.dense_width > 0", "ffn.dense_width = 0",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.dense_width > 0; }},
    ConditionInfo{When::kRouterNorm, "ffn.router.own_norm = true", "ffn.router.own_norm = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.router.own_norm; }},
    ConditionInfo{When::kExperts, "ffn.experts > 0", "ffn.experts = 0",
                  [](Spec, Layer l) { return has_experts(l); }},
    ConditionInfo{When::kGatedExperts, "ffn.experts > 0", "ffn.experts = 0",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.gated; }},
    ConditionInfo{When::kFusedExperts, "", "",
                  [](Spec s, Layer l) { return s.fused_experts && has_experts(l) && l.ffn.gated; }},
    ConditionInfo{When::kRouterBias, "ffn.router.bias = true", "ffn.router.bias = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.router.bias; }},
    ConditionInfo{When::kRouterCorrection, "ffn.router.correction = true", "ffn.router.correction = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.router.correction; }},
    ConditionInfo{When::kExpertScale, "ffn.router.expert_scale = true", "ffn.router.expert_scale = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.router.expert_scale; }},
    ConditionInfo{When::kExpertBias, "ffn.expert_bias = true", "ffn.expert_bias = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.expert_bias; }},
    ConditionInfo{When::kGatedExpertBias, "ffn.expert_bias = true", "ffn.expert_bias = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.gated && l.ffn.expert_bias; }},
    ConditionInfo{When::kLatentExperts, "ffn.latent_width > 0", "ffn.latent_width = 0",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.latent_width > 0; }},
    ConditionInfo{When::kLatentExpertsBias, "ffn.bias = true", "ffn.bias = false",
                  [](Spec, Layer l) { return has_experts(l) && l.ffn.latent_width > 0 && l.ffn.bias; }},
    ConditionInfo{When::kShared, "ffn.shared_width > 0", "ffn.shared_width = 0",
                  [](Spec, Layer l) { return l.has_ffn && l.ffn.shared_width > 0; }},
    ConditionInfo{When::kSharedProj, "ffn.shared_width > 0", "ffn.shared_width = 0",
                  [](Spec, Layer l) { return l.has_ffn && l.ffn.shared_width > 0 && l.ffn.gated; }},
    ConditionInfo{When::kFusedShared, "", "",
                  [](Spec s, Layer l) { return s.fused_shared && l.has_ffn && l.ffn.shared_width > 0 && l.ffn.gated; }},
    ConditionInfo{When::kSharedBias, "ffn.bias = true", "ffn.bias = false",
                  [](Spec, Layer l) { return l.has_ffn && l.ffn.shared_width > 0 && l.ffn.bias; }},
    ConditionInfo{When::kSharedProjBias, "ffn.bias = true", "ffn.bias = false",
                  [](Spec, Layer l) { return l.has_ffn && l.ffn.shared_width > 0 && l.ffn.gated && l.ffn.bias; }},
    ConditionInfo{When::kSharedGate, "ffn.shared_gate = true", "ffn.shared_gate = false",
                  [](Spec, Layer l) { return l.has_ffn && l.ffn.shared_width > 0 && l.ffn.shared_gate; }},
    ConditionInfo{When::kSinks, "attention.sinks = true", "attention.sinks = false",
                  [](Spec, Layer l) { return l.has_attention && l.attention.sinks; }},
    // GGUF files store llama3's rule, and which pairs stand still, as the divisors that follow from it.
    ConditionInfo{When::kDivisors, "", "",
                  [](Spec s, Layer) {
                    const RopeSpec& rope = rope_with_factors(s);
                    const RopeScalingKind kind = rope.scaling.kind;
                    return kind == RopeScalingKind::kDivisors || kind == RopeScalingKind::kLlama3 ||
                           rope.still_pairs > 0;
                  }},
    ConditionInfo{When::kLongRope, "", "",
                  [](Spec, Layer l) { return l.attention.rope.scaling.kind == RopeScalingKind::kLongRope; }},
    ConditionInfo{When::kRecurrent, "a recurrent layer", "no recurrent layer",
                  [](Spec, Layer l) { return l.recurrent.exists(); }},
    ConditionInfo{When::kInWhole, "a recurrent layer", "no recurrent layer with one input projection",
                  [](Spec, Layer l) {
                    return l.recurrent.exists() && l.recurrent.in_projection != InProjection::kSeparate;
                  }},
    ConditionInfo{When::kInBias, "recurrent.in_bias = true", "recurrent.in_bias = false",
                  [](Spec, Layer l) { return l.recurrent.exists() && l.recurrent.in_bias; }},
    ConditionInfo{When::kInSeparate, "a recurrent layer", "no recurrent layer with four input projections",
                  [](Spec, Layer l) {
                    return l.recurrent.exists() && l.recurrent.in_projection == InProjection::kSeparate;
                  }},
    ConditionInfo{When::kInByKeyHead, "a recurrent layer", "no recurrent layer that goes by key head",
                  [](Spec, Layer l) {
                    return l.recurrent.exists() && l.recurrent.in_projection == InProjection::kByKeyHead;
                  }},
    ConditionInfo{When::kConvolutionBias, "recurrent.conv_bias = true", "recurrent.conv_bias = false",
                  [](Spec, Layer l) { return l.recurrent.exists() && l.recurrent.conv_bias; }},
    ConditionInfo{When::kMemory, "a recurrent layer", "no recurrent layer with a state",
                  [](Spec, Layer l) {
                    return l.recurrent.exists() && !is(l.recurrent, RecurrentKind::kShortConvolution);
                  }},
    ConditionInfo{When::kOneRate, "a recurrent layer", "no recurrent layer with a state",
                  [](Spec, Layer l) {
                    return is(l.recurrent, RecurrentKind::kDeltaNet) ||
                           is(l.recurrent, RecurrentKind::kMamba2);
                  }},
    ConditionInfo{When::kMamba, "a Mamba layer", "no recurrent layer with a state",
                  [](Spec, Layer l) {
                    return is(l.recurrent, RecurrentKind::kMamba1) || is(l.recurrent, RecurrentKind::kMamba2);
                  }},
    ConditionInfo{When::kMamba1, "a Mamba 1 layer", "no recurrent layer with a state",
                  [](Spec, Layer l) { return is(l.recurrent, RecurrentKind::kMamba1); }},
    ConditionInfo{When::kPartNorms, "recurrent.part_norms = true", "recurrent.part_norms = false",
                  [](Spec, Layer l) { return l.recurrent.exists() && l.recurrent.part_norms; }},
    ConditionInfo{When::kGatedNorm, "recurrent.norm", "recurrent.norm = none",
                  [](Spec, Layer l) { return l.recurrent.exists() && l.recurrent.norm != GatedNorm::kNone; }},
    ConditionInfo{When::kMixerOutBias, "recurrent.out_bias = true", "recurrent.out_bias = false",
                  [](Spec, Layer l) { return l.recurrent.exists() && l.recurrent.out_bias; }},
    ConditionInfo{When::kXielu, "ffn.activation = xielu", "another ffn.activation than xielu",
                  [](Spec, Layer l) { return l.ffn.activation == Activation::kXielu; }},
    ConditionInfo{When::kParallelFfnNorm, "parallel = true with two norms", "parallel = false, or one norm",
                  [](Spec, Layer l) { return l.parallel && l.ffn_norm; }},
};

const ConditionInfo& condition_info(WeightCondition condition) {
  return *std::ranges::find(kConditions, condition, &ConditionInfo::condition);
}

const SizeInfo& size_info(Size size) {
  return *std::ranges::find(kSizes, size, &SizeInfo::size);
}

// Model-wide roles look at the first layer where they look at one: rope divisors.
const LayerSpec& layer_of(const ModelSpec& spec, int layer) {
  static const LayerSpec kNone;
  const auto index = static_cast<std::size_t>(std::max(layer, 0));
  return index < spec.layers.size() ? spec.layers[index] : kNone;
}

bool is_part_of(WeightRole part, const WeightInfo& whole) {
  return std::ranges::find(whole.fused_parts(), part) != whole.fused_parts().end();
}

std::string_view pattern_of(const WeightInfo& info, NameStyle style) {
  return style == NameStyle::kGguf ? info.gguf : info.hugging_face;
}

// Whether such files hold a role's matrices of all numbers as one tensor.
bool is_stack(const WeightInfo& info, NameStyle style) {
  const std::string_view pattern = pattern_of(info, style);
  return info.per_layer() && !pattern.empty() && !pattern.contains(kBraces);
}

std::uint64_t count_of(const ModelSpec& spec, const WeightInfo& info) {
  std::uint64_t count = 0;
  while (count < spec.layers.size() && meets(spec, info.when, static_cast<int>(count))) ++count;
  return count;
}

// The layer in a name of that pattern, which may hold an expert's index, too; -1 for patterns without one.
// Nothing if the name is of another pattern.
std::optional<int> match(std::string_view pattern, std::string_view name) {
  const std::size_t braces = pattern.find(kBraces);
  if (braces == std::string_view::npos) {
    if (name == pattern) return -1;
    return std::nullopt;
  }
  if (!name.starts_with(pattern.substr(0, braces))) return std::nullopt;
  const std::string_view rest = name.substr(braces);
  int layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  if (error != std::errc() || layer < 0) return std::nullopt;
  const auto after = rest.substr(static_cast<std::size_t>(end - rest.data()));
  if (!match(pattern.substr(braces + kBraces.size()), after)) return std::nullopt;
  return layer;
}

}  // namespace

bool WeightInfo::per_layer() const {
  return gguf.contains(kBraces) || hugging_face.contains(kBraces);
}

bool WeightInfo::per_expert() const {
  return kind == Kind::kExperts ||
         (shape[0] == Size::kExperts && shape[1] != Size::kNone && kind == Kind::kBias);
}

std::span<const WeightRole> WeightInfo::fused_parts() const {
  return {parts.begin(), std::ranges::find(parts, kCount)};
}

std::span<const WeightInfo> weight_table() {
  return kTable;
}

const WeightInfo& weight_info(WeightRole role) {
  return kTable[static_cast<std::size_t>(role)];
}

std::string numbered_name(std::string_view pattern, std::uint64_t number) {
  std::string name(pattern);
  if (const auto braces = name.find(kBraces); braces != std::string::npos)
    name.replace(braces, kBraces.size(), std::to_string(number));
  return name;
}

std::string weight_name(const WeightNames& names, WeightRole role, int layer, const ModelSpec* spec) {
  const WeightInfo& info = weight_info(role);
  if (info.kind == Kind::kRopeFactors &&
      std::ranges::find(names.rope_factors, role) == names.rope_factors.end())
    return {};
  const auto own = std::ranges::find_if(names.own, [&](const WeightName& name) {
    return name.role == role && (spec == nullptr || meets(*spec, name.goes_with, layer));
  });
  const std::string_view pattern = own == names.own.end() ? pattern_of(info, names.style) : own->name;
  return numbered_name(pattern, static_cast<std::uint64_t>(std::max(layer, 0)));
}

bool is_stored_otherwise(const ModelSpec& spec, Stage stage, int layer) {
  constexpr std::array kLayouts = {When::kInWhole, When::kInSeparate, When::kInByKeyHead};
  bool elsewhere = false;
  for (const WeightInfo& info : weight_table()) {
    if (info.stage != stage || std::ranges::find(kLayouts, info.when) == kLayouts.end()) continue;
    if (meets(spec, info.when, layer)) return false;
    elsewhere = true;
  }
  return elsewhere && layer_of(spec, layer).recurrent.exists();
}

bool meets(const ModelSpec& spec, WeightCondition condition, int layer) {
  return condition_info(condition).holds(spec, layer_of(spec, layer));
}

Shape weight_shape(const ModelSpec& spec, WeightRole role, int layer) {
  const WeightInfo& info = weight_info(role);
  if (!info.fused_parts().empty()) {
    Shape shape;
    for (const WeightRole part : info.fused_parts()) {
      const Shape of_part = weight_shape(spec, part, layer);
      const std::size_t rows = info.kind == Kind::kExperts ? 1 : 0;  // behind the number of experts
      if (shape.empty())
        shape = of_part;
      else
        shape[rows] += of_part[rows];
    }
    return shape;
  }
  Shape shape;
  for (const Size size : info.shape) {
    if (size != Size::kNone) shape.push_back(size_info(size).of(spec, layer_of(spec, layer)));
  }
  return shape;
}

std::string weight_reason(WeightRole role) {
  const WeightInfo& info = weight_info(role);
  std::vector<std::string_view> reasons;
  const auto add = [&](std::string_view text) {
    if (!text.empty() && std::ranges::find(reasons, text) == reasons.end()) reasons.push_back(text);
  };
  const auto add_sizes = [&](const WeightInfo& of) {
    for (const Size size : of.shape) {
      if (size != Size::kNone) add(size_info(size).text);
    }
  };
  add(condition_info(info.when).met);
  for (const WeightRole part : info.fused_parts()) add_sizes(weight_info(part));
  add_sizes(info);
  std::string text;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const std::string_view joint = i == 0 ? "" : i + 1 == reasons.size() ? " and " : ", ";
    text += fmt::format("{}{}", joint, reasons[i]);
  }
  return text;
}

std::string_view unmet_condition(WeightCondition condition) {
  return condition_info(condition).unmet;
}

std::uint32_t rotated_heads(const ModelSpec& spec, WeightRole role, int layer) {
  const AttentionSpec& attention = layer_of(spec, layer).attention;
  switch (weight_info(role).rotated) {
    case RotatedHeads::kQuery:
      return attention.heads;
    case RotatedHeads::kKey:
      return attention.kv_heads;
    case RotatedHeads::kNone:
      break;
  }
  return 0;
}

std::vector<WeightTensor> weight_tensors(const ModelSpec& spec, const WeightNames& names) {
  std::vector<WeightTensor> out;
  const auto add = [&](const WeightInfo& info, int layer) {
    if (!meets(spec, info.when, layer)) return;
    // Files that have no name for a fused tensor hold its parts.
    const bool inside_another = std::ranges::any_of(kTable, [&](const WeightInfo& whole) {
      return is_part_of(info.role, whole) && meets(spec, whole.when, layer) &&
             !weight_name(names, whole.role, layer).empty();
    });
    std::string name = weight_name(names, info.role, layer, &spec);
    if (name.empty() && !info.fused_parts().empty()) return;
    const bool in_spec = info.kind == Kind::kRopeFactors || info.kind == Kind::kNumber;
    if (inside_another || (in_spec && name.empty())) return;
    Shape shape = weight_shape(spec, info.role, layer);
    if (is_stack(info, names.style)) {
      if (layer > 0) return;  // the first number's entry stands for all
      shape.insert(shape.begin(), count_of(spec, info));
      out.push_back({.info = &info, .layer = layer, .name = std::move(name), .shape = shape, .stack = true});
      return;
    }
    if (!info.per_expert() || !name.contains(kBraces)) {
      out.push_back({&info, layer, std::move(name), std::move(shape)});
      return;
    }
    const Shape own(shape.begin() + 1, shape.end());
    for (std::uint64_t i = 0; i < shape[0]; ++i)
      out.push_back({&info, layer, numbered_name(name, i), own, static_cast<int>(i)});
  };
  const auto first = std::ranges::find_if(kTable, &WeightInfo::per_layer);
  const auto last = std::ranges::find_if_not(first, kTable.end(), &WeightInfo::per_layer);
  std::for_each(kTable.begin(), first, [&](const WeightInfo& info) { add(info, -1); });
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer)
    std::for_each(first, last, [&](const WeightInfo& info) { add(info, layer); });
  std::for_each(last, kTable.end(), [&](const WeightInfo& info) { add(info, -1); });
  return out;
}

std::string nested_name(const Nesting& nesting, std::string_view name) {
  const auto& [model, head] = kNestings[0];
  if (name.starts_with(model)) return fmt::format("{}{}", nesting.model, name.substr(model.size()));
  if (name.starts_with(head)) return fmt::format("{}{}", nesting.head, name.substr(head.size()));
  return std::string(name);
}

std::vector<NamedWeight> find_weights(NameStyle style, std::string_view name) {
  if (style == NameStyle::kHuggingFace) {
    for (const Nesting& nesting : std::span(kNestings).subspan(1)) {
      if (nesting.model.empty()) continue;
      if (name.starts_with(nesting.model))
        return find_weights(style, fmt::format("model.{}", name.substr(nesting.model.size())));
      if (nesting.head != kNestings[0].head && name.starts_with(nesting.head))
        return find_weights(style, fmt::format("lm_head.{}", name.substr(nesting.head.size())));
    }
  }
  std::vector<NamedWeight> found;
  const auto consider = [&](const WeightInfo& info, std::string_view pattern, WeightCondition when) {
    if (pattern.empty()) return;
    if (const auto layer = match(pattern, name)) found.push_back({&info, *layer, when});
  };
  for (const WeightInfo& info : kTable) consider(info, pattern_of(info, style), info.when);
  if (style == NameStyle::kGguf) return found;
  for (const WeightName& other : kSandwichNames)
    consider(weight_info(other.role), other.name, other.goes_with);
  return found;
}

}  // namespace doppler
