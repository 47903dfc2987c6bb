// Recurrent layers in GGUF files: what their keys and tensors say, and what llama.cpp's converter changes
// about their weights.
#pragma once

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/gguf_config.h"
#include "model/spec_builder.h"

namespace doppler {

// Adds to the configuration what families with recurrent layers read: sizes, flags that follow from tensors,
// and, where layers differ, the kind of each by its tensors. Files without such keys stay as they are.
// Errors: kCorrupt for keys that contradict each other or the tensors.
Status translate_recurrent(GgufConfig& config);

// Corrects a filled spec for how files store recurrent layers: input projections as four tensors, norms of
// parts, and, where the rule says `tiled_heads`, value heads in another order. Errors: kCorrupt for norms in
// parts of no width, kUnsupported for more value heads a key head than an op takes.
Status settle_recurrent(SpecBuilder& builder, const GgufConfig& config, bool tiled_heads);

// Puts the weights as folders have them, in memory of the store: decay rates as logarithms, value heads by
// their key heads, the projection of both beta and decay as one for each. Tensors of another shape than the
// spec asks for stay as they are; binding refuses them. Errors: kCorrupt for rates that do not decay,
// kUnsupported for rates in blocks, kLimit when memory is short.
Status restore_recurrent(const ModelSpec& spec, const WeightNames& names, TensorStore& store);

// The place that llama.cpp's converter gives value head `head` of a delta net: all first ones of the key
// heads, then all second ones; and which head is at a place.
struct TiledHeads {
  std::uint32_t groups = 1, share = 1;  // key heads, and value heads of each
  std::uint64_t place_of(std::uint64_t head) const { return head % share * groups + head / share; }
  std::uint64_t head_at(std::uint64_t place) const { return place % groups * share + place / groups; }
};

}  // namespace doppler
