// The dimensions of published models, as a table, and the metadata and tensors of a GGUF file of each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/metadata.h"
#include "convert/mix.h"
#include "model/spec.h"
#include "model/weight_table.h"

namespace doppler::convert {

struct ModelShape {
  std::string_view name;
  std::string_view architecture;  // GGUF's name of the family
  std::uint64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, context;
  float norm_epsilon, rope_base;
  bool tied_head;                // no output.weight: the embedding is the head
  std::uint64_t window = 0;      // sliding window; 0: none
  float window_rope_base = 0;    // rotary base of the layers with a window, if different; 0: the same
  float llama3_rope_factor = 0;  // longest wavelengths are stretched by this (rope_freqs.weight); 0: none
  struct Experts {
    std::uint64_t count = 0, chosen = 0;  // a token is sent to `chosen`; 0: one feed-forward for all
    std::uint64_t width = 0;              // of each, where it is not `ffn`
  } experts = {};
  struct Yarn {
    float factor = 0;  // 0: none
    std::uint64_t context = 0;
  } yarn = {};
  // What config.json says besides, as a JSON object: for families whose layers differ in more than the
  // numbers above. The metadata are then those of a conversion.
  std::string_view config = {};
};

std::span<const ModelShape> all_shapes();
// Errors: kUsage, naming the nearest or listing all.
Result<const ModelShape*> find_shape(std::string_view name);

// The shape as a ModelSpec, made as from a config.json. Errors: those of read_spec, for shapes that fit no
// model.
Result<ModelSpec> shape_spec(const ModelShape& shape);

// All metadata that a reader needs to run the model, without a vocabulary: tokenizer.ggml.model is "none".
// Errors: those of shape_spec.
Result<std::vector<MetadataEntry>> shape_metadata(const ModelShape& shape, const Mix& mix);

// The tensors of a GGUF file of that shape. Errors: those of shape_spec.
Result<std::vector<WeightTensor>> shape_tensors(const ModelShape& shape);

}  // namespace doppler::convert
