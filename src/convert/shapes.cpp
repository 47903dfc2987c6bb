#include "convert/shapes.h"

#include <array>

#include "base/json.h"
#include "base/text.h"
#include "convert/hf_metadata.h"
#include "model/family.h"

namespace doppler::convert {
namespace {

// Three layers with a delta net, then one that attends.
constexpr std::string_view kQwen35 = R"({"full_attention_interval": 4, "partial_rotary_factor": 0.25,
  "linear_conv_kernel_dim": 4, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
  "linear_num_value_heads": 16, "linear_value_head_dim": 128})";

// Each sixth layer attends to everything, with wider heads; the last 18 read keys and values of others.
constexpr std::string_view kGemma4E4b = R"({"global_head_dim": 512, "hidden_size_per_layer_input": 256,
  "vocab_size_per_layer_input": 262144, "num_kv_shared_layers": 18, "final_logit_softcapping": 30.0,
  "rope_theta": null, "rope_parameters": {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})";

// Keys and values are made of a latent of 512; the first layer is dense, the others have two shared experts.
constexpr std::string_view kDeepseekV2Lite = R"({"head_dim": null, "q_lora_rank": 0, "kv_lora_rank": 512,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_shared_experts": 2,
  "first_k_dense_replace": 1, "norm_topk_prob": false, "scoring_func": "softmax", "topk_method": "greedy",
  "rope_scaling": {"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
    "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096}})";

// The numbers of the published config.json files.
// clang-format off
constexpr std::array kShapes = {
    //         name           family    vocab   hidden ffn   layers heads kv head_dim context  eps    rope   tied
    ModelShape{"gemma3-270m", "gemma3", 262144,  640,  2048, 18,  4,  1, 256,  32768, 1e-6f, 1e6f,   true,
               512, 1e4f},
    ModelShape{"gemma3-1b",   "gemma3", 262144, 1152,  6912, 26,  4,  1, 256,  32768, 1e-6f, 1e6f,   true,
               512, 1e4f},
    ModelShape{"llama3.2-1b", "llama",  128256, 2048,  8192, 16, 32,  8,  64, 131072, 1e-5f, 5e5f,   true,
               0, 0, 32},
    ModelShape{"qwen3-0.6b",  "qwen3",  151936, 1024,  3072, 28, 16,  8, 128,  40960, 1e-6f, 1e6f,   true},
    ModelShape{"qwen3-8b",    "qwen3",  151936, 4096, 12288, 36, 32,  8, 128,  40960, 1e-6f, 1e6f,   false},
    ModelShape{"phi3-mini",   "phi3",    32064, 3072,  8192, 32, 32, 32,  96,   4096, 1e-5f, 1e4f,   false,
               2047},
    ModelShape{"llama3.1-8b", "llama",  128256, 4096, 14336, 32, 32,  8, 128, 131072, 1e-5f, 5e5f,   false,
               0, 0, 8},
    ModelShape{"olmoe-1b-7b", "olmoe",  50304, 2048,  1024, 16, 16, 16, 128,   4096, 1e-5f, 1e4f,   false,
               0, 0, 0, {64, 8}},
    ModelShape{"qwen3-30b-a3b", "qwen3moe", 151936, 2048, 6144, 48, 32, 4, 128, 40960, 1e-6f, 1e6f, false,
               0, 0, 0, {128, 8, 768}},
    ModelShape{"gpt-oss-20b", "gpt-oss", 201088, 2880, 2880, 24, 64, 8, 64, 131072, 1e-5f, 1.5e5f,  false,
               128, 0, 0, {32, 4}, {32, 4096}},
    ModelShape{"qwen3.5-2b", "qwen35", 248320, 2048, 6144, 24, 8, 2, 256, 262144, 1e-6f, 1e7f, true,
               0, 0, 0, {}, {}, kQwen35},
    ModelShape{"gemma4-e4b", "gemma4", 262144, 2560, 10240, 42, 8, 2, 256, 131072, 1e-6f, 1e6f, true,
               512, 0, 0, {}, {}, kGemma4E4b},
    ModelShape{"deepseek-v2-lite", "deepseek2", 102400, 2048, 10944, 27, 16, 16, 192, 163840, 1e-6f, 1e4f,
               false, 0, 0, 0, {64, 6, 1408}, {}, kDeepseekV2Lite},
};
// clang-format on

// Keys that only some families' files have.
struct FamilyFacts {
  std::string_view architecture, family;
  bool original_context;  // writes rope.scaling.original_context_length
  bool writes_head_dim, writes_rope_dimension;
};
constexpr std::array kFamilies = {
    FamilyFacts{"gemma3", "gemma3", false, true, false},
    FamilyFacts{"llama", "llama", false, true, true},
    FamilyFacts{"qwen3", "qwen3", false, true, false},
    FamilyFacts{"phi3", "phi3", true, false, true},
    FamilyFacts{"olmoe", "olmoe", false, false, false},
    FamilyFacts{"qwen3moe", "qwen3_moe", false, true, false},
    FamilyFacts{"gpt-oss", "gpt_oss", false, true, false},
    FamilyFacts{"qwen35", "qwen3_5", false, true, true},
    FamilyFacts{"gemma4", "gemma4", false, true, true},
    FamilyFacts{"deepseek2", "deepseek_v2", false, true, true},
};

// Published with Llama 3.1: wavelengths above the old context are stretched, those below a quarter of it are
// not, between them the two are mixed.
constexpr double kLlama3OldContext = 8192, kLlama3Low = 1, kLlama3High = 4;

const FamilyFacts& facts_of(const ModelShape& shape) {
  for (const FamilyFacts& facts : kFamilies) {
    if (facts.architecture == shape.architecture) return facts;
  }
  return kFamilies.front();  // every shape's family is in the table; a test says so
}

}  // namespace

std::span<const ModelShape> all_shapes() {
  return kShapes;
}

Result<const ModelShape*> find_shape(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return &shape;
    names.emplace_back(shape.name);
  }
  const std::string nearest = nearest_name(name, names);
  if (!nearest.empty())
    return fail(ErrorCode::kUsage, "There is no shape {}. Did you mean {}?", printable(name), nearest);
  return fail(ErrorCode::kUsage, "There is no shape {}. Shapes are {}.", printable(name), join(names, ", "));
}

Result<ModelSpec> shape_spec(const ModelShape& s) {
  const FamilyRule* family = family_named(facts_of(s).family);
  if (family == nullptr)
    return fail(ErrorCode::kUnsupported, "Doppler knows no family {}. Use another shape.", s.architecture);
  Json config = {{"model_type", family->model_types[0]},
                 {"vocab_size", s.vocab},
                 {"hidden_size", s.hidden},
                 {"intermediate_size", s.ffn},
                 {"num_hidden_layers", s.layers},
                 {"num_attention_heads", s.heads},
                 {"num_key_value_heads", s.kv_heads},
                 {"head_dim", s.head_dim},
                 {"max_position_embeddings", s.context},
                 {"rms_norm_eps", s.norm_epsilon},
                 {"rope_theta", s.rope_base},
                 {"tie_word_embeddings", s.tied_head}};
  if (s.window > 0) config["sliding_window"] = s.window;
  if (s.window_rope_base > 0) config["rope_local_base_freq"] = s.window_rope_base;
  if (s.llama3_rope_factor > 0)
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", s.llama3_rope_factor},
                              {"low_freq_factor", kLlama3Low},
                              {"high_freq_factor", kLlama3High},
                              {"original_max_position_embeddings", kLlama3OldContext}};
  if (s.experts.count > 0) {
    config["num_experts"] = s.experts.count;
    config["num_experts_per_tok"] = s.experts.chosen;
    if (s.experts.width > 0) config["moe_intermediate_size"] = s.experts.width;
  }
  if (s.yarn.factor > 0)
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", s.yarn.factor},
                              {"original_max_position_embeddings", s.yarn.context}};
  if (!s.config.empty()) {
    DOPPLER_ASSIGN(const Json more, parse_json(s.config, s.name));
    config.merge_patch(more);  // null takes a key away
  }
  DOPPLER_ASSIGN(ModelSpec spec, read_spec(config, nullptr));
  // As the converter stores them.
  for (LayerSpec& layer : spec.layers) layer.attention.latent.split_up = layer.attention.is_latent();
  return spec;
}

namespace {

// What readers need besides the model's description.
void add_file_facts(const ModelShape& s, const Mix& mix, std::vector<MetadataEntry>& out) {
  out.push_back({fmt::format("{}.vocab_size", s.architecture), static_cast<std::uint32_t>(s.vocab)});
  out.push_back({"tokenizer.ggml.model", std::string("none")});
  out.push_back({"general.quantization_version", std::uint32_t{2}});  // of ggml's block layouts
  out.push_back({"general.file_type", mix.file_type});
}

}  // namespace

Result<std::vector<MetadataEntry>> shape_metadata(const ModelShape& s, const Mix& mix) {
  const FamilyFacts& facts = facts_of(s);
  std::vector<MetadataEntry> out;
  if (!s.config.empty()) {
    DOPPLER_ASSIGN(const ModelSpec spec, shape_spec(s));
    std::uint64_t parameters = 0;
    DOPPLER_ASSIGN(const std::vector<WeightTensor> tensors, shape_tensors(s));
    for (const WeightTensor& tensor : tensors) parameters += element_count(tensor.shape).value_or(0);
    out = hf_metadata(spec, {.name = fmt::format("{} with random weights", s.name),
                             .architecture = s.architecture,
                             .parameters = parameters,
                             .says_head_dim = true});
    std::erase_if(
        out, [&](const MetadataEntry& e) { return e.key == fmt::format("{}.vocab_size", s.architecture); });
    add_file_facts(s, mix, out);
    return out;
  }
  const auto text = [&](std::string key, std::string_view value) {
    out.push_back({std::move(key), std::string(value)});
  };
  const auto own = [&](std::string_view key) { return fmt::format("{}.{}", s.architecture, key); };
  const auto count = [&](std::string_view key, std::uint64_t value) {
    out.push_back({own(key), static_cast<std::uint32_t>(value)});
  };
  const auto number = [&](std::string_view key, float value) { out.push_back({own(key), value}); };

  text("general.architecture", s.architecture);
  text("general.type", "model");
  text("general.name", fmt::format("{} with random weights", s.name));
  count("block_count", s.layers);
  count("context_length", s.context);
  count("embedding_length", s.hidden);
  count("feed_forward_length", s.ffn);
  count("attention.head_count", s.heads);
  count("attention.head_count_kv", s.kv_heads);
  number("rope.freq_base", s.rope_base);
  if (s.window_rope_base > 0) number("rope.freq_base_swa", s.window_rope_base);
  number("attention.layer_norm_rms_epsilon", s.norm_epsilon);
  if (facts.writes_head_dim) {
    count("attention.key_length", s.head_dim);
    count("attention.value_length", s.head_dim);
  }
  if (facts.writes_rope_dimension) count("rope.dimension_count", s.head_dim);
  if (facts.original_context) count("rope.scaling.original_context_length", s.context);
  if (s.window > 0) count("attention.sliding_window", s.window);
  if (s.experts.count > 0) {
    count("expert_count", s.experts.count);
    count("expert_used_count", s.experts.chosen);
    count("expert_feed_forward_length", s.experts.width > 0 ? s.experts.width : s.ffn);
  }
  if (s.yarn.factor > 0) {
    text(own("rope.scaling.type"), "yarn");
    number("rope.scaling.factor", s.yarn.factor);
    count("rope.scaling.original_context_length", s.yarn.context);
  }
  add_file_facts(s, mix, out);
  return out;
}

Result<std::vector<WeightTensor>> shape_tensors(const ModelShape& s) {
  DOPPLER_ASSIGN(const ModelSpec spec, shape_spec(s));
  return weight_tensors(spec, family_named(spec.family)->gguf.weight_names);
}

}  // namespace doppler::convert
