// Mamba 2 by itself, and between other layers: Granite 4 (granitemoehybrid), Falcon H1 (beside attention in
// each layer) and Nemotron H (one part a layer). Sources: transformers' Mamba2Config, GraniteMoeHybridConfig,
// FalconH1Config, NemotronHConfig.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "model/families/hybrid.h"
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kMamba2Types[] = {"mamba2"};
constexpr std::string_view kGraniteHybridTypes[] = {"granitemoehybrid"};
constexpr std::string_view kFalconH1Types[] = {"falcon_h1"};
constexpr std::string_view kNemotronHTypes[] = {"nemotron_h"};

// The keys of a family's sizes, and their defaults.
struct Mamba2Keys {
  std::string_view heads, head_dim, groups, states, taps, conv_bias;
  std::uint32_t default_heads, default_head_dim, default_groups, default_states;
};

Result<RecurrentSpec> read_mamba2(SpecBuilder& builder, const Mamba2Keys& keys) {
  RecurrentSpec r{.kind = RecurrentKind::kMamba2, .norm = GatedNorm::kGateThenNorm};
  DOPPLER_ASSIGN(r.heads, builder.get_uint("recurrent.heads", keys.heads, keys.default_heads));
  DOPPLER_ASSIGN(r.head_dim, builder.get_uint("recurrent.head_dim", keys.head_dim, keys.default_head_dim));
  DOPPLER_ASSIGN(r.groups, builder.get_uint("recurrent.groups", keys.groups, keys.default_groups));
  DOPPLER_ASSIGN(r.state_dim, builder.get_uint("recurrent.state_dim", keys.states, keys.default_states));
  DOPPLER_ASSIGN(r.taps, builder.get_uint("recurrent.taps", keys.taps, 4));
  DOPPLER_ASSIGN(r.conv_bias, builder.get_bool("recurrent.conv_bias", keys.conv_bias, true));
  DOPPLER_TRY(read_step_limits(builder, r));
  return r;
}

Status read_projection_bias(SpecBuilder& builder, std::string_view key, RecurrentSpec& r) {
  DOPPLER_ASSIGN(r.in_bias, builder.get_bool("recurrent.in_bias, recurrent.out_bias", key, false));
  r.out_bias = r.in_bias;
  return {};
}

// --- Mamba 2

constexpr WeightName kBackboneNames[] = {
    {WeightRole::kTokenEmbedding, "backbone.embeddings.weight"},
    {WeightRole::kAttnNorm, "backbone.layers.{}.norm.weight"},
    {WeightRole::kFfnNorm, "backbone.layers.{}.norm.weight"},
    {WeightRole::kQ, "backbone.layers.{}.mixer.q_proj.weight"},
    {WeightRole::kK, "backbone.layers.{}.mixer.k_proj.weight"},
    {WeightRole::kV, "backbone.layers.{}.mixer.v_proj.weight"},
    {WeightRole::kO, "backbone.layers.{}.mixer.o_proj.weight"},
    {WeightRole::kQBias, "backbone.layers.{}.mixer.q_proj.bias", WeightCondition::kQkvBias},
    {WeightRole::kKBias, "backbone.layers.{}.mixer.k_proj.bias", WeightCondition::kQkvBias},
    {WeightRole::kVBias, "backbone.layers.{}.mixer.v_proj.bias", WeightCondition::kQkvBias},
    {WeightRole::kOBias, "backbone.layers.{}.mixer.o_proj.bias", WeightCondition::kOBias},
    {WeightRole::kMixerIn, "backbone.layers.{}.mixer.in_proj.weight"},
    {WeightRole::kMixerInBias, "backbone.layers.{}.mixer.in_proj.bias", WeightCondition::kInBias},
    {WeightRole::kConvolution, "backbone.layers.{}.mixer.conv1d.weight"},
    {WeightRole::kConvolutionBias, "backbone.layers.{}.mixer.conv1d.bias", WeightCondition::kConvolutionBias},
    {WeightRole::kStepBias, "backbone.layers.{}.mixer.dt_bias"},
    {WeightRole::kDecayRate, "backbone.layers.{}.mixer.A_log"},
    {WeightRole::kSkip, "backbone.layers.{}.mixer.D"},
    {WeightRole::kMixerNorm, "backbone.layers.{}.mixer.norm.weight"},
    {WeightRole::kMixerOut, "backbone.layers.{}.mixer.out_proj.weight"},
    {WeightRole::kMixerOutBias, "backbone.layers.{}.mixer.out_proj.bias", WeightCondition::kMixerOutBias},
    {WeightRole::kUp, "backbone.layers.{}.mixer.up_proj.weight"},
    {WeightRole::kUpBias, "backbone.layers.{}.mixer.up_proj.bias", WeightCondition::kDenseBias},
    {WeightRole::kDown, "backbone.layers.{}.mixer.down_proj.weight"},
    {WeightRole::kDownBias, "backbone.layers.{}.mixer.down_proj.bias", WeightCondition::kDenseBias},
    {WeightRole::kFinalNorm, "backbone.norm_f.weight"},
};

Status fill_mamba2(SpecBuilder& builder) {
  // Published files give no context: nothing in the model depends on positions.
  constexpr std::uint64_t kAnyContext = 1 << 20;
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
constexpr WeightName kGraniteHybridNames[] = {
    {WeightRole::kGateUp, "model.layers.{}.shared_mlp.input_linear.weight"},
    {WeightRole::kDown, "model.layers.{}.shared_mlp.output_linear.weight"},
};

// mamba_d_head may say "auto": what is left of the expanded width.
Result<std::uint32_t> default_head_dim(SpecBuilder& builder, std::uint32_t heads) {
  DOPPLER_ASSIGN(const auto expand, builder.config().get_uint("mamba_expand"));
  const std::uint64_t inner = std::min<std::uint64_t>(expand.value_or(2), 1024) * builder.spec().hidden;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(inner / std::max(heads, 1u), 1, UINT32_MAX));
}

Result<RecurrentSpec> read_prefixed_mamba2(SpecBuilder& builder, std::uint32_t default_heads) {
  DOPPLER_ASSIGN(const auto heads, builder.config().get_uint("mamba_n_heads"));
  const auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(heads.value_or(default_heads), UINT32_MAX));
  DOPPLER_ASSIGN(const std::uint32_t head_dim, default_head_dim(builder, count));
  const auto given = builder.config().json().find("mamba_d_head");
  const bool automatic = given != builder.config().json().end() && given->is_string();
  return read_mamba2(builder, {.heads = "mamba_n_heads",
                               // A key that no file has stands for the word: the default holds.
                               .head_dim = automatic ? "mamba_d_head.auto" : "mamba_d_head",
                               .groups = "mamba_n_groups",
                               .states = "mamba_d_state",
                               .taps = "mamba_d_conv",
                               .conv_bias = "mamba_conv_bias",
                               .default_heads = default_heads,
                               .default_head_dim = head_dim,
                               .default_groups = 1,
                               .default_states = 256});
}

Status fill_granite_hybrid(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 2048}));
  ModelSpec& spec = builder.spec();
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_granite_multipliers(builder));
  const ConfigReader& config = builder.config();
  DOPPLER_TRY(read_layer_kinds(
      builder, known_key(config, "layer_types", "layers_block_type"), kGraniteKinds,
      [](std::size_t) -> std::string_view { return "mamba"; }, "rule: no layer_types"));
  DOPPLER_ASSIGN(RecurrentSpec r, read_prefixed_mamba2(builder, 128));
  DOPPLER_TRY(read_projection_bias(builder, "mamba_proj_bias", r));
  DOPPLER_TRY(set_recurrent(builder, r));
  DOPPLER_ASSIGN(const std::uint32_t experts, builder.get_uint("ffn.experts", "num_local_experts", 8, true));
  if (experts > 0) {
    return fail(
        ErrorCode::kUnsupported,
        "The {} says num_local_experts = {}, but Doppler does not run the experts of the {} family yet.",
        config.source(), experts, spec.family);
  }
  DOPPLER_ASSIGN(const std::uint32_t width, builder.get_uint("ffn.width", "shared_intermediate_size", 1024));
  spec.fused_gate_up = true;
  for (LayerSpec& layer : spec.layers) layer.ffn.width = width;
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
  return read_rope(builder, 100000);
}

// --- Nemotron H

constexpr LayerKind kNemotronKinds[] = {{.name = "linear_attention", .recurrent = true, .ffn = false},
                                        {.name = "mamba", .recurrent = true, .ffn = false},
                                        {.name = "full_attention", .attention = true, .ffn = false},
                                        {.name = "attention", .attention = true, .ffn = false},
                                        {.name = "mlp"}};

// The older spelling of the layers' kinds: a letter each. They decide how many layers there are, too.
Result<std::vector<std::string>> nemotron_kinds(const ConfigReader& config) {
  DOPPLER_ASSIGN(auto names, config.get_strings(known_key(config, "layers_block_type", "layer_types")));
  if (names) return std::move(*names);
  DOPPLER_ASSIGN(const auto pattern, config.get_string("hybrid_override_pattern"));
  std::vector<std::string> kinds;
  constexpr std::array<std::pair<char, std::string_view>, 4> kLetters = {
      {{'M', "linear_attention"}, {'*', "full_attention"}, {'-', "mlp"}, {'E', "moe"}}};
  for (const char letter : pattern.value_or("")) {
    const auto found = std::ranges::find(kLetters, letter, &std::pair<char, std::string_view>::first);
    if (found == kLetters.end()) {
      return fail(ErrorCode::kCorrupt, "The value {} holds the letter {}, which stands for no kind of layer.",
                  config.where("hybrid_override_pattern"), printable(std::string(1, letter)));
    }
    kinds.emplace_back(found->second);
  }
  return kinds;
}

Status fill_nemotron_h(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const std::vector<std::string> kinds, nemotron_kinds(builder.config()));
  if (kinds.empty()) {
    return fail(
        ErrorCode::kCorrupt,
        "The {} says neither layers_block_type nor hybrid_override_pattern, which the nemotron_h family "
        "needs. Check that it belongs to the model.",
        builder.config().source());
  }
  DOPPLER_TRY(read_common(builder, {.vocab_size = 131072,
                                    .hidden_size = 4096,
                                    .intermediate_size = 21504,
                                    .num_hidden_layers = kinds.size(),
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .head_dim = 128,
                                    .max_position_embeddings = 4096,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_epsilon",
                                    .activation = "relu2",
                                    .activation_key = "mlp_hidden_act"}));
  if (kinds.size() != builder.spec().layers.size()) {
    return fail(ErrorCode::kCorrupt,
                "The {} lists {} kinds of layers for num_hidden_layers = {}. Correct it.",
                builder.config().source(), kinds.size(), builder.spec().layers.size());
  }
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  use_no_gate(builder);
  DOPPLER_TRY(read_layer_kinds(
      builder, known_key(builder.config(), "layers_block_type", "layer_types"), kNemotronKinds,
      [&](std::size_t i) -> std::string_view { return kinds[i]; },
      builder.config().where("hybrid_override_pattern")));
  DOPPLER_ASSIGN(RecurrentSpec r, read_mamba2(builder, {.heads = "mamba_num_heads",
                                                        .head_dim = "mamba_head_dim",
                                                        .groups = "n_groups",
                                                        .states = "ssm_state_size",
                                                        .taps = "conv_kernel",
                                                        .conv_bias = "use_conv_bias",
                                                        .default_heads = 128,
                                                        .default_head_dim = 64,
                                                        .default_groups = 8,
                                                        .default_states = 128}));
  r.norm_groups = r.groups;
  DOPPLER_TRY(read_projection_bias(builder, "mamba_proj_bias", r));
  DOPPLER_TRY(set_recurrent(builder, r));
  leave_rope_out(builder, [](std::size_t) { return false; }, "rule of the nemotron_h family");
  return {};
}

}  // namespace

const FamilyRule kMamba2Rule = {"mamba2", kMamba2Types, fill_mamba2, {}, {.own = kBackboneNames}};
const FamilyRule kGraniteHybridRule = {
    "granitemoehybrid", kGraniteHybridTypes, fill_granite_hybrid, {}, {.own = kGraniteHybridNames}};
const FamilyRule kFalconH1Rule = {"falcon_h1", kFalconH1Types, fill_falcon_h1, {}, {.own = kFalconH1Names}};
const FamilyRule kNemotronHRule = {
    "nemotron_h", kNemotronHTypes, fill_nemotron_h, {}, {.own = kBackboneNames}};

}  // namespace doppler
