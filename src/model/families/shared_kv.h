// What Gemma 3n and Gemma 4 have in common: per-layer embeddings, and last layers that read the keys and
// values of an earlier one.
#pragma once

#include "model/gguf_config.h"
#include "model/spec_builder.h"

namespace doppler {

// num_kv_shared_layers: so many last layers read those of the last layer of their kind before them. Errors:
// kCorrupt where there is none, or where its heads differ.
Status read_shared_kv(SpecBuilder& builder);
// hidden_size_per_layer_input and vocab_size_per_layer_input. A width of 0 or null: none.
Status read_per_layer(SpecBuilder& builder, std::uint32_t default_width);
// vocab_size_per_layer_input of a GGUF file, which no key says: the table's rows.
void derive_per_layer_tokens(GgufConfig& config);

}  // namespace doppler
