// Tiny models with random weights of any family, in memory or as a folder: for tests that need a model with
// one thing changed. The values are a function of the tensor's name alone, so they never change by accident.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/safetensors.h"
#include "model/family.h"
#include "quant/encode.h"
#include "tensors.h"
#include "testing.h"

namespace doppler::testing {

struct TinyTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  static TinyTensor of(Shape shape, const std::vector<float>& values) {
    TinyTensor tensor{DType::kF32, std::move(shape), std::vector<std::byte>(values.size() * sizeof(float))};
    if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
  }
  TensorView view(const std::string& name) const { return {name, dtype, shape, bytes}; }
};

// Normally distributed around `mean`.
inline TinyTensor random_tensor(const std::string& name, Shape shape, float mean, float deviation) {
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(mean, deviation);
  std::vector<float> values(*element_count(shape));
  for (float& value : values) value = distribution(generator);
  return TinyTensor::of(std::move(shape), values);
}

// Float values in another type, which decodes to them as far as it can.
inline TinyTensor encoded(const TinyTensor& tensor, DType type) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  TinyTensor result{type, tensor.shape, std::vector<std::byte>(byte_size(type, tensor.shape).value_or(0))};
  EXPECT_TRUE(encode(type, values, result.bytes).has_value());
  return result;
}

// A config.json in the new key style that read_spec accepts for the family.
inline Json tiny_config(const std::string& family) {
  const bool gemma = family.starts_with("gemma");
  Json config = {{"model_type", family == "gemma3" ? "gemma3_text" : family},
                 {"vocab_size", 64},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"max_position_embeddings", 128},
                 {"rms_norm_eps", 1e-6},
                 {"tie_word_embeddings", gemma},
                 {"bos_token_id", 2},
                 {"eos_token_id", 1},
                 {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  config[gemma ? "hidden_activation" : "hidden_act"] = gemma ? "gelu_pytorch_tanh" : "silu";
  if (gemma || family == "mistral") config["sliding_window"] = 4;
  // Experts, by the names that families give their numbers: the defaults are those of large models, with
  // thousands of tensors. Families without experts read none of these.
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"})
    config[key] = 4;
  for (const char* key : {"num_experts_per_tok", "moe_topk", "moe_k"}) config[key] = 2;
  config["moe_intermediate_size"] = 24;
  // Recurrent layers, likewise.
  if (family == "lfm2" || family == "lfm2_moe") config["layer_types"] = {"conv", "full_attention", "conv"};
  if (family == "qwen3_5" || family == "qwen3_5_moe" || family == "qwen3_next") {
    config["layer_types"] = {"linear_attention", "full_attention", "linear_attention"};
    config.update({{"linear_num_key_heads", 2},
                   {"linear_num_value_heads", 4},
                   {"linear_key_head_dim", 8},
                   {"linear_value_head_dim", 8}});
  }
  if (family == "granitemoehybrid" || family == "falcon_h1")
    config.update(
        {{"mamba_n_heads", 4}, {"mamba_d_head", 16}, {"mamba_d_state", 8}, {"num_local_experts", 0}});
  if (family == "granitemoehybrid") {
    config["layer_types"] = {"mamba", "attention", "mamba"};
    config["shared_intermediate_size"] = 48;
  }
  if (family == "nemotron_h") {
    config["layers_block_type"] = {"linear_attention", "mlp", "full_attention"};
    config.update({{"mamba_num_heads", 4}, {"mamba_head_dim", 16}, {"ssm_state_size", 8}, {"n_groups", 2}});
  }
  if (family == "jamba")
    config.update({{"mamba_d_state", 8}, {"attn_layer_period", 3}, {"attn_layer_offset", 1}});
  if (family == "mamba") config["state_size"] = 8;
  if (family == "mamba2") config.update({{"num_heads", 4}, {"n_groups", 1}, {"state_size", 8}});
  if (family == "gemma3n" || family == "gemma4") {
    config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
    config.update({{"vocab_size_per_layer_input", 64},
                   {"hidden_size_per_layer_input", 8},
                   {"laurel_rank", 8},
                   {"num_kv_shared_layers", 1},
                   {"activation_sparsity_pattern", {0.9, 0.0, 0.0}}});
  }
  const bool latent = family.starts_with("deepseek") || family == "mistral4" || family == "glm4_moe_lite";
  if (latent) {
    config.update({{"q_lora_rank", 24},
                   {"kv_lora_rank", 16},
                   {"qk_nope_head_dim", 8},
                   {"qk_rope_head_dim", 8},
                   {"v_head_dim", 12},
                   {"moe_intermediate_size", 16},
                   {"n_routed_experts", 8},
                   {"num_experts_per_tok", 2},
                   {"first_k_dense_replace", 1}});
  }
  if (family == "llama4_text") {
    config.update({{"intermediate_size_mlp", 64},
                   {"num_local_experts", 4},
                   {"attention_chunk_size", 4},
                   {"interleave_moe_layer_step", 2},
                   {"no_rope_layers", {1, 1, 0}},
                   {"floor_scale", 2}});
  }
  if (gemma) config["query_pre_attn_scalar"] = 8;
  if (family == "gemma3") {
    config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
    config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1000000.0}}},
                                 {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  }
  return config;
}

// Of all families, for suites with a test of each.
inline std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const FamilyRule* rule : all_families()) names.emplace_back(rule->name);
  return names;
}

inline const FamilyRule& rule_of(const std::string& family) {
  for (const FamilyRule* rule : all_families()) {
    if (rule->name == family) return *rule;
  }
  ADD_FAILURE() << "no family " << family;
  return *all_families()[0];
}

// A model that lives in this object: change config or tensors, then bind() or write() it.
struct TinyModel {
  std::string family;
  Json config;
  std::map<std::string, TinyTensor> tensors;

  explicit TinyModel(std::string name) : TinyModel(name, tiny_config(name)) {}
  TinyModel(std::string name, Json with) : family(std::move(name)), config(std::move(with)) {
    const auto spec = read_spec(config, nullptr);
    if (!spec) {
      ADD_FAILURE() << spec.error().message;
      return;
    }
    for (const WeightTensor& tensor : weight_tensors(*spec, rule_of(family).weight_names)) {
      const bool norm = tensor.info->kind == WeightKind::kNorm;
      const float mean = norm && spec->norm.weight_offset == 0 ? 1.0f : 0.0f;
      tensors[tensor.name] = random_tensor(tensor.name, tensor.shape, mean, 0.2f);
    }
  }

  Result<ModelSpec> spec() const { return read_spec(config, nullptr); }
  // Views into this object.
  TensorStore store() const {
    TensorStore store;
    for (const auto& [name, tensor] : tensors) {
      if (!store.add(tensor.view(name))) ADD_FAILURE() << name << " comes twice";
    }
    return store;
  }
  // The store must outlive the weights' use.
  Result<Weights> bind() const {
    DOPPLER_ASSIGN(const ModelSpec read, spec());
    return bind_weights(read, rule_of(family).weight_names, store());
  }
  Status write(const std::filesystem::path& folder) const {
    write_file(folder / "config.json", config.dump());
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors) views.push_back(tensor.view(name));
    return testing::write_tensors(folder / "model.safetensors", views);
  }
};

}  // namespace doppler::testing
