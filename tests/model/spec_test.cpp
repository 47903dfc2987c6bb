// config.json of every family, in the key styles of different years, becomes the same ModelSpec, and each
// value says where it came from.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "model_fixture.h"

namespace doppler {
namespace {

using testing::tiny_config;

Result<ModelSpec> spec_of(const Json& config) {
  return read_spec(config, nullptr);
}

std::string spec_source(const ModelSpec& spec, const std::string& path) {
  for (const SpecSource& source : spec.sources) {
    if (source.path == path) return source.value + " from " + source.source;
  }
  return "nothing notes " + path;
}

std::string kinds(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers) text += layer.attention.kind == AttentionKind::kFull ? 'F' : 's';
  return text;
}

// The tiny configs name every size; without them the class's defaults hold.
Json without(Json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) config.erase(key);
  return config;
}

TEST(Spec, Llama) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(tiny_config("llama")));
  EXPECT_EQ(spec.family, "llama");
  EXPECT_EQ(spec.layers.size(), 3u);
  EXPECT_EQ(kinds(spec), "FFF");
  const AttentionSpec& attention = spec.layers[0].attention;
  EXPECT_EQ(attention.q_width(), 32u);
  EXPECT_EQ(attention.kv_width(), 16u);
  EXPECT_DOUBLE_EQ(attention.scale, 1 / std::sqrt(8.0));
  EXPECT_FALSE(attention.qkv_bias || attention.o_bias || attention.qk_norm || spec.layers[0].ffn.bias);
  EXPECT_EQ(spec.norm.weight_offset, 0);
  EXPECT_EQ(spec.embedding_scale, 1);
  EXPECT_FALSE(spec.tied_head);
  EXPECT_EQ(spec.bos_id, 2);
  EXPECT_EQ(spec.pad_id, -1);
  EXPECT_EQ(spec_source(spec, "hidden"), "32 from config.json: hidden_size");
  EXPECT_EQ(spec_source(spec, "attention.rope.theta"), "10000 from config.json: rope_parameters.rope_theta");
  EXPECT_EQ(spec_source(spec, "attention.qkv_bias and o_bias"), "false from default of the llama family");
  EXPECT_EQ(spec_source(spec, "ffn.activation"), "silu from config.json: hidden_act");
}

TEST(Spec, LlamaDefaultsAndFlags) {
  Json config = without(tiny_config("llama"),
                        {"num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act", "rope_parameters",
                         "tie_word_embeddings", "bos_token_id", "eos_token_id", "max_position_embeddings"});
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(spec.layers[0].attention.kv_heads, 4u);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 8u);
  EXPECT_EQ(spec.layers[0].attention.rope.theta, 10000);
  EXPECT_EQ(spec.norm.eps, 1e-6);
  EXPECT_EQ(spec.context_length, 2048u);
  EXPECT_TRUE(spec.layers[0].attention.qkv_bias && spec.layers[0].attention.o_bias &&
              spec.layers[0].ffn.bias);
  EXPECT_TRUE(spec.eos_ids.empty());
  EXPECT_EQ(spec_source(spec, "attention.kv_heads"), "4 from derived: num_attention_heads");
  EXPECT_EQ(spec_source(spec, "attention.head_dim"), "8 from derived: hidden_size / num_attention_heads");
}

TEST(Spec, MistralWindows) {
  Json config = tiny_config("mistral");
  ASSERT_OK_AND_ASSIGN(const ModelSpec windows, spec_of(config));
  EXPECT_EQ(kinds(windows), "sss");
  EXPECT_EQ(windows.layers[2].attention.window, 4u);
  config["sliding_window"] = nullptr;  // published so by later Mistral models
  ASSERT_OK_AND_ASSIGN(const ModelSpec none, spec_of(config));
  EXPECT_EQ(kinds(none), "FFF");
  EXPECT_EQ(none.layers[2].attention.window, 0u);
  config.erase("sliding_window");
  ASSERT_OK_AND_ASSIGN(const ModelSpec defaults, spec_of(config));
  EXPECT_EQ(defaults.layers[2].attention.window, 4096u);
}

TEST(Spec, Gemma3sAttentionMayHaveBiases) {
  Json config = tiny_config("gemma3");
  config["attention_bias"] = true;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_TRUE(spec.layers[0].attention.qkv_bias && spec.layers[0].attention.o_bias);
}

TEST(Spec, Gemma3sScoresHaveNoCapWhateverItsConfigSays) {
  Json config = tiny_config("gemma3");
  config["attn_logit_softcapping"] = 8.0;  // a key of its class that its attention does not read
  config["final_logit_softcapping"] = 10.0;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(spec.layers[0].attention.softcap, 0);
  EXPECT_EQ(spec.final_softcap, 10);
}

TEST(Spec, YarnsMagnitudeOfNoughtIsNone) {
  Json config = tiny_config("llama");
  config["rope_parameters"] = {{"rope_type", "yarn"},
                               {"rope_theta", 10000.0},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 32}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec without, spec_of(config));
  config["rope_parameters"].update({{"mscale", 1.0}, {"mscale_all_dim", 0.0}});
  ASSERT_OK_AND_ASSIGN(const ModelSpec nought, spec_of(config));
  EXPECT_EQ(nought.layers[0].attention.rope, without.layers[0].attention.rope);
  config["rope_parameters"]["mscale_all_dim"] = -1.0;
  EXPECT_ERROR(spec_of(config), "mscale_all_dim = -1", "not positive");
}

TEST(Spec, Qwen3MoesWindowHoldsInEveryLayer) {
  Json config = tiny_config("qwen3_moe");
  config["sliding_window"] = 16;
  config["max_window_layers"] = 2;  // a key of Qwen 2 that this family does not read
  config["use_sliding_window"] = true;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.attention.window, 16);
  config["use_sliding_window"] = false;
  ASSERT_OK_AND_ASSIGN(const ModelSpec without_window, spec_of(config));
  for (const LayerSpec& layer : without_window.layers) EXPECT_EQ(layer.attention.kind, AttentionKind::kFull);
}

TEST(Spec, ErniesBiasesAreNotInItsExperts) {
  Json config = tiny_config("ernie4_5_moe");
  config["use_bias"] = true;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  const FfnSpec& experts = spec.layers[2].ffn;
  EXPECT_GT(experts.experts, 0);
  EXPECT_TRUE(experts.bias && !experts.expert_bias) << "dense and shared projections have them";
}

TEST(Spec, Qwen2BiasesAndWindows) {
  Json config = tiny_config("qwen2");
  ASSERT_OK_AND_ASSIGN(const ModelSpec plain, spec_of(config));
  EXPECT_TRUE(plain.layers[0].attention.qkv_bias);
  EXPECT_FALSE(plain.layers[0].attention.o_bias);
  EXPECT_EQ(kinds(plain), "FFF");
  config["sliding_window"] = 16;  // says nothing while use_sliding_window is off
  config["use_sliding_window"] = false;
  ASSERT_OK_AND_ASSIGN(const ModelSpec off, spec_of(config));
  EXPECT_EQ(kinds(off), "FFF");
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 2;
  ASSERT_OK_AND_ASSIGN(const ModelSpec on, spec_of(config));
  EXPECT_EQ(kinds(on), "FFs");
  EXPECT_EQ(on.layers[2].attention.window, 16u);
}

TEST(Spec, Qwen3NormsQueriesAndKeys) {
  Json config = without(tiny_config("qwen3"), {"head_dim"});
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_TRUE(spec.layers[0].attention.qk_norm);
  EXPECT_FALSE(spec.layers[0].attention.qkv_bias);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 128u) << "the class's default, not hidden_size / heads";
  EXPECT_EQ(spec.norm.weight_offset, 0);
}

TEST(Spec, Phi3FusesAndMaySlide) {
  Json config = tiny_config("phi3");
  ASSERT_OK_AND_ASSIGN(const ModelSpec full, spec_of(config));
  EXPECT_TRUE(full.fused_qkv && full.fused_gate_up);
  EXPECT_EQ(kinds(full), "FFF");
  config["sliding_window"] = 2047;
  config["partial_rotary_factor"] = 0.75;
  ASSERT_OK_AND_ASSIGN(const ModelSpec slides, spec_of(config));
  EXPECT_EQ(kinds(slides), "sss");
  EXPECT_EQ(slides.layers[0].attention.window, 2047u);
  EXPECT_EQ(slides.layers[0].attention.rope.rotary_dim, 6u);
  EXPECT_EQ(spec_source(slides, "attention.rope.rotary_dim"), "6 from config.json: partial_rotary_factor");
}

TEST(Spec, Gemma2SoftcapsAndAlternates) {
  Json config = without(tiny_config("gemma2"), {"rope_parameters", "sliding_window", "tie_word_embeddings"});
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(kinds(spec), "sFs");
  EXPECT_EQ(spec.layers[0].attention.window, 4096u);
  EXPECT_EQ(spec.layers[0].attention.softcap, 50);
  EXPECT_EQ(spec.final_softcap, 30);
  EXPECT_EQ(spec.norm.weight_offset, 1);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_FLOAT_EQ(static_cast<float>(spec.embedding_scale), std::sqrt(32.0f));
  EXPECT_DOUBLE_EQ(spec.layers[0].attention.scale, 1 / std::sqrt(8.0));
  EXPECT_TRUE(spec.layers[0].post_attn_norm && spec.layers[0].post_ffn_norm);
  EXPECT_EQ(spec.layers[0].ffn.activation, Activation::kGeluTanh);
  config["attn_logit_softcapping"] = nullptr;
  config["final_logit_softcapping"] = 20.0;
  ASSERT_OK_AND_ASSIGN(const ModelSpec changed, spec_of(config));
  EXPECT_EQ(changed.layers[0].attention.softcap, 0);
  EXPECT_EQ(changed.final_softcap, 20);
}

TEST(Spec, GemmaIgnoresItsOutdatedHiddenAct) {
  Json config = tiny_config("gemma2");
  config["hidden_act"] = "gelu";
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(spec.layers[0].ffn.activation, Activation::kGeluTanh);
  config.erase("hidden_activation");
  ASSERT_OK_AND_ASSIGN(const ModelSpec defaults, spec_of(config));
  EXPECT_EQ(defaults.layers[0].ffn.activation, Activation::kGeluTanh);
}

TEST(Spec, Gemma3InNewAndOldKeys) {
  Json config = tiny_config("gemma3");
  config["num_hidden_layers"] = 7;
  config["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                           "sliding_attention", "full_attention",    "sliding_attention"};
  ASSERT_OK_AND_ASSIGN(const ModelSpec now, spec_of(config));
  Json old = without(config, {"rope_parameters", "layer_types"});
  old["rope_theta"] = 1000000.0;
  old["rope_local_base_freq"] = 10000.0;
  old["rope_scaling"] = nullptr;
  old["sliding_window_pattern"] = 6;
  ASSERT_OK_AND_ASSIGN(const ModelSpec before, spec_of(old));
  for (const ModelSpec& spec : {now, before}) {
    EXPECT_EQ(kinds(spec), "sssssFs");
    EXPECT_TRUE(spec.layers[0].attention.qk_norm);
    EXPECT_EQ(spec.layers[0].attention.rope.theta, 10000);
    EXPECT_EQ(spec.layers[5].attention.rope.theta, 1000000);
    EXPECT_EQ(spec.layers[0].attention.window, 4u);
    EXPECT_EQ(spec.layers[5].attention.window, 0u);
    EXPECT_EQ(spec.layers[0].attention.softcap, 0);
  }
  EXPECT_EQ(spec_source(before, "attention.rope[sliding].theta"),
            "10000 from config.json: rope_local_base_freq");
  EXPECT_EQ(spec_source(now, "attention.rope[sliding].theta"),
            "10000 from config.json: rope_parameters.sliding_attention.rope_theta");
}

// The first Gemma 3 configs scale only the global rope, and leave half of the keys to the class.
TEST(Spec, Gemma3ScalesOnlyTheGlobalRope) {
  const Json config = {{"model_type", "gemma3_text"},
                       {"hidden_size", 64},
                       {"intermediate_size", 96},
                       {"num_hidden_layers", 6},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(kinds(spec), "sssssF");
  EXPECT_EQ(spec.vocab_size, 262208u);
  EXPECT_EQ(spec.layers[0].attention.heads, 8u);
  EXPECT_EQ(spec.layers[0].attention.kv_heads, 4u);
  EXPECT_EQ(spec.layers[0].attention.head_dim, 256u);
  EXPECT_EQ(spec.context_length, 131072u);
  EXPECT_DOUBLE_EQ(spec.layers[0].attention.scale, 1.0 / 16);
  EXPECT_EQ(spec.layers[5].attention.rope.scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(spec.layers[5].attention.rope.scaling.factor, 8);
  EXPECT_EQ(spec.layers[5].attention.rope.theta, 1000000);
  EXPECT_EQ(spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kNone);
  EXPECT_EQ(spec.layers[0].attention.rope.theta, 10000);
}

TEST(Spec, RopeParametersOfOnlyOneLayerType) {
  Json config = tiny_config("gemma3");
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000.0}}}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(spec.layers[1].attention.rope.theta, 500000);
  EXPECT_EQ(spec.layers[0].attention.rope.theta, 10000);
  EXPECT_EQ(spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kNone);
  config["rope_theta"] = 500000.0;  // the global one: no business of the sliding layers
  config["rope_local_base_freq"] = 20000.0;
  ASSERT_OK_AND_ASSIGN(const ModelSpec both, spec_of(config));
  EXPECT_EQ(both.layers[0].attention.rope.theta, 20000);
}

TEST(Spec, NestedTextConfig) {
  Json text = tiny_config("gemma3");
  text.erase("eos_token_id");
  const Json config = {{"model_type", "gemma3"},
                       {"text_config", text},
                       {"vision_config", {{"hidden_size", 1152}}},
                       {"eos_token_id", {1, 9}}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(spec.hidden, 32u);
  EXPECT_EQ(spec.eos_ids, (std::vector<std::int32_t>{1, 9}));
  EXPECT_EQ(spec_source(spec, "hidden"), "32 from config.json: text_config.hidden_size");
}

TEST(Spec, SpecialIds) {
  Json config = tiny_config("llama");
  config["eos_token_id"] = {3, 4};
  config["pad_token_id"] = 5;
  ASSERT_OK_AND_ASSIGN(const ModelSpec own, spec_of(config));
  EXPECT_EQ(own.eos_ids, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(own.pad_id, 5);
  const Json generation = {{"eos_token_id", 7}, {"pad_token_id", 0}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec generated, read_spec(config, &generation));
  EXPECT_EQ(generated.eos_ids, (std::vector<std::int32_t>{7}));
  EXPECT_EQ(generated.pad_id, 0);
  EXPECT_EQ(generated.bos_id, 2) << "from config.json, as generation_config.json has none";
  EXPECT_EQ(spec_source(generated, "eos_token_id"), "7 from generation_config.json: eos_token_id");
  config["pad_token_id"] = -1;  // old conversions of Llama 1
  ASSERT_OK_AND_ASSIGN(const ModelSpec none, spec_of(config));
  EXPECT_EQ(none.pad_id, -1);
  config["eos_token_id"] = 64;
  EXPECT_ERROR(spec_of(config), "config.json: eos_token_id = 64", "64 tokens");
  config["eos_token_id"] = "x";
  EXPECT_ERROR(spec_of(config), "eos_token_id is \"x\"");
  config["eos_token_id"] = {1, -1};
  EXPECT_ERROR(spec_of(config), "eos_token_id[1] is -1");
  const Json bad = {{"eos_token_id", 900}};
  EXPECT_ERROR(read_spec(tiny_config("llama"), &bad), "generation_config.json: eos_token_id = 900");
}

TEST(Spec, EverySourceIsASentencePart) {
  for (const FamilyRule* rule : all_families()) {
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(tiny_config(std::string(rule->name))));
    EXPECT_EQ(spec.family, rule->name);
    for (const SpecSource& source : spec.sources) {
      EXPECT_FALSE(source.path.empty() || source.value.empty()) << rule->name;
      const auto starts = [&](const char* prefix) { return source.source.starts_with(prefix); };
      EXPECT_TRUE(starts("config.json: ") || starts("default of the ") || starts("derived: ") ||
                  starts("rule"))
          << source.path << " = " << source.value << " from " << source.source;
    }
  }
}

TEST(Spec, UnknownArchitectures) {
  EXPECT_ERROR(spec_of({{"model_type", "rwkv7"}}), "architecture rwkv7", "--family guess");
  EXPECT_ERROR(spec_of({{"model_type", "gemma3_tex"}}), "the nearest is gemma3_text");
  EXPECT_ERROR(spec_of({{"hidden_size", 3}}), "config.json has no model_type");
  EXPECT_ERROR(spec_of({{"model_type", 3}}), "model_type is 3", "string");
  EXPECT_ERROR(spec_of({{"model_type", "gemma3"}, {"text_config", 3}}), "text_config is 3", "object");
  EXPECT_ERROR(spec_of(Json::array()), "config.json");
}

struct BadValue {
  const char* family;
  const char* key;
  Json value;  // null: the key is left out
  std::vector<const char*> parts;
};

TEST(Spec, BadValuesAreNamed) {
  const BadValue cases[] = {
      {"llama", "vocab_size", nullptr, {"no vocab_size", "llama family"}},
      {"llama", "hidden_size", nullptr, {"no hidden_size"}},
      {"llama", "num_hidden_layers", nullptr, {"no num_hidden_layers"}},
      {"llama", "intermediate_size", nullptr, {"no intermediate_size"}},
      {"llama", "num_attention_heads", nullptr, {"no num_attention_heads"}},
      {"llama", "hidden_size", 0, {"hidden_size = 0", "between 1 and"}},
      {"llama", "hidden_size", "64", {"hidden_size is \"64\""}},
      {"llama", "hidden_size", -64, {"hidden_size is -64"}},
      {"llama", "hidden_size", 6.5, {"hidden_size is 6.5"}},
      {"llama", "hidden_size", 4294967296, {"hidden_size = 4294967296"}},
      {"llama", "num_hidden_layers", 1000000, {"num_hidden_layers = 1000000", "4096"}},
      {"llama", "num_attention_heads", 0, {"num_attention_heads = 0"}},
      {"llama", "num_attention_heads", 2147483647, {"num_attention_heads = 2147483647"}},
      {"llama", "num_key_value_heads", 3, {"num_attention_heads = 4", "num_key_value_heads = 3", "multiple"}},
      {"llama", "num_key_value_heads", 0, {"num_key_value_heads = 0"}},
      {"llama", "num_key_value_heads", 8, {"num_key_value_heads = 8", "multiple"}},
      {"llama", "head_dim", 7, {"head_dim 7 is odd"}},
      {"llama", "head_dim", 0, {"head_dim = 0"}},
      {"llama", "head_dim", 2147483646, {"head_dim = 2147483646", "too large"}},
      {"llama", "rms_norm_eps", -1, {"rms_norm_eps = -1"}},
      {"llama", "rms_norm_eps", "small", {"rms_norm_eps is \"small\""}},
      {"llama", "tie_word_embeddings", 1, {"tie_word_embeddings is 1", "true or false"}},
      {"llama", "attention_bias", "no", {"attention_bias is \"no\""}},
      {"llama", "hidden_act", "mish", {"hidden_act", "activation mish", "silu"}},
      {"llama", "hidden_act", 4, {"hidden_act is 4"}},
      {"llama", "max_position_embeddings", 0, {"max_position_embeddings = 0"}},
      {"llama", "bos_token_id", 64, {"bos_token_id = 64", "64 tokens"}},
      {"llama", "rope_parameters", 5, {"rope_parameters is 5"}},
      {"mistral", "sliding_window", 0, {"sliding_window = 0"}},
      {"mistral", "sliding_window", "wide", {"sliding_window is \"wide\""}},
      {"qwen2", "use_sliding_window", "yes", {"use_sliding_window is \"yes\""}},
      {"qwen3", "layer_types", Json::array({"full_attention"}), {"1 layer_types", "num_hidden_layers = 3"}},
      {"qwen3", "layer_types", "full_attention", {"layer_types", "list"}},
      {"gemma3", "layer_types", Json::array({"full_attention", 3, "x"}), {"layer_types[1] is 3"}},
      {"gemma3",
       "layer_types",
       Json::array({"full_attention", "linear_attention", "full_attention"}),
       {"layer 1", "linear_attention", "sliding_attention"}},
      {"gemma2", "query_pre_attn_scalar", 0, {"query_pre_attn_scalar = 0", "not positive"}},
      {"gemma2", "attn_logit_softcapping", -50, {"attn_logit_softcapping = -50", "null"}},
      {"gemma2", "final_logit_softcapping", "x", {"final_logit_softcapping is \"x\""}},
      {"gemma3", "use_bidirectional_attention", true, {"use_bidirectional_attention = true"}},
      {"gemma3", "hidden_activation", "swiglu", {"hidden_activation", "swiglu"}},
      {"deepseek_v3", "qk_nope_head_dim", 9, {"qk_nope_head_dim = 9", "pairs"}},
      {"deepseek_v3", "qk_rope_head_dim", 9, {"qk_rope_head_dim = 9", "pairs"}},
      {"glm4_moe_lite", "partial_rotary_factor", 0.5, {"partial_rotary_factor = 0.5", "all turn"}},
  };
  for (const BadValue& bad : cases) {
    Json config = tiny_config(bad.family);
    if (bad.value.is_null())
      config.erase(bad.key);
    else
      config[bad.key] = bad.value;
    const auto spec = spec_of(config);
    ASSERT_FALSE(spec.has_value()) << bad.key << " = " << bad.value << " was accepted";
    for (const char* part : bad.parts)
      EXPECT_NE(spec.error().message.find(part), std::string::npos)
          << spec.error().message << "\nlacks: " << part;
  }
}

TEST(Spec, HeadsThatDoNotDivideTheHiddenSize) {
  Json config = without(tiny_config("llama"), {"head_dim"});
  config["hidden_size"] = 34;
  ASSERT_OK_AND_ASSIGN(const ModelSpec rounded, spec_of(config));  // as transformers divides
  EXPECT_EQ(rounded.layers[0].attention.head_dim, 8u);
  config["head_dim"] = 10;  // said outright, it need not follow
  ASSERT_OK_AND_ASSIGN(const ModelSpec said, spec_of(config));
  EXPECT_EQ(said.layers[0].attention.head_dim, 10u);
}

TEST(Spec, RopeValues) {
  struct Case {
    Json rope;
    std::vector<const char*> parts;
  };
  const Case cases[] = {
      {{{"rope_theta", 0}}, {"rope_theta = 0", "not positive"}},
      {{{"rope_theta", "1e4"}}, {"rope_theta is \"1e4\""}},
      {{{"rope_type", "spiral"}}, {"rope_parameters.rope_type", "spiral", "llama3"}},
      {{{"rope_type", 4}}, {"rope_type is 4"}},
      {{{"rope_type", "linear"}}, {"no factor"}},
      {{{"rope_type", "linear"}, {"factor", -2}}, {"factor = -2"}},
      {{{"rope_type", "llama3"}, {"factor", 8}}, {"no low_freq_factor"}},
      {{{"rope_type", "llama3"}, {"factor", 8}, {"original_max_position_embeddings", 64}},
       {"no low_freq_factor"}},
      {{{"rope_type", "llama3"},
        {"factor", 8},
        {"original_max_position_embeddings", 64},
        {"low_freq_factor", 5},
        {"high_freq_factor", 4}},
       {"low_freq_factor = 5", "high_freq_factor = 4"}},
      {{{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 1}}},
       {"short_factor and long_factor of 4 positive"}},
      {{{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 1, 1}}},
       {"of 4 positive"}},
      {{{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 1, 0, 1}}},
       {"of 4 positive"}},
      {{{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 1}, {"original_max_position_embeddings", 4096}},
       {"rope_theta = 1", "yarn", "no finite angles"}},
      {{{"rope_type", "linear"}, {"factor", 1e-320}}, {"linear", "no finite angles"}},
      {{{"partial_rotary_factor", 0}}, {"partial_rotary_factor = 0"}},
      {{{"partial_rotary_factor", 1.5}}, {"partial_rotary_factor = 1.5"}},
      {{{"partial_rotary_factor", 0.4}}, {"leaves 3 rotary dims of 8"}},
  };
  for (const Case& c : cases) {
    Json config = tiny_config("phi3");  // a family of which a part may turn
    config["rope_parameters"] = c.rope;
    const auto spec = spec_of(config);
    ASSERT_FALSE(spec.has_value()) << c.rope << " was accepted";
    for (const char* part : c.parts)
      EXPECT_NE(spec.error().message.find(part), std::string::npos)
          << spec.error().message << "\nlacks: " << part;
  }
}

// transformers' classes differ in whether they heed the key; a GGUF file or a guess is always believed.
TEST(Spec, PartialRotationIsForFamiliesThatKnowIt) {
  const auto dims = [](const char* family, const Json& changes) {
    Json config = tiny_config(family);
    config.update(changes, true);
    const auto spec = spec_of(config);
    return spec ? spec->layers[0].attention.rope.rotary_dim : 0;
  };
  const Json inside = {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
             beside = {{"partial_rotary_factor", 0.5}};
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text"}) {
    EXPECT_EQ(dims(family, inside), 8u) << family;
    EXPECT_EQ(dims(family, beside), 8u) << family;
  }
  EXPECT_EQ(dims("phi3", inside), 4u);
  EXPECT_EQ(dims("phi3", beside), 4u);
  Json config = tiny_config("llama");
  config["rope_parameters"]["partial_rotary_factor"] = 0.5;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
  EXPECT_EQ(spec_source(spec, "attention.rope.rotary_dim"),
            "8 from rule of the llama family, whatever partial_rotary_factor says");
  config["rope_parameters"]["rope_type"] = "proportional";  // that type is made of it, in any class
  ASSERT_OK_AND_ASSIGN(const ModelSpec proportional, spec_of(config));
  EXPECT_EQ(proportional.layers[0].attention.rope.still_pairs, 2u);
  config["rope_parameters"]["factor"] = 4;
  ASSERT_OK_AND_ASSIGN(const ModelSpec stretched, spec_of(config));
  EXPECT_EQ(stretched.layers[0].attention.rope.scaling.kind, RopeScalingKind::kLinear);
}

// Phi-3 has it beside the rope values, and transformers looks there first.
TEST(Spec, LayersOfATypeHaveHeadsOfOneWidth) {
  Json config = tiny_config("gemma4");
  config["num_kv_shared_layers"] = 0;
  config["per_layer_config"] = {{"2", {{"head_dim", 24}}}};
  EXPECT_ERROR(spec_of(config), "layer 2 heads of 24 dims", "shares its rotary embedding");
}

TEST(Spec, TheOriginalContextBesideTheRopeValuesGoesFirst) {
  Json config = tiny_config("llama");
  config["max_position_embeddings"] = 128;
  config["rope_parameters"] = {
      {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  const auto original = [&] {
    const auto spec = spec_of(config);
    return spec ? spec->layers[0].attention.rope.scaling.original_context : 0;
  };
  EXPECT_EQ(original(), 128);
  config["rope_parameters"]["original_max_position_embeddings"] = 64;
  EXPECT_EQ(original(), 64);
  config["original_max_position_embeddings"] = 32;
  EXPECT_EQ(original(), 32);
}

// The seeds of spec_fuzz, without which a fuzzer finds few of the keys that a family reads.
TEST(Spec, FuzzingBeginsWithEveryFamily) {
  std::string seeds;
  for (const auto& entry : std::filesystem::directory_iterator(DOPPLER_SOURCE_DIR "/fuzz/corpus/spec_fuzz")) {
    ASSERT_OK_AND_ASSIGN(const std::string text, read_text_file(entry.path(), 1 << 20));
    seeds += text;
  }
  for (const FamilyRule* family : all_families()) {
    const bool there = std::ranges::any_of(family->model_types, [&](std::string_view type) {
      return seeds.find(fmt::format("\"model_type\":\"{}\"", type)) != std::string::npos ||
             seeds.find(fmt::format("\"model_type\": \"{}\"", type)) != std::string::npos;
    });
    EXPECT_TRUE(there) << family->name;
  }
}

TEST(Spec, RopeSaidTwice) {
  Json config = tiny_config("llama");
  config["rope_theta"] = 10000.0;
  ASSERT_OK(spec_of(config));  // the same thing twice
  config["rope_theta"] = 500000.0;
  EXPECT_ERROR(spec_of(config), "rope_parameters.rope_theta = 10000", "contradicts", "rope_theta = 500000");
  config.erase("rope_theta");
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_ERROR(spec_of(config), "rope_parameters.rope_type = default", "contradicts",
               "rope_scaling.type = linear");
}

TEST(Spec, OldRopeScalingSpellings) {
  for (const char* key : {"type", "rope_type"}) {
    Json config = without(tiny_config("llama"), {"rope_parameters"});
    config["rope_theta"] = 500000.0;
    config["rope_scaling"] = {{key, "llama3"},
                              {"factor", 32.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 64}};
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_of(config));
    const RopeSpec& rope = spec.layers[0].attention.rope;
    EXPECT_EQ(rope.theta, 500000);
    EXPECT_EQ(rope.scaling.kind, RopeScalingKind::kLlama3);
    EXPECT_EQ(rope.scaling.factor, 32);
    EXPECT_EQ(rope.scaling.original_context, 64);
    EXPECT_EQ(spec_source(spec, "attention.rope.scaling"),
              std::string("llama3 from config.json: rope_scaling.") + key);
  }
}

TEST(Spec, YarnAndLongRope) {
  Json config = tiny_config("phi3");
  config["rope_parameters"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec yarn, spec_of(config));
  EXPECT_DOUBLE_EQ(yarn.layers[0].attention.rope.scaling.attention_factor, 0.1 * std::log(4.0) + 1);
  config["rope_parameters"]["mscale"] = 0.707;  // DeepSeek
  config["rope_parameters"]["mscale_all_dim"] = 1.0;
  ASSERT_OK_AND_ASSIGN(const ModelSpec weighted, spec_of(config));
  EXPECT_DOUBLE_EQ(weighted.layers[0].attention.rope.scaling.attention_factor,
                   (0.0707 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1));
  config["rope_parameters"].erase("factor");
  ASSERT_OK_AND_ASSIGN(const ModelSpec derived, spec_of(config));
  EXPECT_EQ(derived.layers[0].attention.rope.scaling.factor, 4) << "128 / 32";

  Json phi = without(tiny_config("phi3"), {"rope_parameters"});
  phi["original_max_position_embeddings"] = 32;
  phi["rope_scaling"] = {{"type", "su"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 2, 3, 4}}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec longrope, spec_of(phi));
  const RopeScaling& scaling = longrope.layers[0].attention.rope.scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::kLongRope);
  EXPECT_EQ(scaling.original_context, 32);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(32.0)));
  EXPECT_EQ(scaling.long_attention_factor, scaling.attention_factor);

  phi["rope_scaling"]["short_mscale"] = 1.2;
  phi["rope_scaling"]["long_mscale"] = 1.3;
  ASSERT_OK_AND_ASSIGN(const ModelSpec given, spec_of(phi));
  EXPECT_EQ(given.layers[0].attention.rope.scaling.attention_factor, 1.2);
  EXPECT_EQ(given.layers[0].attention.rope.scaling.long_attention_factor, 1.3);
}

}  // namespace
}  // namespace doppler
