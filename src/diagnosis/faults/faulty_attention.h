// Attention in plain loops with parts that can be made wrong: recomputed with its own cache from the queries,
// keys and values of a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "backend/fault.h"

namespace doppler::diagnosis::faults {

class FaultyAttention {
 public:
  // The kv head that a head reads; empty: neighbours share one.
  std::function<std::uint32_t(std::uint32_t head, const AttentionParams& a)> kv_head;
  // Whether the query at a position sees the key at another, of all that the slot holds; empty: those up to
  // its own.
  std::function<bool(std::uint64_t query, std::uint64_t key)> sees;

  // Call it with every q_rope, k_rope (or q_proj, k_proj where there is no rotation), v_proj and attn_out in
  // the order of a step; replaces attn_out. False if it changed nothing.
  bool compute(const Fault::Computed& computed, Stage stage, int layer);

 private:
  struct Layer {
    std::vector<float> q;
    std::map<std::int32_t, std::vector<std::vector<float>>> keys, values;  // by slot and position
  };
  static void store(std::map<std::int32_t, std::vector<std::vector<float>>>& cache,
                    const Fault::Computed& computed);
  std::map<int, Layer> layers_;
};

}  // namespace doppler::diagnosis::faults
