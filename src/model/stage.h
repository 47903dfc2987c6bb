// Stages: the public vocabulary of taps, recordings and reports. Every value that users can see has one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace doppler {

enum class Stage : std::uint8_t {
  kNone,
  kEmbedOut,
  kPerLayerInputs,
  kAltupIn,
  kAltupPredicted,
  kAttnInput,
  kAttnNormed,
  kLaurelOut,
  kQAProj,
  kQANorm,
  kKvAProj,
  kKvANorm,
  kSsmIn,
  kSsmInBa,
  kSsmInB,
  kSsmInA,
  kConvIn,
  kConvOut,
  kDeltaQ,
  kDeltaK,
  kDeltaV,
  kDeltaBeta,
  kDeltaDecay,
  kSsmX,
  kSsmXProj,
  kSsmDtNorm,
  kSsmDt,
  kSsmA,
  kSsmB,
  kSsmC,
  kSsmOut,
  kConvState,
  kState,
  kSsmGate,
  kSsmGated,
  kSsmOProj,
  kQProj,
  kKProj,
  kVProj,
  kAttnGate,
  kQNorm,
  kKNorm,
  kVNorm,
  kQRope,
  kKRope,
  kQScaled,
  kAttnScores,
  kAttnOut,
  kAttnGated,
  kOProj,
  kPostAttnNorm,
  kPostAttn,
  kFfnNormed,
  kRouterNormed,
  kRouterLogits,
  kRouterIds,
  kRouterWeights,
  kExpertInputs,
  kFfnGate,
  kFfnUp,
  kFfnAct,
  kFfnExperts,
  kSharedGateProj,
  kSharedUp,
  kSharedAct,
  kSharedGate,
  kFfnShared,
  kFfnMlp,
  kFfnMlpNorm,
  kMoeNormed,
  kMoeGate,
  kMoeUp,
  kMoeAct,
  kMoeOut,
  kMoeNorm,
  kFfnOut,
  kPostFfnNorm,
  kAltupCorrected,
  kPleIn,
  kPleGate,
  kPleAct,
  kPleProj,
  kPleNorm,
  kLayerOut,
  kPreFinalNorm,
  kFinalNorm,
  kLogits,
  kLogitsFinal,
  kCount,
};

struct StageInfo {
  Stage stage;
  std::string_view name;
  bool per_layer;
  std::string_view meaning;  // one line for --help and the docs
};

const StageInfo& stage_info(Stage stage);
inline std::string_view stage_name(Stage stage) {
  return stage_info(stage).name;
}
// In the order in which a step computes them; without kNone.
std::span<const StageInfo> all_stages();
// Also knows the aliases (ffn_in for ffn_normed).
std::optional<Stage> stage_from_name(std::string_view name);

// "layers.3.q_rope", or "logits" for the stages outside layers: the names in recordings.
std::string stage_key(Stage stage, int layer);

}  // namespace doppler
