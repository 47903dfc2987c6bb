// GGUF metadata to specs: every family of the fixtures equals the spec of its Hugging Face folder, and what
// files leave out, contradict or cannot mean.
#include <cmath>
#include <functional>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "model/family.h"
#include "model/gguf_rows.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::TempDir;

std::string source_of(const ModelSpec& spec, const std::string& path) {
  for (const SpecSource& s : spec.sources) {
    if (s.path == path) return s.value + " from " + s.source;
  }
  return "nothing";
}

class SameSpec : public ::testing::TestWithParam<std::string> {};

TEST_P(SameSpec, AsTheHuggingFaceFolder) {
  ASSERT_OK_AND_ASSIGN(const Model gguf, load_model(data_path("gguf/" + GetParam() + ".gguf")));
  ASSERT_OK_AND_ASSIGN(const Model folder, load_model(data_path("models/" + GetParam())));
  const ModelSpec &a = gguf.spec, &b = folder.spec;
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.norm.eps, b.norm.eps) << "shortest decimals of the f32 values";
  EXPECT_EQ(a.norm.weight_offset, 0);
  EXPECT_EQ(a.embedding_scale, b.embedding_scale);
  EXPECT_EQ(a.tied_head, b.tied_head);
  EXPECT_EQ(a.final_softcap, b.final_softcap);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const AttentionSpec &x = a.layers[i].attention, &y = b.layers[i].attention;
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.window, y.window);
    EXPECT_EQ(x.heads, y.heads);
    EXPECT_EQ(x.kv_heads, y.kv_heads);
    EXPECT_EQ(x.head_dim, y.head_dim);
    EXPECT_EQ(x.rope.theta, y.rope.theta);
    EXPECT_EQ(x.rope.rotary_dim, y.rope.rotary_dim);
    EXPECT_EQ(x.scale, y.scale);
    EXPECT_EQ(x.softcap, y.softcap);
    EXPECT_EQ(x.qk_norm, y.qk_norm);
    EXPECT_EQ(x.qkv_bias, y.qkv_bias);
    EXPECT_EQ(x.o_bias, y.o_bias);
    EXPECT_EQ(a.layers[i].ffn.activation, b.layers[i].ffn.activation);
    EXPECT_EQ(a.layers[i].ffn.width, b.layers[i].ffn.width);
    EXPECT_EQ(a.layers[i].post_attn_norm, b.layers[i].post_attn_norm);
    EXPECT_EQ(a.layers[i].post_ffn_norm, b.layers[i].post_ffn_norm);
  }
  // The same weights in the same order of rows, to the byte, wherever the types are equal.
  ASSERT_EQ(gguf.weights.tensors().size(), folder.weights.tensors().size());
  for (WeightId id = 0; id < gguf.weights.tensors().size(); ++id) {
    const TensorView &x = gguf.weights[id], &y = folder.weights[id];
    ASSERT_EQ(x.shape, y.shape) << x.name;
    std::vector<float> mine(*element_count(x.shape)), theirs(mine.size());
    ASSERT_OK(decode_f32(x, 0, mine));
    ASSERT_OK(decode_f32(y, 0, theirs));
    const bool norm = y.name.find("norm") != std::string::npos;
    for (float& value : theirs) value += norm ? static_cast<float>(b.norm.weight_offset) : 0;
    EXPECT_EQ(mine, theirs) << x.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Gguf, SameSpec,
                         ::testing::Values("llama", "llama3", "qwen2", "qwen3", "phi3", "gemma3"),
                         [](const auto& test) { return test.param; });

TEST(GgufSpec, SourcesNameKeysTensorsAndRules) {
  ASSERT_OK_AND_ASSIGN(const Model gemma, load_model(data_path("gguf/gemma3.gguf")));
  EXPECT_EQ(source_of(gemma.spec, "attention.heads"), "4 from gguf: gemma3.attention.head_count");
  EXPECT_EQ(source_of(gemma.spec, "head.tied"), "true from gguf: no tensor output.weight");
  EXPECT_EQ(source_of(gemma.spec, "norm.weight_offset"),
            "0 from rule of GGUF: norms are stored with their +1");
  EXPECT_EQ(source_of(gemma.spec, "attention.rope[sliding].theta"),
            "10000 from gguf: gemma3.rope.freq_base_swa");
  ASSERT_OK_AND_ASSIGN(const Model llama, load_model(data_path("gguf/llama3.gguf")));
  EXPECT_EQ(source_of(llama.spec, "attention.rope.scaling"), "divisors from gguf: tensor rope_freqs.weight");
  ASSERT_OK_AND_ASSIGN(const Model qwen, load_model(data_path("gguf/qwen2.gguf")));
  EXPECT_EQ(source_of(qwen.spec, "attention.head_dim"),
            "16 from derived: qwen2.embedding_length / qwen2.attention.head_count");
  EXPECT_EQ(source_of(qwen.spec, "family"), "qwen2 from gguf: general.architecture");
}

TEST(GgufSpec, Gemma2ScalesByTheHeadSizeWhereTheFileCannotSayMore) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path("gguf/gemma2.gguf")));
  EXPECT_EQ(model.spec.layers[0].attention.scale, 1 / std::sqrt(32.0));
  EXPECT_EQ(model.spec.layers[0].attention.softcap, 50);
  EXPECT_EQ(model.spec.final_softcap, 30);
  EXPECT_EQ(model.spec.layers[0].attention.kind, AttentionKind::kSliding);
  EXPECT_EQ(model.spec.layers[1].attention.kind, AttentionKind::kFull);
}

// A small file of any architecture whose keys and tensors a test changes before it is read.
struct TinyGguf {
  std::string architecture;
  std::vector<std::pair<std::string, std::uint32_t>> uints;
  std::vector<std::pair<std::string, float>> floats;
  std::vector<std::pair<std::string, std::string>> strings;
  std::vector<std::pair<std::string, Shape>> tensors;
  std::vector<std::string> tokens;
  std::vector<std::int32_t> token_types;
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};
  float fill = 1;

  explicit TinyGguf(std::string name, std::uint32_t layers = 2) : architecture(std::move(name)) {
    uints = {{key("block_count"), layers},     {key("context_length"), 64},
             {key("embedding_length"), 16},    {key("feed_forward_length"), 24},
             {key("attention.head_count"), 2}, {key("attention.head_count_kv"), 1},
             {key("attention.key_length"), 8}, {key("attention.value_length"), 8},
             {key("vocab_size"), 10}};
    floats = {{key("attention.layer_norm_rms_epsilon"), 1e-6f}};
    tensors = {{"token_embd.weight", {10, 16}}, {"output_norm.weight", {16}}};
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::string b = "blk." + std::to_string(i) + ".";
      tensors.insert(tensors.end(), {{b + "attn_norm.weight", {16}},
                                     {b + "attn_q.weight", {16, 16}},
                                     {b + "attn_k.weight", {8, 16}},
                                     {b + "attn_v.weight", {8, 16}},
                                     {b + "attn_output.weight", {16, 16}},
                                     {b + "ffn_norm.weight", {16}},
                                     {b + "ffn_gate.weight", {24, 16}},
                                     {b + "ffn_up.weight", {24, 16}},
                                     {b + "ffn_down.weight", {16, 24}}});
      if (!architecture.starts_with("gemma")) continue;
      tensors.insert(tensors.end(),
                     {{b + "post_attention_norm.weight", {16}}, {b + "post_ffw_norm.weight", {16}}});
      if (architecture == "gemma3")
        tensors.insert(tensors.end(), {{b + "attn_q_norm.weight", {8}}, {b + "attn_k_norm.weight", {8}}});
    }
  }

  std::string key(const std::string& suffix) const { return architecture + "." + suffix; }
  TinyGguf& with(const std::string& suffix, std::uint32_t value) {
    without(suffix);
    uints.emplace_back(key(suffix), value);
    return *this;
  }
  TinyGguf& without(const std::string& suffix) {
    std::erase_if(uints, [&](const auto& pair) { return pair.first == key(suffix); });
    std::erase_if(floats, [&](const auto& pair) { return pair.first == key(suffix); });
    return *this;
  }
  TinyGguf& without_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const auto& pair) { return pair.first == name; });
    return *this;
  }

  Result<Model> load() const {
    const TempDir dir;
    const auto path = dir / "tiny.gguf";
    DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(path));
    DOPPLER_TRY(writer.add<std::string_view>("general.architecture", architecture));
    for (const auto& [name, value] : uints) DOPPLER_TRY(writer.add<std::uint32_t>(name, value));
    for (const auto& [name, value] : floats) DOPPLER_TRY(writer.add<float>(name, value));
    for (const auto& [name, value] : strings) DOPPLER_TRY(writer.add<std::string_view>(name, value));
    if (!tokens.empty()) DOPPLER_TRY(writer.add_strings("tokenizer.ggml.tokens", std::span(tokens)));
    if (!token_types.empty())
      DOPPLER_TRY(writer.add_array<std::int32_t>("tokenizer.ggml.token_type", token_types));
    more(writer);
    for (const auto& [name, shape] : tensors) DOPPLER_TRY(writer.declare_tensor(name, DType::kF32, shape));
    DOPPLER_TRY(writer.write_header());
    for (const auto& [name, shape] : tensors) {
      const std::vector<float> values(*element_count(shape), fill);
      DOPPLER_TRY(writer.write_tensor_data(std::as_bytes(std::span(values))));
    }
    DOPPLER_TRY(writer.finish());
    return load_model(path);
  }
};

TEST(GgufSpec, TheTinyFilesLoad) {
  for (const char* architecture : {"llama", "qwen3", "gemma2", "gemma3"}) {
    TinyGguf tiny(architecture);
    if (tiny.architecture == "qwen3") {
      for (const char* b : {"blk.0.", "blk.1."})
        for (const char* n : {"attn_q_norm.weight", "attn_k_norm.weight"})
          tiny.tensors.push_back({std::string(b) + n, {8}});
    }
    ASSERT_OK(tiny.load());
  }
}

TEST(GgufSpec, AbsentKeysMeanWhatLlamaCppTakes) {
  TinyGguf tiny("llama");
  tiny.without("attention.head_count_kv").without("attention.key_length").without("attention.value_length");
  for (auto& [name, shape] : tiny.tensors) {
    if (name.find("attn_k.") != std::string::npos || name.find("attn_v.") != std::string::npos)
      shape = {16, 16};
  }
  ASSERT_OK_AND_ASSIGN(const Model model, tiny.load());
  const AttentionSpec& a = model.spec.layers[0].attention;
  EXPECT_EQ(a.kv_heads, 2u);
  EXPECT_EQ(a.head_dim, 8u);
  EXPECT_EQ(a.rope.theta, 10000);
  EXPECT_EQ(source_of(model.spec, "attention.rope.theta"), "10000 from default of GGUF");
  for (const char* needed : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                             "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    EXPECT_ERROR(TinyGguf("gemma3").without(needed).load(), "gemma3.", needed, "every model has");
  }
}

TEST(GgufSpec, MistralsWindowCountsIfTheFileHasIt) {
  ASSERT_OK_AND_ASSIGN(const Model window, TinyGguf("llama").with("attention.sliding_window", 4).load());
  EXPECT_EQ(window.spec.family, "mistral");
  EXPECT_EQ(window.spec.layers[1].attention.window, 4u);
  ASSERT_OK_AND_ASSIGN(const Model none, TinyGguf("llama").with("attention.sliding_window", 0).load());
  EXPECT_EQ(none.spec.family, "llama");
  EXPECT_EQ(none.spec.layers[1].attention.kind, AttentionKind::kFull);
}

TEST(GgufSpec, WindowsFollowPatternsPeriodsAndTheirAbsence) {
  const auto kinds = [](const Result<Model>& model) {
    std::string text;
    if (!model) return model.error().message;
    for (const LayerSpec& layer : model->spec.layers)
      text += layer.attention.kind == AttentionKind::kFull ? 'F' : 's';
    return text;
  };
  EXPECT_EQ(kinds(TinyGguf("gemma3", 7).with("attention.sliding_window", 4).load()), "sssssFs");
  EXPECT_EQ(kinds(TinyGguf("gemma3", 7).load()), "FFFFFFF");
  EXPECT_EQ(kinds(TinyGguf("gemma3", 7).with("attention.sliding_window", 0).load()), "FFFFFFF");
  EXPECT_EQ(kinds(TinyGguf("gemma2", 4).load()), "sFsF") << "with the family's window of 4096";
  TinyGguf period("gemma3", 4);
  period.with("attention.sliding_window", 4).with("attention.sliding_window_pattern", 3);
  EXPECT_EQ(kinds(period.load()), "ssFs");
  TinyGguf list("gemma3", 3);
  list.with("attention.sliding_window", 4).more = [](GgufWriter& writer) {
    ASSERT_OK(writer.add_bools("gemma3.attention.sliding_window_pattern", {false, true, true}));
  };
  EXPECT_EQ(kinds(list.load()), "Fss");
  list.more = [](GgufWriter& writer) {
    ASSERT_OK(writer.add_bools("gemma3.attention.sliding_window_pattern", {false}));
  };
  EXPECT_ERROR(list.load(), "1 entries for 3 layers");
}

TEST(GgufSpec, TheGemma27BModelsScaleByTheirWidth) {
  ASSERT_OK_AND_ASSIGN(const Model large, TinyGguf("gemma2", 46).load());
  EXPECT_EQ(large.spec.layers[0].attention.scale, 1 / std::sqrt(16.0 / 2));
  ASSERT_OK_AND_ASSIGN(const Model third, TinyGguf("gemma3", 62).load());
  EXPECT_EQ(third.spec.layers[0].attention.scale, 1 / std::sqrt(16.0 / 2));
}

TEST(GgufSpec, RopeScalingIsReadAsLlamaCppDoes) {
  const auto scaling = [](std::optional<std::string> type, std::optional<float> factor) {
    TinyGguf tiny("llama");
    if (type) tiny.strings.emplace_back("llama.rope.scaling.type", *type);
    if (factor) tiny.floats.emplace_back("llama.rope.scaling.factor", *factor);
    return tiny.load();
  };
  const auto kind = [&](std::optional<std::string> type, std::optional<float> factor) {
    const auto model = scaling(std::move(type), factor);
    return model ? model->spec.layers[0].attention.rope.scaling.kind : RopeScalingKind::kLlama3;
  };
  EXPECT_EQ(kind(std::nullopt, std::nullopt), RopeScalingKind::kNone);
  EXPECT_EQ(kind(std::nullopt, 4.0f), RopeScalingKind::kLinear);
  EXPECT_EQ(kind("none", 4.0f), RopeScalingKind::kNone);
  EXPECT_EQ(kind("linear", 0.0f), RopeScalingKind::kNone);
  EXPECT_EQ(kind("yarn", 4.0f), RopeScalingKind::kYarn);
  EXPECT_ERROR(scaling("wobbly", 4.0f), "gguf: llama.rope.scaling.type", "wobbly");
  EXPECT_ERROR(scaling("linear", -4.0f), "gguf: llama.rope.scaling.factor", "-4");
}

TEST(GgufSpec, RopeDivisorsMustBeOnePerPairAndPositive) {
  TinyGguf tiny("llama");
  tiny.tensors.push_back({"rope_freqs.weight", {4}});
  tiny.fill = 2;
  ASSERT_OK_AND_ASSIGN(const Model model, tiny.load());
  EXPECT_EQ(model.spec.layers[1].attention.rope.scaling.divisors, (std::vector<double>(4, 2)));
  tiny.fill = 0;
  EXPECT_ERROR(tiny.load(), "rope_freqs.weight", "no divisors");
  tiny.tensors.back().second = {3};
  EXPECT_ERROR(tiny.load(), "rope_freqs.weight", "4 F32 values");
  TinyGguf qwen("gemma2");
  qwen.tensors.push_back({"rope_freqs.weight", {4}});
  EXPECT_ERROR(qwen.load(), "rope_freqs.weight", "nothing in the gemma2 family");
}

TEST(GgufSpec, Phi3sLongContextsAreTwoTensorsOfDivisors) {
  TinyGguf tiny("phi3");
  std::erase_if(tiny.tensors, [](const auto& tensor) {
    const std::string& name = tensor.first;
    return name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos ||
           name.find("attn_v.") != std::string::npos || name.find("ffn_gate.") != std::string::npos ||
           name.find("ffn_up.") != std::string::npos;
  });
  for (const char* b : {"blk.0.", "blk.1."}) {
    tiny.tensors.push_back({std::string(b) + "attn_qkv.weight", {32, 16}});
    tiny.tensors.push_back({std::string(b) + "ffn_up.weight", {48, 16}});
  }
  ASSERT_OK(tiny.load());
  tiny.with("rope.scaling.original_context_length", 32);
  tiny.floats.emplace_back("phi3.rope.scaling.attn_factor", 1.25f);
  tiny.tensors.push_back({"rope_factors_long.weight", {4}});
  EXPECT_ERROR(tiny.load(), "rope_factors_short.weight", "both be there");
  tiny.tensors.push_back({"rope_factors_short.weight", {4}});
  tiny.fill = 3;
  ASSERT_OK_AND_ASSIGN(const Model model, tiny.load());
  const RopeScaling& scaling = model.spec.layers[1].attention.rope.scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::kLongRope);
  EXPECT_EQ(scaling.long_factor, (std::vector<double>(4, 3)));
  EXPECT_EQ(scaling.original_context, 32);
  EXPECT_EQ(scaling.attention_factor, 1.25);
  tiny.with("rope.dimension_count", 6);
  EXPECT_ERROR(tiny.load(), "short_factor", "3 positive numbers");
}

TEST(GgufSpec, TheVocabularyStandsInThreePlacesThatAgree) {
  TinyGguf tiny("llama");
  EXPECT_ERROR(tiny.with("vocab_size", 11).load(), "11 tokens by llama.vocab_size",
               "10 by tensor token_embd.weight");
  tiny.without("vocab_size");
  ASSERT_OK_AND_ASSIGN(const Model model, tiny.load());
  EXPECT_EQ(source_of(model.spec, "vocab_size"), "10 from gguf: tensor token_embd.weight");
  tiny.tokens.assign(9, "x");
  EXPECT_ERROR(tiny.load(), "9 tokens by tokenizer.ggml.tokens", "10 by tensor");
}

TEST(GgufSpec, SpecialIdsComeFromKeysAndTexts) {
  TinyGguf tiny("llama");
  tiny.uints.insert(tiny.uints.end(), {{"tokenizer.ggml.bos_token_id", 1},
                                       {"tokenizer.ggml.eos_token_id", 2},
                                       {"tokenizer.ggml.eot_token_id", 3},
                                       {"tokenizer.ggml.eom_token_id", 2},
                                       {"tokenizer.ggml.padding_token_id", UINT32_MAX}});
  tiny.tokens = {"a", "b", "c", "d", "<|im_end|>", "<|end|>", "g", "h", "i", "j"};
  tiny.token_types = {1, 3, 3, 3, 3, 1, 1, 1, 1, 1};  // <|end|> is an ordinary token here
  ASSERT_OK_AND_ASSIGN(const Model model, tiny.load());
  EXPECT_EQ(model.spec.bos_id, 1);
  EXPECT_EQ(model.spec.pad_id, -1);
  EXPECT_EQ(model.spec.eos_ids, (std::vector<std::int32_t>{2, 3, 4}));
  tiny.uints.back().second = 10;
  EXPECT_ERROR(tiny.load(), "tokenizer.ggml.padding_token_id = 10", "vocabulary of 10");
}

// Every token that ends an answer is in the spec, with what it was told by; nothing adds any later.
TEST(GgufSpec, StopTokensSayWhereTheyComeFrom) {
  TinyGguf tiny("llama");
  tiny.strings = {{"tokenizer.ggml.model", "llama"}};
  tiny.uints.emplace_back("tokenizer.ggml.eot_token_id", 5);
  tiny.tokens = {"<unk>", "<s>", "</s>", "a", "<EOT>", "x", "<end_of_turn>", "h", "i", "j"};
  tiny.token_types = {2, 3, 3, 1, 4, 1, 3, 1, 1, 1};
  ASSERT_OK_AND_ASSIGN(const Model usual, tiny.load());
  EXPECT_EQ(usual.spec.eos_ids, (std::vector<std::int32_t>{5, 2, 4, 6}));
  EXPECT_EQ(
      source_of(usual.spec, "eos_token_id"),
      "5, 2, 4, 6 from gguf: tokenizer.ggml.eot_token_id, no tokenizer.ggml.eos_token_id, so the usual 2, "
      "text <EOT>, text <end_of_turn>");
  // A key that says "none" is no key that is missing; other kinds of vocabularies have no usual ids.
  tiny.uints.emplace_back("tokenizer.ggml.eos_token_id", UINT32_MAX);
  ASSERT_OK_AND_ASSIGN(const Model none, tiny.load());
  EXPECT_EQ(none.spec.eos_ids, (std::vector<std::int32_t>{5, 4, 6}));
  tiny.uints.pop_back();
  tiny.strings = {{"tokenizer.ggml.model", "gpt2"}};
  tiny.tokens[3] = "<|return|>", tiny.tokens[6] = "<|end|>";  // here it only ends a message
  ASSERT_OK_AND_ASSIGN(const Model harmony, tiny.load());
  EXPECT_EQ(harmony.spec.eos_ids, (std::vector<std::int32_t>{5, 4}));
}

TEST(GgufSpec, MissingAndUnusedTensorsAreNamed) {
  EXPECT_ERROR(TinyGguf("llama").without_tensor("blk.1.attn_v.weight").load(), "blk.1.attn_v.weight",
               "missing", "GGUF metadata");
  TinyGguf extra("llama");
  extra.tensors.push_back({"blk.1.attn_q_norm.weight", {8}});
  EXPECT_ERROR(extra.load(), "blk.1.attn_q_norm.weight", "attention.qk_norm = false");
  extra.tensors.back() = {"blk.7.attn_q.weight", {16, 16}};
  EXPECT_ERROR(extra.load(), "blk.7.attn_q.weight", "nothing in the llama family");
  TinyGguf shape("llama");
  shape.tensors[3].second = {16, 8};
  EXPECT_ERROR(shape.load(), "blk.0.attn_q.weight", "16 x 8", "asks for 16 x 16");
}

TEST(GgufSpec, BiasesFollowTheirTensors) {
  TinyGguf tiny("llama");
  for (const char* b : {"blk.0.", "blk.1."}) {
    tiny.tensors.push_back({std::string(b) + "attn_q.bias", {16}});
    tiny.tensors.push_back({std::string(b) + "attn_k.bias", {8}});
    tiny.tensors.push_back({std::string(b) + "attn_v.bias", {8}});
  }
  ASSERT_OK_AND_ASSIGN(const Model model, tiny.load());
  EXPECT_TRUE(model.spec.layers[1].attention.qkv_bias);
  EXPECT_FALSE(model.spec.layers[1].attention.o_bias);
}

TEST(GgufSpec, WhatDopplerDoesNotRunIsNamed) {
  EXPECT_ERROR(TinyGguf("gemma5").load(), "architecture gemma5",
               "llama, qwen2, qwen3, phi3, gemma, gemma2, gemma3");
  EXPECT_ERROR(TinyGguf("llama").with("attention.value_length", 16).load(), "attention.value_length = 16");
  EXPECT_ERROR(TinyGguf("llama").with("rope.dimension_count", 4).load(), "rope.dimension_count = 4", "part");
  TinyGguf scaled("llama");
  scaled.floats.emplace_back("llama.logit_scale", 0.5f);
  EXPECT_ERROR(scaled.load(), "llama.logit_scale = 0.5");
  TinyGguf uneven("llama");
  uneven.without("attention.head_count_kv").more = [](GgufWriter& writer) {
    const std::vector<std::uint32_t> heads = {1, 2};
    ASSERT_OK(writer.add_array<std::uint32_t>("llama.attention.head_count_kv", heads));
  };
  EXPECT_ERROR(uneven.load(), "llama.attention.head_count_kv", "differs between layers");
}

TEST(GgufSpec, LyingSizesAreErrors) {
  EXPECT_ERROR(TinyGguf("llama").with("block_count", 4000000000).load(), "4000000000", "tensors of the file");
  EXPECT_ERROR(TinyGguf("llama").with("block_count", 0).load(), "llama.block_count = 0");
  EXPECT_ERROR(TinyGguf("llama").with("embedding_length", 0).load(), "llama.embedding_length = 0");
  for (const char* architecture :
       {"llama", "gemma2", "gemma3"}) {  // whose scale follows from the heads' size, too
    EXPECT_ERROR(TinyGguf(architecture).with("attention.head_count", 0).load(),
                 fmt::format("{}.attention.head_count = 0", architecture).c_str());
  }
  EXPECT_ERROR(TinyGguf("llama").with("attention.head_count_kv", 3).load(),
               "llama.attention.head_count_kv = 3");
  EXPECT_ERROR(TinyGguf("llama")
                   .with("attention.key_length", 1u << 30)
                   .with("attention.value_length", 1u << 30)
                   .load(),
               "llama.attention.key_length = 1073741824", "too large");
  EXPECT_ERROR(TinyGguf("llama").with("attention.key_length", 7).with("attention.value_length", 7).load(),
               "7 is odd");
}

TEST(GgufRows, EveryBlockTypesRowsGoBackToTheirPlaces) {
  // Two heads of four dims: rows 0 1 2 3 of a head are pairs (0, 1) and (2, 3) in GGUF, halves 0 2 and 1 3
  // here.
  ModelSpec spec;
  spec.layers.resize(1);
  spec.layers[0].attention = {.heads = 2, .kv_heads = 1, .head_dim = 4};
  static constexpr WeightName kOwn[] = {{WeightRole::kQ, "q{}"}, {WeightRole::kK, "k{}"}};
  constexpr WeightNames kNames = {.style = NameStyle::kGguf, .own = kOwn};
  const std::string rows = "aabbccddAABBCCDD";
  TensorStore store;
  const auto bytes = std::as_bytes(std::span(rows));
  ASSERT_OK(store.add({"q0", DType::kF16, {8, 1}, bytes}));
  ASSERT_OK(store.add({"k0", DType::kF16, {4, 2}, bytes}));
  ASSERT_OK(restore_row_order(spec, kNames, store));
  const auto text = [&](const char* name) {
    const auto data = store.find(name)->data;
    return std::string(reinterpret_cast<const char*>(data.data()), data.size());
  };
  EXPECT_EQ(text("q0"), "aaccbbddAACCBBDD");
  EXPECT_EQ(text("k0"), "aabbAABBccddCCDD");
  EXPECT_EQ(store.copied_bytes(), 32u);
}

}  // namespace
}  // namespace doppler
