// Every field of a ModelSpec, by name: for whoever treats all of them alike. A field that is added to a
// struct and not to its list here does not compile, because a structured binding counts the members.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "model/spec.h"

namespace doppler {

template <typename S, typename Struct>
concept SpecPart = std::same_as<std::remove_const_t<S>, Struct>;

// each(name, member) of the struct's own members.
template <SpecPart<RopeScaling> S>
void each_member(S& s, auto each) {
  auto& [kind, factor, low_freq_factor, high_freq_factor, original_context, beta_fast, beta_slow, truncate,
         attention_factor, long_attention_factor, short_factor, long_factor, divisors] = s;
  each("kind", kind), each("factor", factor), each("low_freq_factor", low_freq_factor);
  each("high_freq_factor", high_freq_factor), each("original_context", original_context);
  each("beta_fast", beta_fast), each("beta_slow", beta_slow), each("truncate", truncate);
  each("attention_factor", attention_factor), each("long_attention_factor", long_attention_factor);
  each("short_factor", short_factor), each("long_factor", long_factor), each("divisors", divisors);
}

template <SpecPart<RopeSpec> S>
void each_member(S& s, auto each) {
  auto& [theta, layout, rotary_dim, still_pairs, scaling] = s;
  each("theta", theta), each("layout", layout), each("rotary_dim", rotary_dim);
  each("still_pairs", still_pairs), each("scaling", scaling);
}

template <SpecPart<NormSpec> S>
void each_member(S& s, auto each) {
  auto& [kind, eps, weight_offset, bias] = s;
  each("kind", kind), each("eps", eps), each("weight_offset", weight_offset), each("bias", bias);
}

template <SpecPart<LatentSpec> S>
void each_member(S& s, auto each) {
  auto& [kv_rank, q_rank, rope_dim, value_dim, bias, split_up] = s;
  each("kv_rank", kv_rank), each("q_rank", q_rank), each("rope_dim", rope_dim);
  each("value_dim", value_dim), each("bias", bias), each("split_up", split_up);
}

template <SpecPart<PositionScale> S>
void each_member(S& s, auto each) {
  auto& [beta, every, offset] = s;
  each("beta", beta), each("every", every), each("offset", offset);
}

template <SpecPart<AlibiSpec> S>
void each_member(S& s, auto each) {
  auto& [max_bias, scale, rounded] = s;
  each("max_bias", max_bias), each("scale", scale), each("rounded", rounded);
}

template <SpecPart<AttentionSpec> S>
void each_member(S& s, auto each) {
  auto& [kind, window, heads, kv_heads, head_dim, rope, scale, softcap, qk_norm, qk_norm_span,
         qk_norm_after_rope, qk_norm_plain, qk_norm_bias, qkv_bias, o_bias, sinks, output_gate, key_scale,
         qkv_clip, alibi, query_scale, v_norm, keys_as_values, kv_source, latent] = s;
  each("kind", kind), each("window", window), each("heads", heads), each("kv_heads", kv_heads);
  each("head_dim", head_dim), each("rope", rope), each("scale", scale), each("softcap", softcap);
  each("qk_norm", qk_norm), each("qk_norm_span", qk_norm_span);
  each("qk_norm_after_rope", qk_norm_after_rope), each("qk_norm_plain", qk_norm_plain);
  each("qk_norm_bias", qk_norm_bias), each("qkv_bias", qkv_bias), each("o_bias", o_bias);
  each("sinks", sinks), each("output_gate", output_gate), each("key_scale", key_scale);
  each("qkv_clip", qkv_clip), each("alibi", alibi), each("query_scale", query_scale);
  each("v_norm", v_norm), each("keys_as_values", keys_as_values), each("kv_source", kv_source);
  each("latent", latent);
}

template <SpecPart<RouterSpec> S>
void each_member(S& s, auto each) {
  auto& [score, top_k, bias, correction, groups, kept_groups, group_best, normalise, norm_eps, norm_floor,
         scale, expert_scale, on_input, jitter, own_norm] = s;
  each("score", score), each("top_k", top_k), each("bias", bias), each("correction", correction);
  each("groups", groups), each("kept_groups", kept_groups), each("group_best", group_best);
  each("normalise", normalise), each("norm_eps", norm_eps), each("norm_floor", norm_floor);
  each("scale", scale), each("expert_scale", expert_scale), each("on_input", on_input);
  each("jitter", jitter), each("own_norm", own_norm);
}

template <SpecPart<Xielu> S>
void each_member(S& s, auto each) {
  auto& [alpha_p, alpha_n, beta, eps] = s;
  each("alpha_p", alpha_p), each("alpha_n", alpha_n), each("beta", beta), each("eps", eps);
}

template <SpecPart<FfnSpec> S>
void each_member(S& s, auto each) {
  auto& [activation, width, gated, bias, expert_bias, clamp, alpha, up_offset, experts, router, shared_width,
         dense_width, shared_gate, latent_experts, latent_width, xielu, gate_cutoff, gate_scale, out_scale] =
      s;
  each("activation", activation), each("width", width), each("gated", gated), each("bias", bias);
  each("expert_bias", expert_bias), each("clamp", clamp), each("alpha", alpha);
  each("up_offset", up_offset), each("experts", experts), each("router", router);
  each("shared_width", shared_width), each("dense_width", dense_width), each("shared_gate", shared_gate);
  each("latent_experts", latent_experts), each("latent_width", latent_width), each("xielu", xielu);
  each("gate_cutoff", gate_cutoff), each("gate_scale", gate_scale), each("out_scale", out_scale);
}

template <SpecPart<RecurrentSpec> S>
void each_member(S& s, auto each) {
  auto& [kind, taps, heads, head_dim, groups, state_dim, rank, in_projection, in_bias, conv_bias, out_bias,
         conv_activation, part_norms, norm, norm_groups, one_norm_for_heads, min_step, max_step, tiled_output,
         in_scale, out_scale, part_scales] = s;
  each("kind", kind), each("taps", taps), each("heads", heads), each("head_dim", head_dim);
  each("groups", groups), each("state_dim", state_dim), each("rank", rank);
  each("in_projection", in_projection), each("in_bias", in_bias), each("conv_bias", conv_bias);
  each("out_bias", out_bias), each("conv_activation", conv_activation), each("part_norms", part_norms);
  each("norm", norm), each("norm_groups", norm_groups), each("one_norm_for_heads", one_norm_for_heads);
  each("min_step", min_step), each("max_step", max_step), each("tiled_output", tiled_output);
  each("in_scale", in_scale), each("out_scale", out_scale), each("part_scales", part_scales);
}

template <SpecPart<LayerSpec> S>
void each_member(S& s, auto each) {
  auto& [attention, ffn, recurrent, has_attention, has_ffn, attn_in_scale, attn_out_scale, attn_norm,
         ffn_norm, parallel, post_attn_norm, post_ffn_norm, out_scale] = s;
  each("has_attention", has_attention), each("has_ffn", has_ffn), each("attn_norm", attn_norm);
  each("ffn_norm", ffn_norm), each("attention", attention), each("ffn", ffn);
  each("recurrent", recurrent), each("attn_in_scale", attn_in_scale);
  each("attn_out_scale", attn_out_scale), each("parallel", parallel);
  each("post_attn_norm", post_attn_norm), each("post_ffn_norm", post_ffn_norm);
  each("out_scale", out_scale);
}

template <SpecPart<PerLayerSpec> S>
void each_member(S& s, auto each) {
  auto& [width, tokens] = s;
  each("width", width), each("tokens", tokens);
}

template <SpecPart<AltupSpec> S>
void each_member(S& s, auto each) {
  auto& [streams, active, laurel_rank, out_scale] = s;
  each("streams", streams), each("active", active), each("laurel_rank", laurel_rank);
  each("out_scale", out_scale);
}

// But for the layers, of which each is walked by itself.
template <SpecPart<ModelSpec> S>
void each_member(S& s, auto each) {
  auto& [family, described_by, vocab_size, hidden, context_length, norm, embedding_scale, residual_scale,
         learned_positions, per_layer, altup, tied_head, head_bias, logit_scale, final_softcap, fused_qkv,
         fused_gate_up, fused_experts, fused_shared, layers, predicting_layers, eos_ids, bos_id, pad_id,
         sources] = s;
  each("family", family), each("described_by", described_by), each("vocab_size", vocab_size);
  each("hidden", hidden), each("context_length", context_length), each("norm", norm);
  each("embedding_scale", embedding_scale), each("residual_scale", residual_scale);
  each("learned_positions", learned_positions), each("per_layer", per_layer), each("altup", altup);
  each("tied_head", tied_head), each("head_bias", head_bias), each("logit_scale", logit_scale);
  each("final_softcap", final_softcap), each("fused_qkv", fused_qkv);
  each("fused_gate_up", fused_gate_up), each("fused_experts", fused_experts);
  each("fused_shared", fused_shared), each("predicting_layers", predicting_layers);
  each("eos_ids", eos_ids), each("bos_id", bos_id), each("pad_id", pad_id);
}

template <typename T>
concept HasMembers =
    std::is_class_v<T> && requires(T& part) { each_member(part, [](std::string_view, auto&) {}); };

// each(path, value) of all values below `part`, as ("attention.rope.theta", 10000.0).
template <typename Part>
void each_field(Part& part, auto& each, const std::string& before = {}) {
  each_member(part, [&](std::string_view name, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    const std::string path = before.empty() ? std::string(name) : before + "." + std::string(name);
    if constexpr (HasMembers<Member>)
      each_field(member, each, path);
    else
      each(path, member);
  });
}

}  // namespace doppler
