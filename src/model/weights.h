// Weights: the tensors that a ModelSpec needs, found in a TensorStore by the names that its family uses, with
// checked shapes. Which tensors these are stands in weight_table.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weight_table.h"
#include "quant/tensor.h"

namespace doppler {

using WeightId = std::uint32_t;
inline constexpr WeightId kNoWeight = ~WeightId{0};

class Weights {
 public:
  // kNoWeight where the model has none. `layer` is -1 for the model-wide roles. Of roles that each expert
  // has: the first expert's, which the others' follow.
  WeightId find(WeightRole role, int layer = -1) const;
  const TensorView& operator[](WeightId id) const { return tensors_[id]; }
  std::span<const TensorView> tensors() const { return tensors_; }

  // How many weights of one role and layer follow each other from this one on: those of its experts; 1
  // elsewhere.
  std::uint32_t count(WeightId first) const { return counts_[first]; }

  WeightId add(WeightRole role, int layer, TensorView tensor);
  // Another expert's, directly after those before it.
  void add_expert(WeightRole role, int layer, TensorView tensor);
  // Two roles share one tensor: a tied head.
  void alias(WeightRole role, int layer, WeightId id) { ids(layer)[static_cast<std::size_t>(role)] = id; }

 private:
  using LayerIds = std::array<WeightId, static_cast<std::size_t>(WeightRole::kCount)>;
  LayerIds& ids(int layer);
  std::vector<TensorView> tensors_;
  std::vector<std::uint32_t> counts_;  // parallel to tensors_
  std::vector<LayerIds> ids_;          // entry 0: model-wide; entry i + 1: layer i
};

// Where the store's language model is; the first of all nestings if it has no embedding.
Nesting find_nesting(const WeightNames& names, const TensorStore& store);

// Tensors that checkpoints carry and inference does not need: rope frequencies that the config gives, the
// vision half of a multimodal model.
bool is_known_surplus(std::string_view name);

// Finds every weight the spec asks for. Errors, each naming tensor, shape and the spec value behind it:
// kMismatch for a missing tensor, a wrong shape, a tensor that nothing uses, or one that contradicts a flag
// (q/k norms without qk_norm, a head beside a tie that differs from the embedding, ...); kUnsupported for a
// weight dtype that cannot be computed with.
Result<Weights> bind_weights(const ModelSpec& spec, const WeightNames& names, const TensorStore& store);

}  // namespace doppler
