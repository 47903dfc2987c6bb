// The same model in the words of different years: published files have rope values at the top, transformers 5
// writes them as rope_parameters. And the switches that one model of a family has and another has not.
#include "model_fixture.h"

namespace doppler {
namespace {

using testing::tiny_config;

// Every value of a spec that changes what is computed.
std::string meaning_of(const Json& config) {
  const Result<ModelSpec> spec = read_spec(config, nullptr);
  if (!spec) return spec.error().message;
  std::string text = fmt::format("{} {} eps={} positions={} tied={} scale={}\n", spec->family, spec->hidden,
                                 spec->norm.eps, spec->learned_positions, spec->tied_head, spec->logit_scale);
  for (const LayerSpec& layer : spec->layers) {
    const AttentionSpec& a = layer.attention;
    const RopeScaling& s = a.rope.scaling;
    text += fmt::format(
        "{} {} {}/{}x{} scale={} norm={} bias={}{} | theta={} {} dim={} {} {} {} {} {} {} {} {} | {} {}",
        name_of(a.kind), a.window, a.heads, a.kv_heads, a.head_dim, a.scale, a.qk_norm, a.qkv_bias, a.o_bias,
        a.rope.theta, name_of(a.rope.layout), a.rope.rotary_dim, name_of(s.kind), s.factor, s.low_freq_factor,
        s.high_freq_factor, s.original_context, s.beta_fast, s.beta_slow, s.attention_factor,
        a.query_scale.beta, a.query_scale.every);
    text += fmt::format(" ffn={} {} parallel={} norms={}{}\n", layer.ffn.width, layer.ffn.bias,
                        layer.parallel, layer.attn_norm, layer.ffn_norm);
  }
  return text;
}

struct Spelling {
  const char* family;
  const char* now;     // merged into the tiny config, without its rope_parameters
  const char* before;  // the same in the older words
};

const Spelling kSpellings[] = {
    {"llama", R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                  "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})",
     R"({"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})"},
    {"gpt_neox", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0,
                     "partial_rotary_factor": 0.5}})",
     R"({"rotary_emb_base": 20000, "rotary_pct": 0.5})"},
    {"gpt_neox", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                     "partial_rotary_factor": 1.0}, "use_parallel_residual": false})",
     R"({"rotary_pct": 1.0, "use_parallel_residual": false})"},
    {"phi", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75}})",
     R"({"rope_theta": 10000.0, "partial_rotary_factor": 0.75})"},
    {"phi", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75}})",
     R"({"rotary_dim": 6})"},
    {"stablelm", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                     "partial_rotary_factor": 0.5}})",
     R"({"rope_pct_is_not_read": 1, "rotary_pct": 0.5, "rope_theta": 10000})"},
    {"glm4", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                 "partial_rotary_factor": 0.5}})",
     R"({"partial_rotary_factor": 0.5, "rope_theta": 10000.0})"},
    {"nemotron", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                     "partial_rotary_factor": 0.5}, "head_dim": 24})",
     R"({"partial_rotary_factor": 0.5, "head_dim": 24})"},
    {"cohere2", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}, "sliding_window": 4,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
     R"({"rope_theta": 50000, "sliding_window": 4, "sliding_window_pattern": 2})"},
    {"exaone4", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "sliding_window": 4,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
     R"({"rope_theta": 1000000, "sliding_window": 4, "sliding_window_pattern": "LG"})"},
    {"exaone4",
     R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "sliding_window": null,
                    "layer_types": ["full_attention", "full_attention", "full_attention"]})",
     R"({"rope_theta": 1000000, "sliding_window": null, "sliding_window_pattern": null})"},
    {"smollm3", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 2000000.0},
                    "no_rope_layers": [1, 0, 1]})",
     R"({"no_rope_layer_interval": 2})"},
    {"olmo3", R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                  "original_max_position_embeddings": 16, "attention_factor": 1.2}, "sliding_window": 4})",
     R"({"rope_theta": 500000, "sliding_window": 4, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
         "original_max_position_embeddings": 16, "attention_factor": 1.2}})"},
    {"hunyuan_v1_dense", R"({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0,
                             "factor": 1.0}})",
     R"({"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}})"},
    {"ministral3", R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
                       "original_max_position_embeddings": 6, "mscale": 1.0, "mscale_all_dim": 1.0,
                       "llama_4_scaling_beta": 0.3}})",
     R"({"rope_theta": 1000000.0, "rope_scaling": {"type": "yarn", "factor": 16.0,
         "original_max_position_embeddings": 6, "mscale": 1.0, "mscale_all_dim": 1.0,
         "llama_4_scaling_beta": 0.3}})"},
    {"gpt2", R"({"max_position_embeddings": 64})",
     R"({"hidden_size": null, "num_hidden_layers": null, "num_attention_heads": null,
         "max_position_embeddings": null, "intermediate_size": null, "head_dim": null, "num_key_value_heads": null,
         "n_embd": 32, "n_layer": 3, "n_head": 4, "n_ctx": 64, "n_positions": 64, "n_inner": 48})"},
    {"falcon", R"({"multi_query": true})",
     R"({"num_hidden_layers": null, "num_attention_heads": null, "n_layer": 3, "n_head": 4,
         "ffn_hidden_size": 48, "intermediate_size": null})"},
    {"falcon", R"({"new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 2})",
     R"({"model_type": "RefinedWeb", "new_decoder_architecture": true, "n_head_kv": 2})"},
    // Words of other families, of which transformers takes no notice here.
    {"gpt_neox", R"({})", R"({"partial_rotary_factor": 1.0, "rope_theta": 50000})"},
    {"glm4_moe_lite", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})", R"({})"},
    {"deepseek_v2", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})",
     R"({"partial_rotary_factor": 0.5, "rope_theta": 10000.0})"},
};

Json with(Json config, const char* more) {
  const auto parsed = parse_json(more, "the test");
  EXPECT_TRUE(parsed.has_value());
  if (parsed) config.update(*parsed);
  return config;
}

TEST(Spelling, OldAndNewWordsMeanTheSame) {
  for (const Spelling& spelling : kSpellings) {
    SCOPED_TRACE(fmt::format("{}: {}", spelling.family, spelling.before));
    Json bare = tiny_config(spelling.family);
    bare.erase("rope_parameters");
    if (std::string_view(spelling.family) == "gpt2") bare.erase("num_key_value_heads");
    const std::string now = meaning_of(with(bare, spelling.now));
    EXPECT_EQ(meaning_of(with(bare, spelling.before)), now);
    EXPECT_EQ(std::ranges::count(now, '\n'), 4) << now;
  }
}

TEST(Spelling, WindowLayersKeepTheThetaOfTheOthers) {
  Json config = with(tiny_config("olmo3"), kSpellings[12].now);
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, read_spec(config, nullptr));
  EXPECT_EQ(spec.layers[0].attention.kind, AttentionKind::kSliding);
  EXPECT_EQ(spec.layers[0].attention.rope.theta, 500000);
  EXPECT_EQ(spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kNone);
}

TEST(Spelling, SwitchesOfAFamilysOtherModels) {
  const auto spec_of = [](const char* family, const char* more) {
    const auto spec = read_spec(with(tiny_config(family), more), nullptr);
    EXPECT_TRUE(spec.has_value()) << family << more;
    return spec.value_or(ModelSpec{});
  };
  EXPECT_TRUE(spec_of("cohere", R"({"use_qk_norm": true})").layers[0].attention.qk_norm);
  EXPECT_FALSE(spec_of("cohere", "{}").layers[0].attention.qk_norm);
  const ModelSpec ernie = spec_of("ernie4_5", R"({"use_bias": true})");
  EXPECT_TRUE(ernie.layers[1].attention.o_bias && ernie.layers[1].ffn.bias);
  EXPECT_EQ(
      spec_of("gpt2", R"({"intermediate_size": null, "num_key_value_heads": null})").layers[0].ffn.width,
      128u);
  EXPECT_EQ(spec_of("gpt2", R"({"intermediate_size": null, "n_inner": 40, "num_key_value_heads": null})")
                .layers[0]
                .ffn.width,
            40u);
  EXPECT_EQ(spec_of("falcon", R"({"intermediate_size": null})").layers[0].ffn.width, 128u);
  EXPECT_EQ(spec_of("falcon", R"({"multi_query": false})").layers[0].attention.kv_heads, 4u);
  const AttentionSpec added = spec_of("falcon", R"({"alibi": true})").layers[0].attention;
  EXPECT_EQ(added.rope.rotary_dim, 0u);
  EXPECT_EQ(added.alibi, (AlibiSpec{.max_bias = 8, .scale = added.scale, .rounded = true}));
  const ModelSpec one_norm = spec_of(
      "falcon", R"({"new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1})");
  EXPECT_TRUE(one_norm.layers[0].parallel);
  EXPECT_FALSE(one_norm.layers[0].ffn_norm);
  EXPECT_ERROR(
      read_spec(with(tiny_config("falcon"), R"({"new_decoder_architecture": true, "num_kv_heads": 3})"),
                nullptr),
      "num_kv_heads = 3 for 4 heads");
  EXPECT_ERROR(
      read_spec(with(tiny_config("ministral3"),
                     R"({"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1}})"),
                nullptr),
      "needs an original_max_position_embeddings");
  // A multimodal config of a type that nobody knows, around a language model that is known.
  const Json nested = {{"model_type", "mistral3"}, {"text_config", tiny_config("ministral3")}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec inner, read_spec(nested, nullptr));
  EXPECT_EQ(inner.family, "ministral3");
}

}  // namespace
}  // namespace doppler
