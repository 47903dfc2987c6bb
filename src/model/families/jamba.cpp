// Jamba: Mamba 1 with norms on time step, B and C, attention without rope in every so many layers, experts in
// every so many others. Source: transformers' JambaConfig.
#include <algorithm>

#include "base/json.h"
#include "model/families/experts.h"
#include "model/families/hybrid.h"

namespace doppler {
namespace {

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

// mamba_dt_rank may say "auto": a sixteenth of the hidden width, rounded up.
Result<std::uint32_t> read_rank(SpecBuilder& builder) {
  constexpr std::string_view kKey = "mamba_dt_rank";
  const std::uint32_t automatic = builder.spec().hidden / 16 + (builder.spec().hidden % 16 != 0 ? 1 : 0);
  const auto given = builder.config().json().find(std::string(kKey));
  if (given == builder.config().json().end() || *given != "auto")
    return builder.get_uint("recurrent.rank", kKey, automatic);
  builder.note("recurrent.rank", std::to_string(automatic), builder.config().where(kKey));
  return automatic;
}

Status read_mamba1(SpecBuilder& builder) {
  RecurrentSpec r{.kind = RecurrentKind::kMamba1, .head_dim = 1, .groups = 1, .part_norms = true};
  DOPPLER_ASSIGN(const std::uint32_t expand, builder.get_uint("recurrent.expand", "mamba_expand", 2));
  DOPPLER_ASSIGN(r.heads, checked_inner(builder, expand));
  DOPPLER_ASSIGN(r.state_dim, builder.get_uint("recurrent.state_dim", "mamba_d_state", 16));
  DOPPLER_ASSIGN(r.taps, builder.get_uint("recurrent.taps", "mamba_d_conv", 4));
  DOPPLER_ASSIGN(r.rank, read_rank(builder));
  DOPPLER_ASSIGN(r.conv_bias, builder.get_bool("recurrent.conv_bias", "mamba_conv_bias", true));
  DOPPLER_TRY(read_projection_bias(builder, "mamba_proj_bias", r));
  DOPPLER_TRY(require_silu(builder, "hidden_act"));
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
  DOPPLER_TRY(refuse_window(builder));
  DOPPLER_ASSIGN(const Period attends,
                 read_period(builder, "attention", "attn_layer_period", 8, "attn_layer_offset", 4));
  DOPPLER_TRY(read_layer_kinds(
      builder, known_key(builder.config(), "layer_types", "layers_block_type"), kJambaKinds,
      [&](std::size_t i) -> std::string_view { return attends.has(i) ? "attention" : "mamba"; },
      "rule: attn_layer_period and attn_layer_offset"));
  DOPPLER_TRY(read_mamba1(builder));
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

}  // namespace

const FamilyRule kJambaRule = {
    "jamba", kJambaTypes, fill_jamba, {.architecture = "jamba"}, {.own = kJambaNames}};

}  // namespace doppler
