// The ops of a plan by the part they play, for a program that fuses them across a layer.
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace doppler::gpu {

// The ops of a layer, as build_plan() lays them out and group_matmuls groups them.
struct LayerOps {
  const Op *attn_norm, *qkv, *q_norm = nullptr, *k_norm = nullptr, *q_rope, *k_rope, *attention, *o,
                             *post_attn = nullptr;
  const Op *ffn_norm, *gate_up, *gated, *down, *post_ffn = nullptr;
};
struct DecoderOps {
  const Op* embed;
  std::vector<LayerOps> layers;
  const Op *final_norm, *head, *softcap;
};

// Errors: kUnsupported for a plan with another order of ops.
Result<DecoderOps> read_plan(const Plan& plan);

}  // namespace doppler::gpu
