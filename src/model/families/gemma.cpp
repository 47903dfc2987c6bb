// Gemma 1 (a llama), Gemma 2 (softcaps, every other layer slides) and Gemma 3 (q/k norms, two rope thetas,
// five of six layers slide). The latter two: norms before and after each half. All: weights stored without
// their +1 (also q and k norms), embeddings scaled by sqrt(hidden). Sources: transformers' Gemma2Config,
// Gemma3TextConfig and Gemma3RMSNorm.
#include <cmath>

#include "base/json.h"
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kGemmaTypes[] = {"gemma"};
constexpr std::string_view kGemma2Types[] = {"gemma2"};
constexpr std::string_view kGemma3Types[] = {"gemma3_text", "gemma3"};

// What all Gemmas share.
void scale_as_gemma(SpecBuilder& builder) {
  ModelSpec& spec = builder.spec();
  spec.norm.weight_offset = 1;
  builder.note("norm.weight_offset", "1", "rule of the gemma families: checkpoints store w - 1");
  scale_embedding_as_gemma(builder);
}

// The part that Gemma 2 and 3 share. The cap is the default for final logits; nothing: no cap.
Status fill_gemma(SpecBuilder& builder, std::optional<double> final_cap) {
  ModelSpec& spec = builder.spec();
  scale_as_gemma(builder);
  DOPPLER_ASSIGN(const double scalar,
                 builder.get_positive("attention.query_pre_attn_scalar", "query_pre_attn_scalar", 256.0));
  set_attention_scale(builder, 1 / std::sqrt(scalar), "derived: 1 / sqrt(query_pre_attn_scalar)");
  DOPPLER_ASSIGN(spec.final_softcap,
                 read_softcap(builder, "head.softcap", "final_logit_softcapping", final_cap));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(refuse_flag(builder, "use_bidirectional_attention"));
  builder.note("post_attn_norm, post_ffn_norm", "true", "rule of the gemma families");
  for (LayerSpec& layer : spec.layers) {
    layer.post_attn_norm = layer.post_ffn_norm = true;
  }
  return {};
}

// Gemma2Config and Gemma3TextConfig differ only in these two.
ConfigDefaults gemma_defaults(std::uint64_t vocab_size, std::uint64_t context) {
  return {.vocab_size = vocab_size,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 26,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = context,
          .tie_word_embeddings = true,
          .activation = "gelu_pytorch_tanh",
          .activation_key = "hidden_activation"};
}

Status fill_gemma1(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 256000,
                                    .hidden_size = 3072,
                                    .intermediate_size = 24576,
                                    .num_hidden_layers = 28,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 16,
                                    .head_dim = 256,
                                    .max_position_embeddings = 8192,
                                    .tie_word_embeddings = true,
                                    .activation = "gelu_pytorch_tanh"}));
  scale_as_gemma(builder);
  DOPPLER_TRY(read_attention_bias(builder));
  return read_rope(builder, 10000);
}

Status fill_gemma2(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, gemma_defaults(256000, 8192)));
  DOPPLER_TRY(fill_gemma(builder, 30.0));
  DOPPLER_ASSIGN(const double cap,
                 read_softcap(builder, "attention.softcap", "attn_logit_softcapping", 50.0));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.softcap = cap;
  DOPPLER_TRY(
      read_layer_types(builder, 4096, is_last_of_period, 2, "rule: every second layer attends fully"));
  return read_rope(builder, 10000);
}

Status fill_gemma3(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, gemma_defaults(262208, 131072)));
  // attn_logit_softcapping stands in its configuration, but its attention does not read it.
  DOPPLER_TRY(fill_gemma(builder, std::nullopt));
  builder.note("attention.qk_norm", "true", "rule of the gemma3 family");
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = true;
  const std::string_view key =
      builder.config().has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  DOPPLER_ASSIGN(const std::uint32_t period, builder.get_uint("attention.period", key, 6));
  DOPPLER_TRY(read_layer_types(builder, 4096, is_last_of_period, period,
                               fmt::format("rule: every layer {} of {} attends fully", period, period)));
  return read_rope(builder, 1000000, 10000);
}

// GGUF has no key for query_pre_attn_scalar. llama.cpp knows the 27B models, which alone do not scale by the
// head size, by their number of layers.
void derive_query_scalar(GgufConfig& config, std::uint64_t layers_of_27b) {
  const Json& json = config.json();
  if (!json.contains("head_dim"))
    return;  // the metadata says that no layer attends, which fill_gemma refuses
  if (config.layers() == layers_of_27b) {
    const double heads = json["num_attention_heads"].get<double>();
    config.derive("query_pre_attn_scalar", json["hidden_size"].get<double>() / heads,
                  fmt::format("{} / {}, as in the 27B model", config.key("embedding_length"),
                              config.key("attention.head_count")));
  } else {
    config.derive("query_pre_attn_scalar", json["head_dim"].get<double>(),
                  config.key("attention.key_length"));
  }
}

Status adjust_gemma2(GgufConfig& config) {
  derive_query_scalar(config, 46);
  return {};
}

Status adjust_gemma3(GgufConfig& config) {
  derive_query_scalar(config, 62);
  DOPPLER_ASSIGN(const auto window, config.get_uint("attention.sliding_window"));
  if (window.value_or(0) > 0) return {};
  // llama.cpp's rule: without a window every layer attends fully.
  config.set("layer_types", Json(config.layers(), "full_attention"),
             {config.key("attention.sliding_window"),
              fmt::format("gguf: no {}", config.key("attention.sliding_window"))});
  return {};
}

}  // namespace

Result<double> read_softcap(SpecBuilder& builder, std::string_view path, std::string_view key,
                            std::optional<double> fallback) {
  // null switches a softcap off, an absent key means the family's default.
  if (says_null(builder.config(), key)) fallback = std::nullopt;
  if (!builder.config().has(key) && !fallback) {
    builder.note(std::string(path), "none",
                 says_null(builder.config(), key) ? builder.config().where(key) : builder.default_source());
    return 0.0;
  }
  DOPPLER_ASSIGN(const double cap, builder.get_number(path, key, fallback));
  if (!(cap > 0)) {
    return fail(ErrorCode::kCorrupt, "The value {} = {} is not positive. Correct it, or set it to null.",
                builder.config().where(key), cap);
  }
  return cap;
}

void scale_embedding_as_gemma(SpecBuilder& builder) {
  ModelSpec& spec = builder.spec();
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden)));
  builder.note("embedding_scale", fmt::format("{}", spec.embedding_scale),
               fmt::format("derived: sqrt({})", builder.config().name("hidden_size")));
}

const FamilyRule kGemmaRule = {"gemma", kGemmaTypes, fill_gemma1, {.architecture = "gemma"}};
const FamilyRule kGemma2Rule = {"gemma2",
                                kGemma2Types,
                                fill_gemma2,
                                {.architecture = "gemma2", .adjust = adjust_gemma2},
                                {.own = kSandwichNames}};
const FamilyRule kGemma3Rule = {"gemma3",
                                kGemma3Types,
                                fill_gemma3,
                                {.architecture = "gemma3", .adjust = adjust_gemma3},
                                {.own = kSandwichNames}};

}  // namespace doppler
