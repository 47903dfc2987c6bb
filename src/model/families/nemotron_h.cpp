// Nemotron H: one part a layer, each behind one norm: Mamba 2, attention without rope, a feed-forward without
// gate, or experts of the same form. Source: transformers' NemotronHConfig.
#include <algorithm>
#include <array>
#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "model/families/experts.h"
#include "model/families/hybrid.h"

namespace doppler {
namespace {

constexpr std::string_view kNemotronHTypes[] = {"nemotron_h"};
constexpr LayerKind kNemotronKinds[] = {{.name = "linear_attention", .recurrent = true, .ffn = false},
                                        {.name = "mamba", .recurrent = true, .ffn = false},
                                        {.name = "full_attention", .attention = true, .ffn = false},
                                        {.name = "attention", .attention = true, .ffn = false},
                                        {.name = "mlp"},
                                        {.name = "moe"}};

constexpr KeyAlias kNemotronAliases[] = {{"n_groups", "mamba_n_groups"},
                                         {"conv_kernel", "mamba_d_conv"},
                                         {"use_conv_bias", "mamba_conv_bias"},
                                         {"n_routed_experts", "num_local_experts"}};

// The older spelling of the layers' kinds is a letter each. They decide how many layers there are, too.
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

// Experts in the layers of that kind, a shared one beside them, and the width in which the former work.
Status read_nemotron_experts(SpecBuilder& builder, const std::vector<std::string>& kinds) {
  const auto has_experts = [&](std::size_t i) { return kinds[i] == "moe"; };
  if (std::ranges::find(kinds, "moe") == kinds.end()) return {};
  DOPPLER_TRY(read_experts(
      builder,
      {.experts = 8,
       .top_k = 2,
       .width = 7688,
       .router = {.score = RouterScore::kSigmoid, .correction = true, .normalise = true, .norm_eps = 1e-20},
       .reads_normalise = true,
       .reads_scale = true,
       .reads_groups = true},
      has_experts));
  // One shared expert, whatever n_shared_experts says: the width is of them all.
  DOPPLER_ASSIGN(const std::uint32_t shared,
                 builder.get_uint("ffn.shared_width", "moe_shared_expert_intermediate_size", 7688));
  set_shared_expert(builder, shared, false, builder.config().where("moe_shared_expert_intermediate_size"));
  std::uint32_t latent = 0;
  if (builder.config().has("moe_latent_size")) {
    DOPPLER_ASSIGN(latent, builder.get_uint("ffn.latent_width", "moe_latent_size", std::nullopt));
  }
  for (LayerSpec& layer : builder.spec().layers) {
    if (layer.ffn.experts == 0) continue;
    layer.ffn.latent_width = latent;
    layer.ffn.latent_experts = true;
  }
  return {};
}

// transformers limits the step from below by time_step_min, and takes no notice of time_step_limit; nor of
// attention_bias and tie_word_embeddings, which published files leave false.
Status read_least_step(SpecBuilder& builder, RecurrentSpec& r) {
  DOPPLER_ASSIGN(r.min_step,
                 builder.get_number("recurrent.min_step",
                                    known_key(builder.config(), "time_step_min", "mamba_dt_min"), 0.001));
  r.max_step = std::numeric_limits<double>::infinity();
  if (r.min_step >= 0) return {};
  return fail(ErrorCode::kCorrupt,
              "The value {} = {} is below 0, but it is the least step of time. Correct it.",
              builder.config().where("time_step_min"), r.min_step);
}

void use_own_head(SpecBuilder& builder) {
  auto& spec = builder.spec();
  std::erase_if(spec.sources, [](const SpecSource& s) { return s.path == "head.tied"; });
  builder.note("head.tied", "false", "rule of the nemotron_h family");
  spec.tied_head = false;
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
                                    .activation_key = "mlp_hidden_act",
                                    .aliases = kNemotronAliases}));
  if (kinds.size() != builder.spec().layers.size()) {
    return fail(ErrorCode::kCorrupt,
                "The {} lists {} kinds of layers for num_hidden_layers = {}. Correct it.",
                builder.config().source(), kinds.size(), builder.spec().layers.size());
  }
  use_own_head(builder);
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
                                                        .activation = "mamba_hidden_act",
                                                        .default_heads = 128,
                                                        .default_head_dim = 64,
                                                        .default_groups = 8,
                                                        .default_states = 128}));
  r.norm_groups = r.groups;
  DOPPLER_TRY(read_least_step(builder, r));
  DOPPLER_TRY(read_projection_bias(builder, "use_bias", r));
  DOPPLER_TRY(set_recurrent(builder, r));
  DOPPLER_TRY(read_nemotron_experts(builder, kinds));
  leave_rope_out(builder, [](std::size_t) { return false; }, "rule of the nemotron_h family");
  return {};
}

// Each layer has one norm, whatever it is before.
constexpr WeightName kNemotronGgufNames[] = {{WeightRole::kFfnNorm, "blk.{}.attn_norm.weight"}};

}  // namespace

const FamilyRule kNemotronHRule = {"nemotron_h",
                                   kNemotronHTypes,
                                   fill_nemotron_h,
                                   {.architecture = "nemotron_h",
                                    .weight_names = {.style = NameStyle::kGguf, .own = kNemotronGgufNames},
                                    .architecture_of_experts = "nemotron_h_moe"},
                                   {.own = kBackboneNames}};

}  // namespace doppler
