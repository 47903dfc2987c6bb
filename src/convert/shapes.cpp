#include "convert/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/text.h"

namespace doppler::convert {
namespace {

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
    ModelShape{"phi3-mini",   "phi3",    32064, 3072,  8192, 32, 32, 32,  96,   4096, 1e-5f, 1e4f,   false,
               2047},
    ModelShape{"llama3.1-8b", "llama",  128256, 4096, 14336, 32, 32,  8, 128, 131072, 1e-5f, 5e5f,   false,
               0, 0, 8},
};
// clang-format on

// What differs between the families' files.
struct FamilyFacts {
  std::string_view architecture;
  bool head_norms;      // norms of every query and key head
  bool sandwich_norms;  // norms after attention and feed-forward, too
  bool fused;           // Q, K and V in one matrix, gate and up in one
  bool writes_head_dim, writes_rope_dimension;
};
constexpr std::array kFamilies = {
    FamilyFacts{"gemma3", true, true, false, true, false},
    FamilyFacts{"llama", false, false, false, true, true},
    FamilyFacts{"qwen3", true, false, false, true, false},
    FamilyFacts{"phi3", false, false, true, false, true},
};

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

MixModel mix_model(const ModelShape& shape) {
  return {.layers = shape.layers,
          .heads_per_kv_head = shape.heads / shape.kv_heads,
          .experts = 0,
          .tied_head = shape.tied_head};
}

std::vector<MetadataEntry> shape_metadata(const ModelShape& s, const Mix& mix) {
  const FamilyFacts& facts = facts_of(s);
  std::vector<MetadataEntry> out;
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
  if (facts.fused) count("rope.scaling.original_context_length", s.context);
  if (s.window > 0) count("attention.sliding_window", s.window);
  count("vocab_size", s.vocab);
  text("tokenizer.ggml.model", "none");
  out.push_back({"general.quantization_version", std::uint32_t{2}});  // of ggml's block layouts
  out.push_back({"general.file_type", mix.file_type});
  return out;
}

std::vector<ShapeTensor> shape_tensors(const ModelShape& s) {
  const FamilyFacts& facts = facts_of(s);
  std::vector<ShapeTensor> out;
  const auto matrix = [&](std::string name, std::uint64_t rows, std::uint64_t columns) {
    out.push_back({std::move(name), {rows, columns}, ShapeTensor::Kind::kMatrix});
  };
  const auto norm = [&](std::string name, std::uint64_t width) {
    out.push_back({std::move(name), {width}, ShapeTensor::Kind::kNorm});
  };
  const std::uint64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;

  if (s.llama3_rope_factor > 0)
    out.push_back({"rope_freqs.weight", {s.head_dim / 2}, ShapeTensor::Kind::kRopeFactors});
  matrix("token_embd.weight", s.vocab, s.hidden);
  for (std::uint64_t i = 0; i < s.layers; ++i) {
    const std::string at = fmt::format("blk.{}.", i);
    norm(at + "attn_norm.weight", s.hidden);
    if (facts.fused) {
      matrix(at + "attn_qkv.weight", queries + 2 * keys, s.hidden);
    } else {
      matrix(at + "attn_q.weight", queries, s.hidden);
      matrix(at + "attn_k.weight", keys, s.hidden);
      matrix(at + "attn_v.weight", keys, s.hidden);
    }
    if (facts.head_norms) {
      norm(at + "attn_q_norm.weight", s.head_dim);
      norm(at + "attn_k_norm.weight", s.head_dim);
    }
    matrix(at + "attn_output.weight", s.hidden, queries);
    if (facts.sandwich_norms) norm(at + "post_attention_norm.weight", s.hidden);
    norm(at + "ffn_norm.weight", s.hidden);
    if (!facts.fused) matrix(at + "ffn_gate.weight", s.ffn, s.hidden);
    matrix(at + "ffn_up.weight", facts.fused ? 2 * s.ffn : s.ffn, s.hidden);
    matrix(at + "ffn_down.weight", s.hidden, s.ffn);
    if (facts.sandwich_norms) norm(at + "post_ffw_norm.weight", s.hidden);
  }
  norm("output_norm.weight", s.hidden);
  if (!s.tied_head) matrix("output.weight", s.vocab, s.hidden);
  return out;
}

std::vector<float> llama3_rope_factors(const ModelShape& shape) {
  // Published with Llama 3.1: wavelengths above the old context are stretched, those below a quarter of it
  // are not, between them the two are mixed.
  constexpr double kOldContext = 8192, kLow = 1, kHigh = 4;
  std::vector<float> out;
  for (std::uint64_t i = 0; i < shape.head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim);
    const double wavelength = 2 * std::numbers::pi * std::pow(static_cast<double>(shape.rope_base), exponent);
    const double factor = shape.llama3_rope_factor;
    const double share = std::clamp((kOldContext / wavelength - kLow) / (kHigh - kLow), 0.0, 1.0);
    out.push_back(static_cast<float>(1 / ((1 - share) / factor + share)));
  }
  return out;
}

}  // namespace doppler::convert
