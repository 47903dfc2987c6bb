// Mamba 1 by itself, and in Jamba: with norms on time step, B and C, attention without rope in every so many
// layers, experts in every so many others. Sources: transformers' MambaConfig, JambaConfig.
#include <algorithm>

#include "base/json.h"
#include "model/families/experts.h"
#include "model/families/hybrid.h"

namespace doppler {
namespace {

constexpr std::string_view kMambaTypes[] = {"mamba"};
constexpr std::string_view kJambaTypes[] = {"jamba"};
constexpr WeightName kJambaNames[] = {
    {WeightRole::kStepBias, "model.layers.{}.mamba.dt_proj.bias"},
    {WeightRole::kFfnNorm, "model.layers.{}.pre_ff_layernorm.weight"},
    {WeightRole::kRouter, "model.layers.{}.feed_forward.router.weight"},
    {WeightRole::kGate, "model.layers.{}.feed_forward.gate_proj.weight"},
    {WeightRole::kUp, "model.layers.{}.feed_forward.up_proj.weight"},
    {WeightRole::kDown, "model.layers.{}.feed_forward.down_proj.weight"},
    {WeightRole::kGateExperts, "model.layers.{}.feed_forward.experts.{}.gate_proj.weight"},
    {WeightRole::kUpExperts, "model.layers.{}.feed_forward.experts.{}.up_proj.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.feed_forward.experts.{}.down_proj.weight"},
    {WeightRole::kFinalNorm, "model.final_layernorm.weight"},
};
constexpr LayerKind kJambaKinds[] = {{.name = "mamba", .recurrent = true},
                                     {.name = "linear_attention", .recurrent = true},
                                     {.name = "attention", .attention = true},
                                     {.name = "full_attention", .attention = true}};

// The layers of a period from an offset on.
struct Period {
  std::uint32_t length = 1, offset = 0;
  bool has(std::size_t layer) const { return layer % length == offset; }
};

Result<Period> read_period(SpecBuilder& builder, std::string_view path, std::string_view length_key,
                           std::uint32_t length, std::string_view offset_key, std::uint32_t offset) {
  Period period;
  DOPPLER_ASSIGN(period.length, builder.get_uint(fmt::format("{} every", path), length_key, length));
  DOPPLER_ASSIGN(period.offset, builder.get_uint(fmt::format("{} from", path), offset_key, offset, true));
  if (period.offset < period.length) return period;
  return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but it must be below {} = {}. Correct it.",
              builder.config().source(), offset_key, period.offset, length_key, period.length);
}

// It may say "auto": a sixteenth of the hidden width, rounded up.
Result<std::uint32_t> read_rank(SpecBuilder& builder, std::string_view key) {
  const std::uint32_t automatic = builder.spec().hidden / 16 + (builder.spec().hidden % 16 != 0 ? 1 : 0);
  const auto given = builder.config().json().find(std::string(key));
  if (given == builder.config().json().end() || *given != "auto")
    return builder.get_uint("recurrent.rank", key, automatic);
  builder.note("recurrent.rank", std::to_string(automatic), builder.config().where(key));
  return automatic;
}

struct Mamba1Keys {
  std::string_view expand, states, taps, rank, conv_bias, bias;
  bool part_norms;
};

Status read_mamba1(SpecBuilder& builder, const Mamba1Keys& keys) {
  RecurrentSpec r{.kind = RecurrentKind::kMamba1, .head_dim = 1, .groups = 1, .part_norms = keys.part_norms};
  DOPPLER_ASSIGN(const std::uint32_t expand, builder.get_uint("recurrent.expand", keys.expand, 2));
  DOPPLER_ASSIGN(r.heads, checked_inner(builder, expand));
  DOPPLER_ASSIGN(r.state_dim, builder.get_uint("recurrent.state_dim", keys.states, 16));
  DOPPLER_ASSIGN(r.taps, builder.get_uint("recurrent.taps", keys.taps, 4));
  DOPPLER_ASSIGN(r.rank, read_rank(builder, keys.rank));
  DOPPLER_ASSIGN(r.conv_bias, builder.get_bool("recurrent.conv_bias", keys.conv_bias, true));
  DOPPLER_TRY(read_projection_bias(builder, keys.bias, r));
  DOPPLER_TRY(read_convolution_activation(builder, "hidden_act", r));
  return set_recurrent(builder, r);
}

Status fill_jamba(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 65536,
                                    .hidden_size = 4096,
                                    .intermediate_size = 14336,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .max_position_embeddings = 262144}));
  DOPPLER_ASSIGN(const Period attends,
                 read_period(builder, "attention", "attn_layer_period", 8, "attn_layer_offset", 4));
  DOPPLER_TRY(read_layer_kinds(
      builder, known_key(builder.config(), "layer_types", "layers_block_type"), kJambaKinds,
      [&](std::size_t i) -> std::string_view { return attends.has(i) ? "attention" : "mamba"; },
      "rule: attn_layer_period and attn_layer_offset"));
  DOPPLER_TRY(read_mamba1(builder, {.expand = "mamba_expand",
                                    .states = "mamba_d_state",
                                    .taps = "mamba_d_conv",
                                    .rank = "mamba_dt_rank",
                                    .conv_bias = "mamba_conv_bias",
                                    .bias = "mamba_proj_bias",
                                    .part_norms = true}));
  DOPPLER_ASSIGN(const Period sparse,
                 read_period(builder, "ffn.experts", "expert_layer_period", 2, "expert_layer_offset", 1));
  // One expert is none: such models have a feed-forward like any other there.
  DOPPLER_ASSIGN(const auto experts, builder.config().get_uint("num_experts"));
  if (experts != 1) {
    // GGUF files have no period: their tensors say which layers are dense.
    DOPPLER_ASSIGN(const auto dense, builder.config().get_uints("mlp_only_layers"));
    DOPPLER_TRY(read_experts(
        builder, {.experts = 16, .top_k = 2, .width = {}, .router = {}},
        [&](std::size_t i) { return dense ? std::ranges::find(*dense, i) == dense->end() : sparse.has(i); }));
  }
  leave_rope_out(builder, [](std::size_t) { return false; }, "rule of the jamba family");
  return {};
}

Status fill_mamba(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 50280,
                                    .hidden_size = 768,
                                    .num_hidden_layers = 32,
                                    .max_position_embeddings = kAnyContext,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_epsilon",
                                    .tie_word_embeddings = true,
                                    .attention = false,
                                    .ffn = false}));
  for (LayerSpec& layer : builder.spec().layers) layer.recurrent.kind = RecurrentKind::kMamba1;
  return read_mamba1(builder, {.expand = "expand",
                               .states = "state_size",
                               .taps = "conv_kernel",
                               .rank = "time_step_rank",
                               .conv_bias = "use_conv_bias",
                               .bias = "use_bias",
                               .part_norms = false});
}

// Falcon Mamba norms time step, B and C, without weights.
Status adjust_mamba(GgufConfig& config) {
  DOPPLER_ASSIGN(const auto normed, config.get_flag("ssm.dt_b_c_rms"));
  if (!normed.value_or(false)) return {};
  return fail(ErrorCode::kUnsupported,
              "The value {} = true is one that Doppler does not compute with. Use another model.",
              GgufMetadata::where(config.key("ssm.dt_b_c_rms")));
}

}  // namespace

const FamilyRule kMambaRule = {"mamba",
                               kMambaTypes,
                               fill_mamba,
                               {.architecture = "mamba", .adjust = adjust_mamba},
                               {.own = kBackboneNames}};
const FamilyRule kJambaRule = {
    "jamba", kJambaTypes, fill_jamba, {.architecture = "jamba"}, {.own = kJambaNames}};

}  // namespace doppler
