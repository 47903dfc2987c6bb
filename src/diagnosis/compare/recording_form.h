// What a recording is, besides what it says: values that were stored in 16 bits, a last layer that is normed
// already.
#pragma once

#include <optional>
#include <string>

#include "diagnosis/compare/recording.h"
#include "model/spec.h"
#include "model/weights.h"

namespace doppler::diagnosis {

// Share of a value by which rounding to the type moves it that all stages' values fit into: 0 for float32.
struct StoredType {
  std::string_view name = "float32";
  double share = 0;
};
StoredType stored_type(const Recording& recording);

// The last of transformers' hidden_states is normed. Where it is recorded as the last layer_out: the
// recording with final_norm instead, and a note; else nothing. The first one must outlive it.
std::optional<Recording> with_named_last_norm(const Recording& recording, const ModelSpec& spec,
                                              const Weights& weights);

}  // namespace doppler::diagnosis
