// Keys and values of a latent: folders make both with one matrix, GGUF files with two.
#pragma once

#include <memory>
#include <optional>

#include "base/byte_source.h"
#include "model/spec.h"
#include "model/weight_table.h"
#include "quant/tensor.h"

namespace doppler::diagnosis::doctor {

// A tensor that is computed from another as it is read.
struct LatentHalf {
  TensorView view;  // F32
  std::shared_ptr<const ByteSource> bytes;
};

// What `role` (kKUp or kVUp) is of the folder's matrix `whole`, head by head; that of keys is transposed.
// Nothing for other roles, and where `whole` has another shape than `attention` says.
std::optional<LatentHalf> latent_half(WeightRole role, const AttentionSpec& attention,
                                      const TensorView& whole);

}  // namespace doppler::diagnosis::doctor
