// The dimensions of published models, as a table, and what a GGUF file of each holds: metadata and tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/metadata.h"
#include "convert/mix.h"
#include "quant/tensor.h"

namespace doppler::convert {

struct ModelShape {
  std::string_view name;
  std::string_view architecture;  // GGUF's name of the family
  std::uint64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, context;
  float norm_epsilon, rope_base;
  bool tied_head;                // no output.weight: the embedding is the head
  std::uint64_t window = 0;      // sliding window; 0: none
  float window_rope_base = 0;    // rotary base of the layers with a window, where it is another
  float llama3_rope_factor = 0;  // longest wavelengths are stretched by this (rope_freqs.weight); 0: none
};

std::span<const ModelShape> all_shapes();
// Errors: kUsage, naming the nearest or listing all.
Result<const ModelShape*> find_shape(std::string_view name);

MixModel mix_model(const ModelShape& shape);

// Everything a reader needs to run the model, without a vocabulary: tokenizer.ggml.model is "none".
std::vector<MetadataEntry> shape_metadata(const ModelShape& shape, const Mix& mix);

struct ShapeTensor {
  enum class Kind { kMatrix, kNorm, kRopeFactors };
  std::string name;
  Shape shape;
  Kind kind;
};
std::vector<ShapeTensor> shape_tensors(const ModelShape& shape);

// The divisors of the rotary frequencies that Llama 3.1 and later use: head_dim / 2 of them.
std::vector<float> llama3_rope_factors(const ModelShape& shape);

}  // namespace doppler::convert
