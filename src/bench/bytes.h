// The bytes that the ops of a step read from memory: the basis of all bandwidth figures.
#pragma once

#include <cstdint>

#include "backend/kv_type.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler::bench {

// Weights, in the size that the file stores; of an embedding, one row for each of `tokens`.
std::uint64_t weight_bytes(const Plan& plan, const Weights& weights, const Op& op, std::uint64_t tokens);

// Keys and values that attention of one layer reads for a token at `position`: those of its window, or of all
// positions up to it.
std::uint64_t cache_bytes(const KvLayer& layer, KvType type, std::uint64_t position);

// All ops of a step of one token at `position`: weights and cache.
std::uint64_t token_bytes(const Plan& plan, const Weights& weights, KvType type, std::uint64_t position);

}  // namespace doppler::bench
