// Mamba 2 by itself, and beside other things: Granite 4 (granitemoehybrid; between layers that attend) and
// Falcon H1 (beside attention in each layer). Sources: transformers' Mamba2Config, GraniteMoeHybridConfig,
// FalconH1Config.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json.h"
#include "model/families/experts.h"
#include "model/families/hybrid.h"

namespace doppler {
namespace {

constexpr std::string_view kMamba2Types[] = {"mamba2"};
constexpr std::string_view kGraniteHybridTypes[] = {"granitemoehybrid"};
constexpr std::string_view kFalconH1Types[] = {"falcon_h1"};

// --- Mamba 2

Status fill_mamba2(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32768,
                                    .hidden_size = 4096,
                                    .num_hidden_layers = 64,
                                    .max_position_embeddings = kAnyContext,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_epsilon",
                                    .attention = false,
                                    .ffn = false}));
  for (LayerSpec& layer : builder.spec().layers) layer.recurrent.kind = RecurrentKind::kMamba2;
  DOPPLER_ASSIGN(RecurrentSpec r, read_mamba2(builder, {.heads = "num_heads",
                                                        .head_dim = "head_dim",
                                                        .groups = "n_groups",
                                                        .states = "state_size",
                                                        .taps = "conv_kernel",
                                                        .conv_bias = "use_conv_bias",
                                                        .activation = "hidden_act",
                                                        .default_heads = 128,
                                                        .default_head_dim = 64,
                                                        .default_groups = 8,
                                                        .default_states = 128}));
  DOPPLER_TRY(read_projection_bias(builder, "use_bias", r));
  return set_recurrent(builder, r);
}

// --- Granite 4

constexpr LayerKind kGraniteKinds[] = {{.name = "mamba", .recurrent = true},
                                       {.name = "linear_attention", .recurrent = true},
                                       {.name = "attention", .attention = true},
                                       {.name = "full_attention", .attention = true}};
// The shared expert is all of the feed-forward where there are no others.
constexpr WeightName kGraniteHybridNames[] = {
    {WeightRole::kGateUp, "model.layers.{}.shared_mlp.input_linear.weight"},
    {WeightRole::kDown, "model.layers.{}.shared_mlp.output_linear.weight"},
    {WeightRole::kSharedDown, "model.layers.{}.shared_mlp.output_linear.weight"},
    {WeightRole::kRouter, "model.layers.{}.block_sparse_moe.router.layer.weight"},
    {WeightRole::kGateUpExperts, "model.layers.{}.block_sparse_moe.input_linear.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.block_sparse_moe.output_linear.weight"},
};

// mamba_d_head may say "auto": what is left of the expanded width.
Result<std::uint32_t> default_head_dim(SpecBuilder& builder, std::uint32_t heads) {
  DOPPLER_ASSIGN(const auto expand, builder.config().get_uint("mamba_expand"));
  const std::uint64_t inner = std::min<std::uint64_t>(expand.value_or(2), 1024) * builder.spec().hidden;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(inner / std::max(heads, 1u), 1, UINT32_MAX));
}

// Where no key of its own gives the inner width, mamba_expand does, and the heads must fill it.
Result<RecurrentSpec> check_expanded(SpecBuilder& builder, const RecurrentSpec& r) {
  const ConfigReader& config = builder.config();
  DOPPLER_ASSIGN(const auto expand, config.get_uint("mamba_expand"));
  const std::uint64_t inner = std::uint64_t{r.heads} * r.head_dim;
  if (!expand || config.has("mamba_d_ssm") || (*expand <= inner && *expand * builder.spec().hidden == inner))
    return r;
  return fail(ErrorCode::kCorrupt,
              "The {} says mamba_expand = {}, but {} heads of {} are not so many times hidden_size = {}. "
              "Correct it.",
              config.source(), *expand, r.heads, r.head_dim, builder.spec().hidden);
}

Result<RecurrentSpec> read_prefixed_mamba2(SpecBuilder& builder, std::uint32_t default_heads) {
  DOPPLER_ASSIGN(const auto heads, builder.config().get_uint("mamba_n_heads"));
  const auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(heads.value_or(default_heads), UINT32_MAX));
  DOPPLER_ASSIGN(const std::uint32_t head_dim, default_head_dim(builder, count));
  const auto given = builder.config().json().find("mamba_d_head");
  const bool automatic = given != builder.config().json().end() && given->is_string();
  DOPPLER_ASSIGN(const RecurrentSpec r,
                 read_mamba2(builder, {.heads = "mamba_n_heads",
                                       // A key that no file has stands for the word: the default holds.
                                       .head_dim = automatic ? "mamba_d_head.auto" : "mamba_d_head",
                                       .groups = "mamba_n_groups",
                                       .states = "mamba_d_state",
                                       .taps = "mamba_d_conv",
                                       .conv_bias = "mamba_conv_bias",
                                       .activation = "hidden_act",
                                       .default_heads = default_heads,
                                       .default_head_dim = head_dim,
                                       .default_groups = 1,
                                       .default_states = 256}));
  return check_expanded(builder, r);
}

// Experts and what every token goes through beside them; without experts, the latter alone.
Status read_granite_feed_forward(SpecBuilder& builder) {
  ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(const auto experts, builder.config().get_uint("num_local_experts"));
  const bool dense = experts == 0;
  DOPPLER_ASSIGN(const std::uint32_t width, builder.get_uint(dense ? "ffn.width" : "ffn.shared_width",
                                                             "shared_intermediate_size", 1024));
  if (dense) {
    spec.fused_gate_up = true;
    for (LayerSpec& layer : spec.layers) layer.ffn.width = width;
    return {};
  }
  DOPPLER_TRY(read_experts(
      builder, {.experts = 8, .top_k = 2, .width = {}, .router = {.score = RouterScore::kSoftmaxOfChosen}},
      every_layer));
  spec.fused_experts = spec.fused_shared = true;
  set_shared_expert(builder, width, false, builder.config().where("shared_intermediate_size"));
  return {};
}

Status fill_granite_hybrid(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 2048}));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_granite_multipliers(builder));
  const ConfigReader& config = builder.config();
  DOPPLER_TRY(read_layer_kinds(
      builder, known_key(config, "layer_types", "layers_block_type"), kGraniteKinds,
      [](std::size_t) -> std::string_view { return "mamba"; }, "rule: no layer_types"));
  DOPPLER_ASSIGN(RecurrentSpec r, read_prefixed_mamba2(builder, 128));
  DOPPLER_TRY(read_projection_bias(builder, "mamba_proj_bias", r));
  DOPPLER_TRY(set_recurrent(builder, r));
  DOPPLER_TRY(read_granite_feed_forward(builder));
  DOPPLER_TRY(read_rope(builder, 10000));
  DOPPLER_ASSIGN(const auto positions, config.get_string("position_embedding_type"));
  if (positions != "rope")
    leave_rope_out(builder, [](std::size_t) { return false; }, config.where("position_embedding_type"));
  return {};
}

// --- Falcon H1

constexpr WeightName kFalconH1Names[] = {
    {WeightRole::kFfnNorm, "model.layers.{}.pre_ff_layernorm.weight"},
    {WeightRole::kGate, "model.layers.{}.feed_forward.gate_proj.weight"},
    {WeightRole::kUp, "model.layers.{}.feed_forward.up_proj.weight"},
    {WeightRole::kDown, "model.layers.{}.feed_forward.down_proj.weight"},
    {WeightRole::kGateBias, "model.layers.{}.feed_forward.gate_proj.bias", WeightCondition::kGateBias},
    {WeightRole::kUpBias, "model.layers.{}.feed_forward.up_proj.bias", WeightCondition::kDenseBias},
    {WeightRole::kDownBias, "model.layers.{}.feed_forward.down_proj.bias", WeightCondition::kDenseBias},
    {WeightRole::kFinalNorm, "model.final_layernorm.weight"},
};

// A list of so many factors; ones where the key is absent.
Result<std::vector<double>> read_factors(SpecBuilder& builder, std::string_view key, std::size_t count) {
  DOPPLER_ASSIGN(const auto factors, builder.config().get_numbers(key));
  if (!factors) return std::vector<double>(count, 1.0);
  if (factors->size() == count) {
    builder.note(std::string(key), fmt::format("{}", fmt::join(*factors, ", ")), builder.config().where(key));
    return *factors;
  }
  return fail(ErrorCode::kCorrupt, "The value {} has {} numbers, but there must be {}. Correct it.",
              builder.config().where(key), factors->size(), count);
}

Status read_falcon_multipliers(SpecBuilder& builder, RecurrentSpec& r) {
  ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(spec.embedding_scale, builder.get_number("embedding_scale", "embedding_multiplier", 1.0));
  DOPPLER_ASSIGN(spec.logit_scale, builder.get_number("head.scale", "lm_head_multiplier", 1.0));
  DOPPLER_ASSIGN(r.in_scale, builder.get_number("recurrent.in_scale", "ssm_in_multiplier", 1.0));
  DOPPLER_ASSIGN(r.out_scale, builder.get_number("recurrent.out_scale", "ssm_out_multiplier", 1.0));
  DOPPLER_ASSIGN(const std::vector<double> parts,
                 read_factors(builder, "ssm_multipliers", r.part_scales.size()));
  std::ranges::copy(parts, r.part_scales.begin());
  DOPPLER_ASSIGN(const double in, builder.get_number("attn_in_scale", "attention_in_multiplier", 1.0));
  DOPPLER_ASSIGN(const double out, builder.get_number("attn_out_scale", "attention_out_multiplier", 1.0));
  DOPPLER_ASSIGN(const double key, builder.get_number("attention.key_scale", "key_multiplier", 1.0));
  DOPPLER_ASSIGN(const std::vector<double> mlp, read_factors(builder, "mlp_multipliers", 2));
  for (LayerSpec& layer : spec.layers) {
    layer.attn_in_scale = in, layer.attn_out_scale = out, layer.attention.key_scale = key;
    layer.ffn.gate_scale = mlp[0], layer.ffn.out_scale = mlp[1];
  }
  return {};
}

Status fill_falcon_h1(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 128000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 14336,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .max_position_embeddings = 8192,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  for (LayerSpec& layer : builder.spec().layers) layer.recurrent.kind = RecurrentKind::kMamba2;
  DOPPLER_ASSIGN(RecurrentSpec r, read_prefixed_mamba2(builder, 128));
  DOPPLER_ASSIGN(const auto inner, builder.config().get_uint("mamba_d_ssm"));
  if (inner && *inner != std::uint64_t{r.heads} * r.head_dim) {
    return fail(ErrorCode::kCorrupt,
                "The {} says mamba_d_ssm = {}, but {} heads of {} are another width. Correct it.",
                builder.config().source(), *inner, r.heads, r.head_dim);
  }
  DOPPLER_ASSIGN(r.in_bias, builder.get_bool("recurrent.in_bias", "mamba_proj_bias", false));
  DOPPLER_ASSIGN(r.out_bias, builder.get_bool("recurrent.out_bias", "projectors_bias", false));
  DOPPLER_ASSIGN(const bool normed, builder.get_bool("recurrent.norm", "mamba_rms_norm", false));
  DOPPLER_ASSIGN(const bool first, builder.get_bool("recurrent.norm_first", "mamba_norm_before_gate", true));
  r.norm = !normed ? GatedNorm::kNone : first ? GatedNorm::kNormThenGate : GatedNorm::kGateThenNorm;
  r.norm_groups = r.groups;
  DOPPLER_TRY(read_falcon_multipliers(builder, r));
  DOPPLER_TRY(set_recurrent(builder, r));
  return read_rope(builder, 10000);
}

// Gate and up are two tensors there.
constexpr WeightName kGraniteHybridGgufNames[] = {{WeightRole::kGateUp, ""}};

// A flag says whether queries and keys turn; without experts the feed-forward is what others share.
Status adjust_granite_hybrid(GgufConfig& config) {
  DOPPLER_ASSIGN(const auto turns, config.get_flag("rope.scaling.finetuned"));
  config.set_from_key("position_embedding_type", turns.value_or(true) ? "rope" : "nope",
                      "rope.scaling.finetuned");
  DOPPLER_ASSIGN(const auto experts, config.get_uint("expert_count"));
  if (experts.value_or(0) > 0) return {};
  config.derive("num_local_experts", 0, "no " + config.key("expert_count"));
  config.set_from_key("shared_intermediate_size", config.json()["intermediate_size"], "feed_forward_length");
  return {};
}

// What is gated is normed, where it is, and all multipliers are in the weights.
Status adjust_falcon_h1(GgufConfig& config) {
  config.derive("mamba_norm_before_gate", false, "rule of the architecture falcon-h1");
  return {};
}

}  // namespace

const FamilyRule kMamba2Rule = {
    "mamba2", kMamba2Types, fill_mamba2, {.architecture = "mamba2"}, {.own = kBackboneNames}};
const FamilyRule kGraniteHybridRule = {
    "granitemoehybrid",
    kGraniteHybridTypes,
    fill_granite_hybrid,
    {.architecture = "granitehybrid",
     .weight_names = {.style = NameStyle::kGguf, .own = kGraniteHybridGgufNames},
     .paired_rows = true,
     .keys = kGraniteKeys,
     .adjust = adjust_granite_hybrid},
    {.own = kGraniteHybridNames}};
const FamilyRule kFalconH1Rule = {
    "falcon_h1",
    kFalconH1Types,
    fill_falcon_h1,
    {.architecture = "falcon-h1", .multiplied_weights = true, .adjust = adjust_falcon_h1},
    {.own = kFalconH1Names}};

}  // namespace doppler
