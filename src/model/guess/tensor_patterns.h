// What the names of a model's tensors have in common: "model.layers.{}.self_attn.q_proj.weight" stands for
// the tensor of each layer, "model.layers.{}.mlp.experts.{}.up_proj.weight" for that of each expert.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_store.h"

namespace doppler {

struct TensorPattern {
  std::string name;         // with {} for the numbers of layer and expert; a whole name outside layers
  std::string module;       // without what stands before the layer's number, an expert's number, and the kind
  std::string kind;         // "weight", "bias", or the last part of another name
  std::vector<int> layers;  // empty outside layers
  std::vector<const TensorView*> tensors;  // of each of these layers (and experts); the one outside layers
  int experts = 0;                         // numbered from 0 in the name; 0: it has no expert's number

  const TensorView& first() const { return *tensors.front(); }
  bool per_layer() const { return !layers.empty(); }
};

struct TensorPatterns {
  std::vector<TensorPattern> patterns;  // sorted by name
  std::string layer_prefix;             // "model.layers."; empty if no names are numbered
  int layers = 0;                       // numbers 0 to layers - 1 all exist
};

// The patterns of all tensors but those that inference does not need. Layers are what the largest group of
// numbered names with one beginning counts. Errors: kMismatch where its numbers have gaps.
Result<TensorPatterns> find_patterns(const TensorStore& tensors);

// The words of a module's name: "self_attn.q_proj" has self, attn, q and proj. A capital letter begins a
// word, too, and words are in lower case.
std::vector<std::string> words_of(std::string_view name);

}  // namespace doppler
