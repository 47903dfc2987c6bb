// Falcon: attention and feed-forward side by side behind one norm and one KV head (7B), or behind a norm each
// and several KV heads (the new decoder architecture: 40B, 180B, 11B with one norm); a fused qkv by KV head,
// no gate. Source: transformers' FalconConfig.
#include "base/json.h"
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kFalconTypes[] = {"falcon", "RefinedWebModel", "RefinedWeb"};
constexpr KeyAlias kFalconKeys[] = {{"num_hidden_layers", "n_layer"},
                                    {"num_attention_heads", "n_head"},
                                    {"num_kv_heads", "n_head_kv"},
                                    {"intermediate_size", "ffn_hidden_size"}};
// Of the second norm's name the condition is that of two norms side by side.
constexpr WeightName kFalconNames[] = {
    {WeightRole::kTokenEmbedding, "model.word_embeddings.weight"},
    {WeightRole::kAttnNorm, "model.h.{}.ln_attn.weight", WeightCondition::kParallelFfnNorm},
    {WeightRole::kAttnNormBias, "model.h.{}.ln_attn.bias", WeightCondition::kParallelFfnNorm},
    {WeightRole::kAttnNorm, "model.h.{}.input_layernorm.weight"},
    {WeightRole::kAttnNormBias, "model.h.{}.input_layernorm.bias"},
    {WeightRole::kQkv, "model.h.{}.self_attention.query_key_value.weight"},
    {WeightRole::kQkvBias, "model.h.{}.self_attention.query_key_value.bias"},
    {WeightRole::kO, "model.h.{}.self_attention.dense.weight"},
    {WeightRole::kOBias, "model.h.{}.self_attention.dense.bias"},
    {WeightRole::kFfnNorm, "model.h.{}.ln_mlp.weight", WeightCondition::kParallelFfnNorm},
    {WeightRole::kFfnNormBias, "model.h.{}.ln_mlp.bias", WeightCondition::kParallelFfnNorm},
    {WeightRole::kFfnNorm, "model.h.{}.post_attention_layernorm.weight"},
    {WeightRole::kFfnNormBias, "model.h.{}.post_attention_layernorm.bias"},
    {WeightRole::kUp, "model.h.{}.mlp.dense_h_to_4h.weight"},
    {WeightRole::kUpBias, "model.h.{}.mlp.dense_h_to_4h.bias"},
    {WeightRole::kDown, "model.h.{}.mlp.dense_4h_to_h.weight"},
    {WeightRole::kDownBias, "model.h.{}.mlp.dense_4h_to_h.bias"},
    {WeightRole::kFinalNorm, "model.ln_f.weight"},
    {WeightRole::kFinalNormBias, "model.ln_f.bias"},
};
// Where there are two, attn_norm is the feed-forward's.
constexpr WeightName kFalconGgufNames[] = {
    {WeightRole::kAttnNorm, "blk.{}.attn_norm_2.weight", WeightCondition::kParallelFfnNorm},
    {WeightRole::kAttnNormBias, "blk.{}.attn_norm_2.bias", WeightCondition::kParallelFfnNorm},
    {WeightRole::kFfnNorm, "blk.{}.attn_norm.weight", WeightCondition::kParallelFfnNorm},
    {WeightRole::kFfnNormBias, "blk.{}.attn_norm.bias", WeightCondition::kParallelFfnNorm},
};

// How many norms the halves have between them.
Result<std::uint32_t> count_norms(SpecBuilder& builder, bool new_decoder) {
  DOPPLER_ASSIGN(const bool parallel, builder.get_bool("parallel", "parallel_attn", true));
  for (LayerSpec& layer : builder.spec().layers) layer.parallel = parallel || new_decoder;
  if (!parallel && !new_decoder) return 2u;
  return builder.get_uint("parallel.norms", "num_ln_in_parallel_attn", new_decoder ? 2 : 1);
}

constexpr std::string_view kFalconOwnKeys[] = {"attention.max_alibi_bias"};
constexpr double kAlibiBias = 8;

// Where a key stands is told by rotation, or by what is added to its score: the heads' lines through the
// positions in bfloat16, multiplied by what multiplies the scores.
Status read_positions(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const bool alibi, builder.get_bool("attention.alibi", "alibi", false));
  if (!alibi) return read_rope(builder, 10000);
  leave_rope_out(builder, [](std::size_t) { return false; }, builder.config().where("alibi"));
  for (LayerSpec& layer : builder.spec().layers)
    layer.attention.alibi = {.max_bias = kAlibiBias, .scale = layer.attention.scale, .rounded = true};
  return {};
}

Status fill_falcon(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  DOPPLER_TRY(read_common(builder, {.vocab_size = 65024,
                                    .hidden_size = 4544,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 71,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_epsilon",
                                    .tie_word_embeddings = true,
                                    .activation = "gelu",
                                    .activation_key = "activation",
                                    .intermediate_factor = 4,
                                    .aliases = kFalconKeys}));
  ModelSpec& spec = builder.spec();
  use_layer_norm(builder, true);
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention and ffn bias", "bias", false));
  if (bias) use_all_biases(builder, config.where("bias"));
  use_no_gate(builder);
  spec.fused_qkv = true;
  builder.note("fused", "query_key_value", "rule of the falcon family");
  DOPPLER_ASSIGN(const bool new_decoder,
                 builder.get_bool("new_decoder_architecture", "new_decoder_architecture", false));
  DOPPLER_ASSIGN(const bool multi_query, builder.get_bool("attention.multi_query", "multi_query", true));
  const std::uint32_t heads = spec.layers[0].attention.heads;
  std::uint32_t kv_heads = multi_query ? 1 : heads;
  if (new_decoder) {
    // num_kv_heads says the number of heads where it means nothing.
    DOPPLER_ASSIGN(kv_heads, builder.get_uint("attention.kv_heads", "num_kv_heads", heads));
  }
  if (heads % kv_heads != 0) {
    return fail(ErrorCode::kCorrupt,
                "The {} says {} = {} for {} heads, which must be a multiple of it. Correct it.",
                config.source(), config.name(builder.spelled("num_kv_heads")), kv_heads, heads);
  }
  DOPPLER_ASSIGN(const std::uint32_t norms, count_norms(builder, new_decoder));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.kv_heads = kv_heads;
    layer.ffn_norm = norms == 2;
  }
  return read_positions(builder);
}

Status adjust_falcon(GgufConfig& config) {
  const std::uint64_t kv_heads = config.json()["num_key_value_heads"].get<std::uint64_t>();
  const KeyOrigin origin = {config.key("attention.head_count_kv"),
                            GgufMetadata::where(config.key("attention.head_count_kv"))};
  config.set("new_decoder_architecture", kv_heads > 1, origin);
  config.set("num_kv_heads", kv_heads, origin);
  // Doppler's own for this architecture: llama.cpp, which has the key for others, turns every Falcon's keys.
  DOPPLER_ASSIGN(const auto bias, config.get_number("attention.max_alibi_bias"));
  if (bias.value_or(0) != 0) {
    if (*bias != kAlibiBias)
      return fail(ErrorCode::kUnsupported, "The value {} = {} is not {}, which every Falcon has.",
                  GgufMetadata::where(config.key("attention.max_alibi_bias")), *bias, kAlibiBias);
    config.set_from_key("alibi", true, "attention.max_alibi_bias");
  }
  const std::string name = config.tensor_name(WeightRole::kAttnNorm, 0);  // attn_norm_2
  const bool two = config.tensor(WeightRole::kAttnNorm, 0) != nullptr;
  config.set("num_ln_in_parallel_attn", two ? 2 : 1,
             {"num_ln_in_parallel_attn", GgufMetadata::where((two ? "tensor " : "no tensor ") + name)});
  return {};
}

}  // namespace

const FamilyRule kFalconRule = {"falcon",
                                kFalconTypes,
                                fill_falcon,
                                {.architecture = "falcon",
                                 .weight_names = {.style = NameStyle::kGguf, .own = kFalconGgufNames},
                                 .adjust = adjust_falcon,
                                 .own_keys = kFalconOwnKeys},
                                {.own = kFalconNames, .qkv_by_head = true}};

}  // namespace doppler
