// Tensor names as Hugging Face checkpoints spell them, put together from parts that families share.
#pragma once

#include <array>

#include "model/weights.h"

namespace doppler::names {

template <std::size_t... Sizes>
constexpr auto concat(const std::array<WeightName, Sizes>&... parts) {
  std::array<WeightName, (Sizes + ...)> all{};
  std::size_t next = 0;
  const auto append = [&](const auto& part) {
    for (const WeightName& entry : part) all[next++] = entry;
  };
  (append(parts), ...);
  return all;
}

inline constexpr std::array<WeightName, 6> kCommon = {{
    {WeightRole::kTokenEmbedding, "model.embed_tokens.weight"},
    {WeightRole::kFinalNorm, "model.norm.weight"},
    {WeightRole::kHead, "lm_head.weight"},
    {WeightRole::kAttnNorm, "model.layers.{}.input_layernorm.weight"},
    {WeightRole::kO, "model.layers.{}.self_attn.o_proj.weight"},
    {WeightRole::kDown, "model.layers.{}.mlp.down_proj.weight"},
}};
inline constexpr std::array<WeightName, 5> kSplit = {{
    {WeightRole::kQ, "model.layers.{}.self_attn.q_proj.weight"},
    {WeightRole::kK, "model.layers.{}.self_attn.k_proj.weight"},
    {WeightRole::kV, "model.layers.{}.self_attn.v_proj.weight"},
    {WeightRole::kGate, "model.layers.{}.mlp.gate_proj.weight"},
    {WeightRole::kUp, "model.layers.{}.mlp.up_proj.weight"},
}};
inline constexpr std::array<WeightName, 2> kFused = {{
    {WeightRole::kQkv, "model.layers.{}.self_attn.qkv_proj.weight"},
    {WeightRole::kGateUp, "model.layers.{}.mlp.gate_up_proj.weight"},
}};
inline constexpr std::array<WeightName, 7> kBiases = {{
    {WeightRole::kQBias, "model.layers.{}.self_attn.q_proj.bias"},
    {WeightRole::kKBias, "model.layers.{}.self_attn.k_proj.bias"},
    {WeightRole::kVBias, "model.layers.{}.self_attn.v_proj.bias"},
    {WeightRole::kOBias, "model.layers.{}.self_attn.o_proj.bias"},
    {WeightRole::kGateBias, "model.layers.{}.mlp.gate_proj.bias"},
    {WeightRole::kUpBias, "model.layers.{}.mlp.up_proj.bias"},
    {WeightRole::kDownBias, "model.layers.{}.mlp.down_proj.bias"},
}};
inline constexpr std::array<WeightName, 2> kQkNorms = {{
    {WeightRole::kQNorm, "model.layers.{}.self_attn.q_norm.weight"},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.k_norm.weight"},
}};
// post_attention_layernorm is the norm before the feed-forward here ...
inline constexpr std::array<WeightName, 1> kTwoNorms = {{
    {WeightRole::kFfnNorm, "model.layers.{}.post_attention_layernorm.weight"},
}};
// ... and the norm after attention in Gemma, which has a norm before and after each half.
inline constexpr std::array<WeightName, 3> kSandwichNorms = {{
    {WeightRole::kPostAttnNorm, "model.layers.{}.post_attention_layernorm.weight"},
    {WeightRole::kFfnNorm, "model.layers.{}.pre_feedforward_layernorm.weight"},
    {WeightRole::kPostFfnNorm, "model.layers.{}.post_feedforward_layernorm.weight"},
}};

}  // namespace doppler::names

// The same as llama.cpp's converter spells them.
namespace doppler::gguf_names {

using names::concat;

inline constexpr std::array<WeightName, 7> kCommon = {{
    {WeightRole::kTokenEmbedding, "token_embd.weight"},
    {WeightRole::kFinalNorm, "output_norm.weight"},
    {WeightRole::kHead, "output.weight"},
    {WeightRole::kAttnNorm, "blk.{}.attn_norm.weight"},
    {WeightRole::kO, "blk.{}.attn_output.weight"},
    {WeightRole::kFfnNorm, "blk.{}.ffn_norm.weight"},
    {WeightRole::kDown, "blk.{}.ffn_down.weight"},
}};
inline constexpr std::array<WeightName, 5> kSplit = {{
    {WeightRole::kQ, "blk.{}.attn_q.weight"},
    {WeightRole::kK, "blk.{}.attn_k.weight"},
    {WeightRole::kV, "blk.{}.attn_v.weight"},
    {WeightRole::kGate, "blk.{}.ffn_gate.weight"},
    {WeightRole::kUp, "blk.{}.ffn_up.weight"},
}};
inline constexpr std::array<WeightName, 2> kFused = {{
    {WeightRole::kQkv, "blk.{}.attn_qkv.weight"},
    {WeightRole::kGateUp, "blk.{}.ffn_up.weight"},  // gate's rows, then up's
}};
inline constexpr std::array<WeightName, 7> kBiases = {{
    {WeightRole::kQBias, "blk.{}.attn_q.bias"},
    {WeightRole::kKBias, "blk.{}.attn_k.bias"},
    {WeightRole::kVBias, "blk.{}.attn_v.bias"},
    {WeightRole::kOBias, "blk.{}.attn_output.bias"},
    {WeightRole::kGateBias, "blk.{}.ffn_gate.bias"},
    {WeightRole::kUpBias, "blk.{}.ffn_up.bias"},
    {WeightRole::kDownBias, "blk.{}.ffn_down.bias"},
}};
inline constexpr std::array<WeightName, 2> kQkNorms = {{
    {WeightRole::kQNorm, "blk.{}.attn_q_norm.weight"},
    {WeightRole::kKNorm, "blk.{}.attn_k_norm.weight"},
}};
inline constexpr std::array<WeightName, 2> kSandwichNorms = {{
    {WeightRole::kPostAttnNorm, "blk.{}.post_attention_norm.weight"},
    {WeightRole::kPostFfnNorm, "blk.{}.post_ffw_norm.weight"},
}};
inline constexpr std::array<WeightName, 1> kRopeDivisors = {{
    {WeightRole::kRopeDivisors, "rope_freqs.weight"},
}};
inline constexpr std::array<WeightName, 2> kRopeFactors = {{
    {WeightRole::kRopeShortFactors, "rope_factors_short.weight"},
    {WeightRole::kRopeLongFactors, "rope_factors_long.weight"},
}};

}  // namespace doppler::gguf_names
