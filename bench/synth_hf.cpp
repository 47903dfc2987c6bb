// synth_hf SHAPE FOLDER [LAYERS]: a Hugging Face folder (config.json, model.safetensors) of a published shape
// with random bfloat16 weights, for measuring. The same file every time. Scales are such that activations
// stay near 1: matrices have a standard deviation of 1 / sqrt(columns), norms multiply by about 1.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace {

using namespace doppler;

// The numbers of the published config.json files.
struct PublishedShape {
  std::string_view name;
  bool gemma;  // sandwich norms, q/k norms, norm weights stored without their 1
  std::uint64_t vocab, hidden, width, layers, heads, kv_heads, head_dim;
  std::string_view config;  // the rest of config.json
};
constexpr PublishedShape kShapes[] = {
    {"gemma3-1b", true, 262144, 1152, 6912, 26, 4, 1, 256,
     R"({"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
         "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window": 512,
         "sliding_window_pattern": 6, "max_position_embeddings": 32768, "tie_word_embeddings": true})"},
    {"llama3.2-1b", false, 128256, 2048, 8192, 16, 32, 8, 64,
     R"({"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000,
         "rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4,
                          "original_max_position_embeddings": 8192},
         "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
};

struct Tensor {
  std::string name;
  Shape shape;
  double mean, deviation;
};

std::vector<Tensor> tensors_of(const PublishedShape& s) {
  std::vector<Tensor> out;
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    out.push_back({name, {rows, cols}, 0, 1 / std::sqrt(static_cast<double>(cols))});
  };
  const auto norm = [&](const std::string& name, std::uint64_t width) {
    out.push_back({name, {width}, s.gemma ? 0.0 : 1.0, 0.1});
  };
  matrix("model.embed_tokens.weight", s.vocab, s.hidden);
  for (std::uint64_t i = 0; i < s.layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    norm(at + "input_layernorm.weight", s.hidden);
    matrix(at + "self_attn.q_proj.weight", s.heads * s.head_dim, s.hidden);
    matrix(at + "self_attn.k_proj.weight", s.kv_heads * s.head_dim, s.hidden);
    matrix(at + "self_attn.v_proj.weight", s.kv_heads * s.head_dim, s.hidden);
    matrix(at + "self_attn.o_proj.weight", s.hidden, s.heads * s.head_dim);
    norm(at + "post_attention_layernorm.weight", s.hidden);
    if (s.gemma) {
      norm(at + "self_attn.q_norm.weight", s.head_dim);
      norm(at + "self_attn.k_norm.weight", s.head_dim);
      norm(at + "pre_feedforward_layernorm.weight", s.hidden);
      norm(at + "post_feedforward_layernorm.weight", s.hidden);
    }
    matrix(at + "mlp.gate_proj.weight", s.width, s.hidden);
    matrix(at + "mlp.up_proj.weight", s.width, s.hidden);
    matrix(at + "mlp.down_proj.weight", s.hidden, s.width);
  }
  norm("model.norm.weight", s.hidden);
  return out;
}

// SplitMix64 (Steele, Lea, Flood 2014): four 16-bit numbers a call.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Status write_tensor(SafetensorsWriter& writer, const Tensor& tensor, std::uint64_t& state) {
  // Uniform values of the wanted mean and deviation, by 16-bit number.
  std::vector<std::uint16_t> values(65536);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double uniform = (static_cast<double>(i) + 0.5) / 32768 - 1;
    values[i] = f32_to_bf16(static_cast<float>(tensor.mean + uniform * std::sqrt(3.0) * tensor.deviation));
  }
  std::vector<std::uint16_t> buffer(1 << 20);
  for (std::uint64_t left = *element_count(tensor.shape); left > 0;) {
    const std::size_t count = std::min<std::uint64_t>(left, buffer.size());
    for (std::size_t i = 0; i < count; i += 4) {
      const std::uint64_t random = next_random(state);
      for (std::size_t j = 0; j < 4; ++j) buffer[i + j] = values[random >> (16 * j) & 0xffff];
    }
    DOPPLER_TRY(writer.write(std::as_bytes(std::span(buffer).first(count))));
    left -= count;
  }
  return {};
}

Status write_config(const PublishedShape& s, const std::filesystem::path& folder) {
  Json config = Json::parse(s.config);
  config["vocab_size"] = s.vocab;
  config["hidden_size"] = s.hidden;
  config["intermediate_size"] = s.width;
  config["num_hidden_layers"] = s.layers;
  config["num_attention_heads"] = s.heads;
  config["num_key_value_heads"] = s.kv_heads;
  config["head_dim"] = s.head_dim;
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(folder / "config.json"));
  DOPPLER_TRY(file.write(config.dump(2)));
  return file.commit();
}

Status synthesise(const PublishedShape& shape, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail(ErrorCode::kIo, "The folder {} cannot be made: {}.", folder.string(), error.message());
  const std::vector<Tensor> tensors = tensors_of(shape);
  std::vector<SafetensorsWriter::Entry> entries;
  for (const Tensor& tensor : tensors) entries.push_back({tensor.name, DType::kBF16, tensor.shape});
  DOPPLER_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(folder / "model.safetensors", entries));
  std::uint64_t state = 1;
  for (const Tensor& tensor : tensors) DOPPLER_TRY(write_tensor(writer, tensor, state));
  DOPPLER_TRY(writer.finish());
  return write_config(shape, folder);
}

}  // namespace

int main(int argc, char** argv) {
  for (const PublishedShape& published : kShapes) {
    if (argc < 3 || argc > 4 || published.name != argv[1]) continue;
    PublishedShape shape = published;
    const std::string_view layers = argc == 4 ? argv[3] : "";
    if (argc == 4 && std::from_chars(layers.begin(), layers.end(), shape.layers).ptr != layers.end()) break;
    const Status done = synthesise(shape, argv[2]);
    if (!done) fmt::print(stderr, "{}\n", done.error().message);
    return done ? 0 : 3;
  }
  fmt::print(stderr, "Usage: synth_hf gemma3-1b|llama3.2-1b FOLDER [LAYERS]\n");
  return 2;
}
