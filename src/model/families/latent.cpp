// Families with latent attention: DeepSeek V2 and V3, Mistral 4, GLM 4.7 Flash. They differ in how experts
// are chosen and in how rotary pairs lie. Sources: transformers' DeepseekV2Config, DeepseekV3Config,
// Mistral4Config, Glm4MoeLiteConfig.
#include <cmath>

#include "base/json.h"
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kDeepseekV2Types[] = {"deepseek_v2", "deepseek2"};
constexpr std::string_view kDeepseekV3Types[] = {"deepseek_v3"};
constexpr std::string_view kMistral4Types[] = {"mistral4"};
constexpr std::string_view kGlm4MoeLiteTypes[] = {"glm4_moe_lite"};
constexpr WeightName kMistral4Names[] = {
    {WeightRole::kGateUpExperts, "model.layers.{}.mlp.experts.gate_up_proj"},
    {WeightRole::kDownExperts, "model.layers.{}.mlp.experts.down_proj"},
};

struct LatentDefaults {
  std::uint64_t q_rank, kv_rank, own_dim, rope_dim, value_dim;
};

// Widths of real models stay far below; products of two of them and the number of heads stay below 2^63.
constexpr std::uint32_t kWidest = 1 << 20;

Status read_latent(SpecBuilder& builder, const LatentDefaults& defaults) {
  const ConfigReader& config = builder.config();
  LatentSpec latent;
  DOPPLER_ASSIGN(latent.kv_rank,
                 builder.get_uint("attention.latent.kv_rank", "kv_lora_rank", defaults.kv_rank));
  if (says_null(config, "q_lora_rank")) {
    builder.note("attention.latent.q_rank", "0", config.where("q_lora_rank"));
  } else {
    DOPPLER_ASSIGN(latent.q_rank,
                   builder.get_uint("attention.latent.q_rank", "q_lora_rank", defaults.q_rank, true));
  }
  DOPPLER_ASSIGN(const std::uint32_t own,
                 builder.get_uint("attention.latent.own_dim", "qk_nope_head_dim", defaults.own_dim));
  DOPPLER_ASSIGN(latent.rope_dim,
                 builder.get_uint("attention.latent.rope_dim", "qk_rope_head_dim", defaults.rope_dim));
  DOPPLER_ASSIGN(latent.value_dim,
                 builder.get_uint("attention.latent.value_dim", "v_head_dim", defaults.value_dim));
  for (const std::uint32_t width : {latent.kv_rank, latent.q_rank, own, latent.rope_dim, latent.value_dim}) {
    if (width <= kWidest) continue;
    return fail(ErrorCode::kCorrupt,
                "The {} gives latent attention a width of {}, too large to be true. Check kv_lora_rank, "
                "q_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim.",
                config.source(), width);
  }
  if (latent.rope_dim % 2 != 0) {
    return fail(ErrorCode::kCorrupt,
                "The {} says {} = {}, but rotary embedding turns pairs of dims. Correct it.", config.source(),
                config.name("qk_rope_head_dim"), latent.rope_dim);
  }
  // Kernels read a head's dims in pairs, here as in every other attention.
  if (own % 2 != 0) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but the dims of a head come in pairs. Correct it.",
                config.source(), config.name("qk_nope_head_dim"), own);
  }
  DOPPLER_ASSIGN(latent.bias, builder.get_bool("attention.latent.bias and o_bias", "attention_bias", false));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.latent = latent;
    layer.attention.o_bias = latent.bias;
    layer.attention.head_dim = own + latent.rope_dim;
    layer.attention.kv_heads = layer.attention.heads;
  }
  return {};
}

// 1 / sqrt(a head's dims), times the square of YaRN's magnitude if the file gives it a weight.
Status read_scale(SpecBuilder& builder) {
  const double dims = builder.spec().layers[0].attention.head_dim;
  double scale = 1 / std::sqrt(dims);
  std::string source = "derived: 1 / sqrt(qk_nope_head_dim + qk_rope_head_dim)";
  for (const std::string_view object : {"rope_parameters", "rope_scaling"}) {
    DOPPLER_ASSIGN(const auto values, builder.config().get_object(object));
    if (!values) continue;
    DOPPLER_ASSIGN(const auto type, values->get_string("rope_type"));
    if (type == "default") continue;
    DOPPLER_ASSIGN(const auto weight, values->get_number("mscale_all_dim"));
    DOPPLER_ASSIGN(const auto factor, values->get_number("factor"));
    if (weight.value_or(0) == 0 || factor.value_or(1) <= 1) continue;
    const double magnitude = 0.1 * *weight * std::log(*factor) + 1;
    scale *= magnitude * magnitude;
    source += ", times the square of 0.1 mscale_all_dim ln(factor) + 1";
    break;
  }
  set_attention_scale(builder, scale, std::move(source));
  return {};
}

Status read_shared_experts(SpecBuilder& builder, std::uint64_t fallback) {
  DOPPLER_ASSIGN(const std::uint32_t shared,
                 builder.get_uint("shared experts", "n_shared_experts", fallback, true));
  for (const LayerSpec& layer : builder.spec().layers) {
    if (layer.ffn.experts == 0 || shared == 0) continue;
    set_shared_expert(builder, std::uint64_t{layer.ffn.width} * shared, false,
                      "derived: moe_intermediate_size x n_shared_experts");
    break;
  }
  return {};
}

Result<std::uint32_t> read_dense_layers(SpecBuilder& builder, std::uint64_t fallback) {
  return builder.get_uint("dense layers", "first_k_dense_replace", fallback, true);
}

// A folder may say which part of head_dim (`whole`, if it does not say that) turns: the rotary dims, all of
// them. With another value transformers' angles do not fit the heads, but where its plain rope (`plain_reads`
// is not set) takes no notice of it.
Status check_rotary_part(SpecBuilder& builder, std::uint32_t whole, bool plain_reads = false) {
  const ConfigReader& config = builder.config();
  if (config.translated()) return {};
  DOPPLER_ASSIGN(const auto head_dim, config.get_uint("head_dim"));
  const auto of = static_cast<double>(head_dim.value_or(whole));
  const std::uint32_t turning = builder.spec().layers[0].attention.latent.rope_dim;
  bool plain = true;
  const auto check = [&](const ConfigReader& from) -> Status {
    DOPPLER_ASSIGN(const auto part, from.get_number("partial_rotary_factor"));
    if (!part || std::floor(of * *part) == turning || (plain && !plain_reads)) return {};
    return fail(ErrorCode::kCorrupt,
                "The value {} = {} of {} dims contradicts {} = {}, which all turn. Remove the former.",
                from.where("partial_rotary_factor"), *part, of, config.name("qk_rope_head_dim"), turning);
  };
  for (const std::string_view object : {"rope_parameters", "rope_scaling"}) {
    DOPPLER_ASSIGN(const auto values, config.get_object(object));
    if (!values) continue;
    DOPPLER_ASSIGN(const auto type, values->get_string(rope_type_key(*values)));
    plain = plain && type.value_or("default") == "default";
    if (values->has("partial_rotary_factor")) return check(*values);
  }
  return check(config);
}

// rope_interleave: pairs of neighbours, which transformers leaves as halves; else halves.
Status read_interleaved_rope(SpecBuilder& builder, double theta) {
  DOPPLER_ASSIGN(const bool neighbours,
                 builder.get_bool("attention.rope of neighbours", "rope_interleave", true));
  const LatentSpec& latent = builder.spec().layers[0].attention.latent;
  return read_rope(builder, {.theta = theta,
                             .layout = neighbours ? RopeLayout::kInterleavedToHalf : RopeLayout::kHalf,
                             .rotary_dim = latent.rope_dim});
}

constexpr RouterSpec kSigmoidRouter = {
    .score = RouterScore::kSigmoid, .correction = true, .normalise = true, .norm_eps = 1e-20};

Status fill_deepseek_v3(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 129280,
                                    .hidden_size = 7168,
                                    .intermediate_size = 18432,
                                    .num_hidden_layers = 61,
                                    .num_attention_heads = 128,
                                    .num_key_value_heads = 128,
                                    .head_dim = 64,
                                    .max_position_embeddings = 4096}));
  DOPPLER_TRY(read_latent(builder, {1536, 512, 128, 64, 128}));
  DOPPLER_TRY(read_scale(builder));
  DOPPLER_ASSIGN(const std::uint32_t dense, read_dense_layers(builder, 3));
  RouterSpec router = kSigmoidRouter;
  router.scale = 2.5;
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 256,
                            .top_k = 8,
                            .width = 2048,
                            .router = router,
                            .reads_normalise = true,
                            .reads_scale = true,
                            .reads_groups = true},
                           [&](std::size_t i) { return i >= dense; }));
  DOPPLER_TRY(read_shared_experts(builder, 1));
  DOPPLER_TRY(read_predicting_layers(builder));
  DOPPLER_TRY(check_rotary_part(builder, builder.spec().layers[0].attention.latent.rope_dim));
  return read_interleaved_rope(builder, 10000);
}

Status fill_deepseek_v2(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .head_dim = 64,
                                    .max_position_embeddings = 2048}));
  DOPPLER_TRY(read_latent(builder, {1536, 512, 128, 64, 128}));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  DOPPLER_TRY(read_scale(builder));
  DOPPLER_ASSIGN(const std::uint32_t dense, read_dense_layers(builder, 0));
  DOPPLER_ASSIGN(const auto method, config.get_string("topk_method"));
  const bool grouped = method == "group_limited_greedy";
  builder.note("ffn.router groups", grouped ? "the best of a group counts" : "none",
               method ? config.where("topk_method") : builder.default_source());
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 64,
                            .top_k = 6,
                            .width = 1407,
                            .router = {.score = RouterScore::kSoftmax, .group_best = 1},
                            .reads_scale = true,
                            .reads_groups = grouped},
                           [&](std::size_t i) { return i >= dense; }));
  DOPPLER_TRY(read_shared_experts(builder, 2));
  const std::uint32_t rotary = builder.spec().layers[0].attention.latent.rope_dim;
  DOPPLER_TRY(check_rotary_part(builder, rotary));
  return read_rope(builder, {.theta = 10000, .layout = RopeLayout::kInterleaved, .rotary_dim = rotary});
}

Status fill_mistral4(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 131072,
                                    .hidden_size = 4096,
                                    .intermediate_size = 12288,
                                    .num_hidden_layers = 36,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 32,
                                    .head_dim = 128,
                                    .max_position_embeddings = 1048576}));
  builder.spec().fused_experts = true;
  DOPPLER_TRY(read_latent(builder, {1024, 256, 64, 64, 128}));
  DOPPLER_TRY(read_scale(builder));
  DOPPLER_ASSIGN(const std::uint32_t dense, read_dense_layers(builder, 0));
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 128,
                            .top_k = 4,
                            .width = 2048,
                            .router = {.score = RouterScore::kSoftmax, .normalise = true, .norm_eps = 1e-20},
                            .reads_normalise = true,
                            .reads_scale = true,
                            .reads_groups = true},
                           [&](std::size_t i) { return i >= dense; }));
  DOPPLER_TRY(read_shared_experts(builder, 1));
  DOPPLER_TRY(read_query_scale(builder));
  DOPPLER_TRY(check_rotary_part(builder, builder.spec().layers[0].attention.head_dim));
  return read_interleaved_rope(builder, 10000);
}

Status fill_glm4_moe_lite(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 154880,
                                    .hidden_size = 2048,
                                    .intermediate_size = 10240,
                                    .num_hidden_layers = 47,
                                    .num_attention_heads = 20,
                                    .num_key_value_heads = 20,
                                    .head_dim = 64,
                                    .max_position_embeddings = 202752,
                                    .rms_norm_eps = 1e-5}));
  ModelSpec& spec = builder.spec();
  DOPPLER_TRY(read_latent(builder, {768, 512, 192, 64, 256}));
  DOPPLER_TRY(read_scale(builder));
  DOPPLER_ASSIGN(const auto types, builder.config().get_strings("mlp_layer_types"));
  if (types && types->size() != spec.layers.size()) {
    return fail(ErrorCode::kCorrupt,
                "The {} lists {} mlp_layer_types for num_hidden_layers = {}. Correct it.",
                builder.config().source(), types->size(), spec.layers.size());
  }
  DOPPLER_ASSIGN(const std::uint32_t dense, read_dense_layers(builder, 1));
  RouterSpec router = kSigmoidRouter;
  router.scale = 1.8;
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 64,
                            .top_k = 4,
                            .width = 1536,
                            .router = router,
                            .reads_normalise = true,
                            .reads_scale = true,
                            .reads_groups = true},
                           [&](std::size_t i) { return types ? (*types)[i] == "sparse" : i >= dense; }));
  DOPPLER_TRY(read_shared_experts(builder, 1));
  DOPPLER_TRY(read_predicting_layers(builder));
  DOPPLER_TRY(check_rotary_part(builder, spec.layers[0].attention.latent.rope_dim, true));
  return read_interleaved_rope(builder, 10000);
}

// Files of one architecture hold any of these families, and others with latent attention: how experts are
// chosen tells them apart.
Status fill_latent_gguf(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  DOPPLER_ASSIGN(const auto score, config.get_string("scoring_func"));
  DOPPLER_ASSIGN(const auto normalises, config.get_bool("norm_topk_prob"));
  DOPPLER_ASSIGN(const auto architecture, config.get_string("model_type"));
  const bool mistral = normalises.value_or(false) || architecture == "mistral4";
  if (score != "sigmoid" && mistral) return fill_mistral4(builder);
  DOPPLER_TRY(score == "sigmoid" ? fill_deepseek_v3(builder) : fill_deepseek_v2(builder));
  return read_query_scale(builder);
}

// Sizes of heads as attention would have them without the latent.
Status adjust_sizes(GgufConfig& config) {
  const auto number = [&](std::string_view suffix) -> Result<std::uint64_t> {
    DOPPLER_ASSIGN(const auto value, config.get_uint(suffix));
    if (value && *value > 0) return *value;
    return fail(ErrorCode::kCorrupt,
                "The GGUF metadata has no {}, which latent attention needs. Download the file again.",
                config.key(suffix));
  };
  DOPPLER_ASSIGN(const std::uint64_t whole, number("attention.key_length_mla"));
  DOPPLER_ASSIGN(const std::uint64_t values, number("attention.value_length_mla"));
  DOPPLER_ASSIGN(const std::uint64_t rotary, number("rope.dimension_count"));
  DOPPLER_ASSIGN(const std::uint64_t rank, number("attention.kv_lora_rank"));
  if (rotary >= whole) {
    return fail(ErrorCode::kCorrupt, "The value {} = {} must be below {} = {}. Download the file again.",
                GgufMetadata::where(config.key("rope.dimension_count")), rotary,
                config.key("attention.key_length_mla"), whole);
  }
  config.set_from_key("kv_lora_rank", rank, "attention.kv_lora_rank");
  config.set_from_key("v_head_dim", values, "attention.value_length_mla");
  config.set_from_key("qk_rope_head_dim", rotary, "rope.dimension_count");
  config.derive(
      "qk_nope_head_dim", whole - rotary,
      fmt::format("{} - {}", config.key("attention.key_length_mla"), config.key("rope.dimension_count")));
  DOPPLER_ASSIGN(const auto q_rank, config.get_uint("attention.q_lora_rank"));
  config.set_from_key("q_lora_rank", q_rank.value_or(0) > 0 ? Json(*q_rank) : Json(),
                      "attention.q_lora_rank");
  return {};
}

// Scores that choose experts. Files of GLM 4.7 Flash may not say which, as its config.json does not; only
// sigmoids come with a correction.
Status adjust_score(GgufConfig& config) {
  constexpr std::string_view kKey = "expert_gating_func";
  constexpr std::uint64_t kUnsaid = 0, kSigmoid = 2;  // 1: softmax
  DOPPLER_ASSIGN(const auto gating, config.get_uint(kKey));
  if (gating.value_or(kUnsaid) > kSigmoid) {
    return fail(ErrorCode::kUnsupported,
                "The value {} = {} makes scores of logits in a way that Doppler does not know of models with "
                "latent attention. Use another model.",
                GgufMetadata::where(config.key(kKey)), *gating);
  }
  if (gating.value_or(kUnsaid) != kUnsaid) {
    config.set_from_key("scoring_func", *gating == kSigmoid ? "sigmoid" : "softmax", kKey);
    return {};
  }
  for (std::size_t i = 0; i < config.layers(); ++i) {
    const TensorView* correction = config.tensor(WeightRole::kRouterCorrection, static_cast<int>(i));
    if (correction == nullptr) continue;
    config.derive("scoring_func", "sigmoid", "tensor " + correction->name);
    return {};
  }
  config.set("scoring_func", "softmax", {config.key(kKey), "default of GGUF"});
  return {};
}

// What a file leaves out means the same in each: its classes have numbers of their own.
Status adjust_experts(GgufConfig& config) {
  struct Absent {
    std::string_view path, suffix;
    std::uint64_t value;
  };
  constexpr Absent kAbsent[] = {{"routed_scaling_factor", "expert_weights_scale", 1},
                                {"n_shared_experts", "expert_shared_count", 0},
                                {"first_k_dense_replace", "leading_dense_block_count", 0}};
  for (const Absent& absent : kAbsent) {
    if (!config.json().contains(std::string(absent.path)))
      config.set(absent.path, absent.value, {config.key(absent.suffix), "default of GGUF"});
  }
  if (!config.json().contains("norm_topk_prob"))
    config.set("norm_topk_prob", false, {config.key("expert_weights_norm"), "default of GGUF"});
  DOPPLER_ASSIGN(const auto groups, config.get_uint("expert_group_count"));
  if (groups.value_or(0) > 1)
    config.set_from_key("topk_method", "group_limited_greedy", "expert_group_count");
  return adjust_score(config);
}

// How much queries grow with their position, every so many positions: transformers has one number for these
// and for YaRN's original context.
Status adjust_query_scale(GgufConfig& config) {
  constexpr std::string_view kLength = "attention.temperature_length",
                             kContext = "rope.scaling.original_context_length";
  DOPPLER_ASSIGN(const auto beta, config.get_number("attention.temperature_scale"));
  DOPPLER_ASSIGN(const auto every, config.get_uint(kLength));
  DOPPLER_ASSIGN(const auto context, config.get_uint(kContext));
  if (beta.value_or(0) == 0 || !every) return {};
  if (context.value_or(*every) != *every) {
    return fail(ErrorCode::kUnsupported,
                "The value {} = {} differs from {} = {}, which Doppler does not run. Use another model.",
                GgufMetadata::where(config.key(kLength)), *every, config.key(kContext), *context);
  }
  config.set_from_key("rope_scaling.original_max_position_embeddings", *every, kLength);
  const auto scaling = config.json().find("rope_scaling");
  if (!scaling->contains("rope_type")) config.set_from_key("rope_scaling.rope_type", "default", kLength);
  return {};
}

Status adjust_latent(GgufConfig& config) {
  DOPPLER_TRY(adjust_sizes(config));
  // llama.cpp's key is a tenth of the weight of YaRN's magnitude; transformers' mscale is the same.
  DOPPLER_ASSIGN(const auto weight, config.get_number("rope.scaling.yarn_log_multiplier"));
  if (weight.value_or(0) != 0) {
    for (const std::string_view path : {"rope_scaling.mscale", "rope_scaling.mscale_all_dim"})
      config.set_from_key(path, *weight * 10, "rope.scaling.yarn_log_multiplier");
  }
  DOPPLER_TRY(adjust_query_scale(config));
  return adjust_experts(config);
}

constexpr std::string_view kLatentOwn[] = {"rope.scaling.yarn_log_multiplier"};
constexpr GgufKey kLatentKeys[] = {{"rope_scaling.llama_4_scaling_beta", "attention.temperature_scale"}};
// Converters write both halves of experts as one tensor where folders have them so.
constexpr WeightName kLatentGgufNames[] = {{WeightRole::kGateUpExperts, "blk.{}.ffn_gate_up_exps.weight"}};

constexpr GgufRule latent_gguf(std::string_view architecture) {
  return {.architecture = architecture,
          .weight_names = {.style = NameStyle::kGguf, .own = kLatentGgufNames},
          .keys = kLatentKeys,
          .fill = fill_latent_gguf,
          .adjust = adjust_latent,
          .own_keys = kLatentOwn};
}

}  // namespace

const FamilyRule kDeepseekV2Rule = {"deepseek_v2", kDeepseekV2Types, fill_deepseek_v2,
                                    latent_gguf("deepseek2")};
// Files of these are read by the rule above, which has the architecture first.
const FamilyRule kDeepseekV3Rule = {"deepseek_v3", kDeepseekV3Types, fill_deepseek_v3,
                                    latent_gguf("deepseek2")};
const FamilyRule kGlm4MoeLiteRule = {"glm4_moe_lite", kGlm4MoeLiteTypes, fill_glm4_moe_lite,
                                     latent_gguf("deepseek2")};
const FamilyRule kMistral4Rule = {"mistral4",
                                  kMistral4Types,
                                  fill_mistral4,
                                  latent_gguf("mistral4"),
                                  {.own = kMistral4Names},
                                  R"({"rope_type": "yarn", "rope_theta": 10000, "factor": 128,
                                      "original_max_position_embeddings": 8192, "beta_fast": 32, "beta_slow": 1,
                                      "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1})"};

}  // namespace doppler
