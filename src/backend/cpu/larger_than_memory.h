// Models whose weights are larger than memory: they stay where they are, in the pages of their file, which
// the system keeps and drops as it sees fit.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler::cpu {

struct WeightBytes {
  std::uint64_t all = 0;        // each weight once
  std::uint64_t per_token = 0;  // of experts only those that a token is sent to, of tables one row
};
WeightBytes weight_bytes(const Plan& plan, const Weights& weights);

// What to say where the weights do not fit into `available` bytes, and that they are then not laid out again;
// nothing where they fit. `quantised`: whether there are such, whose rows become floats for every product.
std::optional<Fallback> larger_than_memory(const WeightBytes& bytes, bool quantised, std::uint64_t available);

}  // namespace doppler::cpu
