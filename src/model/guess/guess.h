// A decoder that no family file describes, guessed from the keys of its config.json and the names and shapes
// of its tensors: which norms there are, gated or not, biases, fused tensors. Every guess is a source of the
// spec, with its reason, and nothing is sure before a recording agrees. What tensors cannot say, keys of the
// guess's own may, put into config.json by who knows it: rope_interleaved, qk_norm_after_rope,
// norm_weight_offset, parallel_residual, besides the usual ones (no_rope_layers, embedding_multiplier, …).
#pragma once

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weights.h"

namespace doppler {

// The name that asks for a guess instead of a family, and that a guessed spec has.
inline constexpr std::string_view kGuessFamily = "guess";

struct GuessedModel {
  ModelSpec spec;
  Weights weights;
};

// `config` and `generation_config` as for read_spec(); `source` names the file that `config` is from. Errors:
// kMismatch for tensors to which the guess can give no purpose, naming them, and those of bind_weights();
// kCorrupt and kUnsupported for values that no decoder can have.
Result<GuessedModel> guess_model(const Json& config, const Json* generation_config,
                                 const TensorStore& tensors, std::string_view source = "config.json");

}  // namespace doppler
