// Gemma 4: sandwich norms, attention scale 1, values normed without a weight, heads of full layers wider than
// those of sliding ones; in some sizes per-layer embeddings, layers that read the keys and values of an
// earlier one, or values that are the keys' projection. Source: transformers' Gemma4TextConfig and
// modeling_gemma4.
#include "base/json.h"
#include "base/text.h"
#include "model/families/experts.h"
#include "model/families/shared_kv.h"

namespace doppler {
namespace {

constexpr std::string_view kGemma4Types[] = {"gemma4_text", "gemma4"};

Status check_heads(const SpecBuilder& builder, const AttentionSpec& a, std::size_t layer) {
  if (a.head_dim % 2 == 0 && a.head_dim <= 8192 && a.heads % a.kv_heads == 0) return {};
  return fail(
      ErrorCode::kCorrupt,
      "The {} gives layer {} heads of {} dims, {} of queries and {} of keys, but the first must be even "
      "and at most 8192, the second a multiple of the third. Correct it.",
      builder.config().source(), layer, a.head_dim, a.heads, a.kv_heads);
}

// Heads of full layers: since 5.17 transformers writes them layer by layer, before as two numbers.
Status read_layer_heads(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  auto& layers = builder.spec().layers;
  DOPPLER_ASSIGN(const std::optional<ConfigReader> by_layer, config.get_object("per_layer_config"));
  DOPPLER_ASSIGN(const std::optional<bool> k_is_v, config.get_bool("attention_k_eq_v"));
  const bool by_kind = !by_layer && !config.translated();  // as transformers completes such a file
  for (std::size_t i = 0; i < layers.size(); ++i) {
    AttentionSpec& a = layers[i].attention;
    const std::string own = fmt::format("per_layer_config.{}", i);
    const auto read = [&](std::string_view key, std::string_view of_full, std::uint32_t& number) -> Status {
      const std::string path = fmt::format("{}.{}", own, key);
      const bool full = a.kind == AttentionKind::kFull && config.has(of_full);
      if (!config.has(path) && !full) return {};
      DOPPLER_ASSIGN(
          number, builder.get_uint(
                      fmt::format("layers[{}].attention.{}", i, key == "head_dim" ? "head_dim" : "kv_heads"),
                      config.has(path) ? std::string_view(path) : of_full, std::nullopt));
      return {};
    };
    constexpr std::uint32_t kGlobalHeadDim = 512;  // the class's default
    if (by_kind && a.kind == AttentionKind::kFull) a.head_dim = kGlobalHeadDim;
    DOPPLER_TRY(read("head_dim", "global_head_dim", a.head_dim));
    if (!by_kind || k_is_v.value_or(false))
      DOPPLER_TRY(read("num_key_value_heads", "num_global_key_value_heads", a.kv_heads));
    DOPPLER_TRY(check_heads(builder, a, i));
  }
  return {};
}

Status read_attention(SpecBuilder& builder) {
  ModelSpec& spec = builder.spec();
  const std::string rule = "rule of the gemma4 family";
  set_attention_scale(builder, 1, rule);
  builder.note("attention.qk_norm, attention.v_norm", "true", rule);
  DOPPLER_ASSIGN(const bool k_is_v,
                 builder.get_bool("attention.keys_as_values of full layers", "attention_k_eq_v", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = layer.attention.v_norm = true;
    layer.attention.keys_as_values = k_is_v && layer.attention.kind == AttentionKind::kFull;
  }
  DOPPLER_TRY(read_attention_bias(builder));
  return read_shared_kv(builder);
}

// In some sizes experts beside the feed-forward of every layer.
Status read_gemma4_experts(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const bool on, builder.get_bool("ffn.experts beside", "enable_moe_block", false));
  if (!on) return {};
  auto& layers = builder.spec().layers;
  std::vector<std::uint32_t> dense;
  for (const LayerSpec& layer : layers) dense.push_back(layer.ffn.width);
  DOPPLER_TRY(read_experts(
      builder,
      {.experts = {},
       .top_k = {},
       .width = layers[0].ffn.width,
       .router = {.score = RouterScore::kSoftmax, .normalise = true, .expert_scale = true, .own_norm = true}},
      every_layer));
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].ffn.dense_width = dense[i];
  builder.spec().fused_experts = true;
  builder.note("ffn.dense_width", std::to_string(dense[0]), "rule of the gemma4 family: intermediate_size");
  return {};
}

Status fill_gemma4(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 262144,
                                    .hidden_size = 2304,
                                    .intermediate_size = 9216,
                                    .num_hidden_layers = 30,
                                    .num_attention_heads = 8,
                                    .num_key_value_heads = 4,
                                    .head_dim = 256,
                                    .max_position_embeddings = 131072,
                                    .tie_word_embeddings = true,
                                    .activation = "gelu_pytorch_tanh",
                                    .activation_key = "hidden_activation"}));
  ModelSpec& spec = builder.spec();
  scale_embedding_as_gemma(builder);
  DOPPLER_TRY(read_layer_types(builder, 512, is_last_of_period, 6, "rule: every sixth layer attends fully"));
  AttentionSpec& last = spec.layers.back().attention;
  if (last.kind != AttentionKind::kFull) {
    builder.note("last layer's attention.kind", "full",
                 "rule of the gemma4 family, whatever layer_types says");
    last.kind = AttentionKind::kFull, last.window = 0;
  }
  DOPPLER_TRY(read_layer_heads(builder));
  DOPPLER_TRY(read_attention(builder));
  DOPPLER_TRY(read_per_layer(builder, 256));
  DOPPLER_ASSIGN(spec.final_softcap,
                 read_softcap(builder, "head.softcap", "final_logit_softcapping", std::nullopt));
  DOPPLER_ASSIGN(const bool double_wide,
                 builder.get_bool("ffn.width of layers that share", "use_double_wide_mlp", false));
  builder.note("post_attn_norm, post_ffn_norm, out_scale", "true", "rule of the gemma4 family");
  for (LayerSpec& layer : spec.layers) {
    layer.post_attn_norm = layer.post_ffn_norm = layer.out_scale = true;
    if (double_wide && !layer.attention.has_own_kv()) layer.ffn.width *= 2;
  }
  DOPPLER_TRY(read_gemma4_experts(builder));
  return read_rope(builder, 1000000, 10000);
}

// Values that differ between layers, as config.json's words have them.
Status adjust_gemma4(GgufConfig& config) {
  const Json& json = config.json();
  const auto is_full = [&](std::size_t i) {
    return json.contains("layer_types") && json["layer_types"][i] == "full_attention";
  };
  DOPPLER_ASSIGN(const auto sliding_dim, config.get_uint("attention.key_length_swa"));
  DOPPLER_ASSIGN(const auto full_dim, config.get_uint("attention.key_length"));
  if (sliding_dim && full_dim) {
    config.set_from_key("head_dim", *sliding_dim, "attention.key_length_swa");
    config.set_from_key("global_head_dim", *full_dim, "attention.key_length");
  }
  DOPPLER_ASSIGN(const std::vector<std::uint64_t> kv_heads, config.get_uints("attention.head_count_kv"));
  for (std::size_t i = 0; i < kv_heads.size(); ++i) {
    config.set_from_key(is_full(i) ? "num_global_key_value_heads" : "num_key_value_heads", kv_heads[i],
                        "attention.head_count_kv");
  }
  DOPPLER_ASSIGN(const std::vector<std::uint64_t> widths, config.get_uints("feed_forward_length"));
  if (!widths.empty() && widths.back() == 2 * widths.front())
    config.set_from_key("use_double_wide_mlp", true, "feed_forward_length");
  DOPPLER_ASSIGN(const auto shared, config.get_uint("attention.shared_kv_layers"));
  config.set_from_key("num_kv_shared_layers", shared.value_or(0), "attention.shared_kv_layers");
  DOPPLER_ASSIGN(const auto per_layer, config.get_uint("embedding_length_per_layer_input"));
  config.set_from_key("hidden_size_per_layer_input", per_layer.value_or(0),
                      "embedding_length_per_layer_input");
  derive_per_layer_tokens(config);
  DOPPLER_ASSIGN(const auto experts, config.get_uint("expert_count"));
  if (experts.value_or(0) > 0) config.set_from_key("enable_moe_block", true, "expert_count");
  for (std::size_t i = 0; i < config.layers(); ++i) {
    if (!is_full(i) || config.tensor(WeightRole::kK, static_cast<int>(i)) == nullptr) continue;
    const bool none = config.tensor(WeightRole::kV, static_cast<int>(i)) == nullptr;
    config.derive(
        "attention_k_eq_v", none,
        (none ? "no tensor " : "tensor ") + config.tensor_name(WeightRole::kV, static_cast<int>(i)));
    break;
  }
  return {};
}

constexpr std::string_view kGemma4Keys[] = {"attention.head_count_kv", "feed_forward_length",
                                            "attention.shared_kv_layers", "embedding_length_per_layer_input"};
constexpr WeightRole kGemma4Factors[] = {WeightRole::kRopeDivisors};
constexpr WeightName kGemma4GgufNames[] = {{WeightRole::kGateUpExperts, "blk.{}.ffn_gate_up_exps.weight"}};
constexpr WeightName kGemma4Names[] = {
    kSandwichNames[0],
    kSandwichNames[1],
    {WeightRole::kRouter, "model.layers.{}.router.proj.weight"},
    {WeightRole::kGateUpExperts, "model.layers.{}.experts.gate_up_proj"},
    {WeightRole::kDownExperts, "model.layers.{}.experts.down_proj"},
};

}  // namespace

const FamilyRule kGemma4Rule = {
    "gemma4",
    kGemma4Types,
    fill_gemma4,
    {.architecture = "gemma4",
     .weight_names = {.style = NameStyle::kGguf, .own = kGemma4GgufNames, .rope_factors = kGemma4Factors},
     .adjust = adjust_gemma4,
     .own_keys = kGemma4Keys,
     .divisors_of_full = true},
    {.own = kGemma4Names},
    R"({"full_attention": {"rope_type": "proportional", "rope_theta": 1000000, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000}})"};

}  // namespace doppler
