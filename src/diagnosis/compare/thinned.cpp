#include "diagnosis/compare/thinned.h"

#include <algorithm>
#include <array>

#include "diagnosis/compare/stage_rows.h"

namespace doppler::diagnosis {
namespace {

bool is_query_key_or_value(Stage stage) {
  constexpr Stage kParts[] = {Stage::kQProj, Stage::kKProj, Stage::kVProj, Stage::kQNorm,
                              Stage::kKNorm, Stage::kQRope, Stage::kKRope};
  return std::ranges::find(kParts, stage) != std::end(kParts);
}

constexpr auto kThinnings = std::to_array<Thinning>({
    {.name = "hidden_states",
     .meaning =
         "output_hidden_states of transformers: embedding, layers, the last one normed and called layer_out",
     .keeps = [](Stage stage, int, int) { return stage == Stage::kEmbedOut || stage == Stage::kLayerOut; },
     .normed_last = true},
    {.name = "hidden_named",
     .meaning = "the same, the last one called final_norm",
     .keeps =
         [](Stage stage, int layer, int layers) {
           return stage == Stage::kEmbedOut || stage == Stage::kFinalNorm ||
                  (stage == Stage::kLayerOut && layer + 1 < layers);
         }},
    {.name = "logits",
     .meaning = "logits only",
     .keeps = [](Stage stage, int, int) { return stage == Stage::kLogitsFinal; }},
    {.name = "one_layer",
     .meaning = "every stage of layer 1 only",
     .keeps = [](Stage, int layer, int) { return layer == 1; }},
    {.name = "block_outputs",
     .meaning = "what attention and feed-forward return, and the logits",
     .keeps =
         [](Stage stage, int, int) {
           return stage == Stage::kOProj || stage == Stage::kFfnOut || stage == Stage::kLogitsFinal;
         }},
    {.name = "no_qkv",
     .meaning = "all but queries, keys and values",
     .keeps = [](Stage stage, int, int) { return !is_query_key_or_value(stage); },
     .decode = true},
});

}  // namespace

std::span<const Thinning> all_thinnings() {
  return kThinnings;
}

const Thinning* find_thinning(std::string_view name) {
  const auto found = std::ranges::find(kThinnings, name, &Thinning::name);
  return found == kThinnings.end() ? nullptr : &*found;
}

Result<Recording> thin(const Recording& recording, const Thinning& thinning) {
  int layers = 0;
  for (const auto& [name, tensor] : recording.tensors.tensors())
    layers = std::max(layers, layer_of(name) + 1);
  TensorStore kept;
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    const std::vector<Stage> parts = parts_of(name);
    const bool ids =
        name == "prompt_ids" || (thinning.decode && (name == "greedy_ids" || name == "decode_logits"));
    const bool stage = !parts.empty() && std::ranges::all_of(parts, [&](Stage part) {
      return thinning.keeps(part, layer_of(name), layers);
    });
    const bool last = thinning.normed_last && name == stage_key(Stage::kLayerOut, layers - 1);
    if ((ids || stage) && !last) DOPPLER_TRY(kept.add(tensor));
  }
  const TensorView* normed = recording.tensors.find(stage_key(Stage::kFinalNorm, -1));
  if (thinning.normed_last && normed != nullptr) {
    TensorView last = *normed;
    last.name = stage_key(Stage::kLayerOut, layers - 1);
    DOPPLER_TRY(kept.add(last));
  }
  for (const auto& [key, value] : recording.tensors.metadata()) kept.add_metadata(key, value);
  DOPPLER_ASSIGN(Recording thinned, read_recording(std::move(kept), thinning.name));
  thinned.memory = std::make_shared<Recording>(recording);
  return thinned;
}

}  // namespace doppler::diagnosis
