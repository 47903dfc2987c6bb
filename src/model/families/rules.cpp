#include "model/families/rules.h"

namespace doppler {
namespace {

std::string rule_of(SpecBuilder& builder) {
  return fmt::format("rule of the {} family", builder.spec().family);
}

bool always(std::uint32_t, std::uint32_t) {
  return true;
}

bool never(std::uint32_t, std::uint32_t) {
  return false;
}

Status read_no_window(SpecBuilder& builder) {
  return read_layer_types(builder, std::nullopt, always, 1, "rule: use_sliding_window is false");
}

bool below(std::uint32_t layer, std::uint32_t first_sliding) {
  return layer < first_sliding;
}

}  // namespace

bool is_last_of_period(std::uint32_t layer, std::uint32_t period) {
  return (layer + 1) % period == 0;
}

bool slides(const LayerSpec& layer) {
  return layer.attention.kind == AttentionKind::kSliding;
}

Status read_qwen_windows(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const bool use, builder.get_bool("attention.use_window", "use_sliding_window", false));
  if (!use) return read_no_window(builder);
  DOPPLER_ASSIGN(const std::uint32_t first,
                 builder.get_uint("attention.first_sliding_layer", "max_window_layers", 28, true));
  return read_layer_types(builder, 4096, below, first, "rule: layers from max_window_layers on slide");
}

Status read_window_if_used(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const bool use, builder.get_bool("attention.use_window", "use_sliding_window", false));
  return use ? read_window_of_all_layers(builder) : read_no_window(builder);
}

Status read_window_of_all_layers(SpecBuilder& builder) {
  const bool sliding = builder.config().has("sliding_window");
  return read_layer_types(builder, std::nullopt, sliding ? never : always, 1,
                          sliding ? "rule: every layer slides" : "rule: no sliding_window");
}

Status read_attention_bias(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias and o_bias", "attention_bias", false));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qkv_bias = layer.attention.o_bias = bias;
  return {};
}

Status read_mlp_bias(SpecBuilder& builder, std::string_view key) {
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("ffn.bias", key, false));
  for (LayerSpec& layer : builder.spec().layers) layer.ffn.bias = bias;
  return {};
}

Status read_clip(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const auto given, builder.config().get_number("clip_qkv"));
  if (given.value_or(0) == 0) return {};  // none, as GGUF's writers say it
  DOPPLER_ASSIGN(const double clip, builder.get_positive("attention.qkv_clip", "clip_qkv", std::nullopt));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qkv_clip = clip;
  return {};
}

void use_layer_norm(SpecBuilder& builder, bool bias) {
  builder.spec().norm.kind = NormKind::kLayer;
  builder.spec().norm.bias = bias;
  builder.note("norm.kind", bias ? "layer, with bias" : "layer, without bias", rule_of(builder));
}

void use_norms_after_only(SpecBuilder& builder) {
  builder.note("attn_norm, ffn_norm", "false", rule_of(builder));
  builder.note("post_attn_norm, post_ffn_norm", "true", rule_of(builder));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attn_norm = layer.ffn_norm = false;
    layer.post_attn_norm = layer.post_ffn_norm = true;
  }
}

void use_parallel_halves(SpecBuilder& builder) {
  builder.note("parallel", "true, with one norm", rule_of(builder));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.parallel = true;
    layer.ffn_norm = false;
  }
}

void use_all_biases(SpecBuilder& builder, std::string source) {
  builder.note("attention.qkv_bias, attention.o_bias, ffn.bias", "true", std::move(source));
  for (LayerSpec& layer : builder.spec().layers)
    layer.attention.qkv_bias = layer.attention.o_bias = layer.ffn.bias = true;
}

void use_no_gate(SpecBuilder& builder) {
  builder.note("ffn.gated", "false", rule_of(builder));
  for (LayerSpec& layer : builder.spec().layers) layer.ffn.gated = false;
}

Status refuse_flag(SpecBuilder& builder, std::string_view key) {
  DOPPLER_ASSIGN(const std::optional<bool> value, builder.config().get_bool(key));
  if (!value.value_or(false)) return {};
  return fail(ErrorCode::kUnsupported, "The {} says {} = true, which Doppler does not run for the {} family.",
              builder.config().source(), key, builder.spec().family);
}

}  // namespace doppler
