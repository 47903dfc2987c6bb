// Values with two names: the output of the embedding or of a layer is what the next layer takes in, and in
// parallel layers one norm may serve attention and feed-forward.
#pragma once

#include <optional>

#include "plan/plan.h"

namespace doppler {

// Whether a layer begins with attention or a recurrent half. One that is only a feed-forward takes in what
// others have after attention: its input is its post_attn.
inline bool has_mixer(const KvLayer& layer) {
  return layer.head_dim > 0 || layer.recurrent_values() > 0;
}
inline Stage input_stage(const Plan& plan, int layer) {
  return has_mixer(plan.kv_layers[static_cast<std::size_t>(layer)]) ? Stage::kAttnInput : Stage::kPostAttn;
}

// The layer that takes this value in, if one does.
inline std::optional<int> layer_fed_by(const Plan& plan, const Value& value) {
  if (plan.has_streams) return std::nullopt;
  if (value.stage != Stage::kEmbedOut && value.stage != Stage::kLayerOut) return std::nullopt;
  const int next = value.layer + 1;  // the embedding's layer is -1
  if (static_cast<std::size_t>(next) >= plan.kv_layers.size()) return std::nullopt;
  return next;
}

// Every name that a value is looked at by, as called with (stage, layer); none if it has no stage.
template <typename Look>
void for_each_name(const Plan& plan, const Value& value, const Look& look) {
  if (value.stage == Stage::kNone) return;
  look(value.stage, value.layer);
  if (value.also != Stage::kNone) look(value.also, value.layer);
  if (const auto layer = layer_fed_by(plan, value)) look(input_stage(plan, *layer), *layer);
}

}  // namespace doppler
