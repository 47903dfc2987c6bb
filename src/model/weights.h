// Weights: the tensors a ModelSpec needs, found in a TensorStore by the
// names its family uses, with checked shapes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "quant/tensor.h"

namespace doppler {

// What a weight is for. Fused tensors are roles of their own; binding splits them into row slices.
enum class WeightRole : std::uint8_t {
  kTokenEmbedding,
  kFinalNorm,
  kHead,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQkv,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kQkvBias,
  kOBias,
  kQNorm,
  kKNorm,
  kPostAttnNorm,
  kFfnNorm,
  kGate,
  kUp,
  kGateUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kPostFfnNorm,
  // GGUF's tensors of rope divisors: read into the spec, not bound.
  kRopeDivisors,
  kRopeShortFactors,
  kRopeLongFactors,
  kCount,
};

using WeightId = std::uint32_t;
inline constexpr WeightId kNoWeight = ~WeightId{0};

// One family's name of a role; layer names hold one {} for the layer's index.
struct WeightName {
  WeightRole role;
  std::string_view name;
};

// The name of a role in a family's table, with the layer's index in it; empty if the table has none.
std::string weight_name(std::span<const WeightName> names, WeightRole role, int layer = -1);

class Weights {
 public:
  // kNoWeight where the model has none. `layer` is -1 for the model-wide roles.
  WeightId find(WeightRole role, int layer = -1) const;
  const TensorView& operator[](WeightId id) const { return tensors_[id]; }
  std::span<const TensorView> tensors() const { return tensors_; }

  WeightId add(WeightRole role, int layer, TensorView tensor);
  // Two roles share one tensor: a tied head.
  void alias(WeightRole role, int layer, WeightId id) { ids(layer)[static_cast<std::size_t>(role)] = id; }

 private:
  using LayerIds = std::array<WeightId, static_cast<std::size_t>(WeightRole::kCount)>;
  LayerIds& ids(int layer);
  std::vector<TensorView> tensors_;
  std::vector<LayerIds> ids_;  // entry 0: model-wide; entry i + 1: layer i
};

// Finds every weight the spec asks for. Errors, each naming tensor, shape and the spec value behind it:
// kMismatch for a missing tensor, a wrong shape, a tensor that nothing uses, or one that contradicts a flag
// (q/k norms without qk_norm, a head beside a tie that differs from the embedding, ...); kUnsupported for a
// weight dtype that cannot be computed with.
Result<Weights> bind_weights(const ModelSpec& spec, std::span<const WeightName> names,
                             const TensorStore& store);

}  // namespace doppler
