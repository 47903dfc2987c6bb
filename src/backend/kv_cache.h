// KvCache: keys and values of every layer and slot, in float32. A layer with a window keeps a ring of it, the
// others every position of the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

class KvCache {
 public:
  // Computes the size with checked arithmetic first. Errors: kLimit when it exceeds the machine's memory,
  // with the bytes and what to lower. Memory is only touched, and so only used, as positions are written.
  static Result<KvCache> create(std::span<const KvLayer> layers, std::uint64_t context, std::uint32_t slots,
                                std::uint32_t max_step_tokens);

  // Bytes the same arguments would take, keys and values together. Errors: kLimit if they overflow.
  static Result<std::uint64_t> bytes_needed(std::span<const KvLayer> layers, std::uint64_t context,
                                            std::uint32_t slots, std::uint32_t max_step_tokens);

  // head_dim floats of one position: layout [slot][kv_head][position % capacity][head_dim], so that the
  // positions of a head lie in one stream.
  float* key(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head, std::uint64_t position) {
    return keys_.data() + offset(layer, slot, kv_head, position);
  }
  float* value(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head, std::uint64_t position) {
    return values_.data() + offset(layer, slot, kv_head, position);
  }
  // Positions a layer holds; position p lives at p % capacity.
  std::uint64_t capacity(std::size_t layer) const { return layers_[layer].capacity; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Layer {
    std::uint64_t capacity, kv_heads, head_dim, first;  // first: floats before this layer
    std::uint64_t slot_floats;
  };

  std::size_t offset(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head,
                     std::uint64_t position) const {
    const Layer& l = layers_[layer];
    return l.first + slot * l.slot_floats + (kv_head * l.capacity + position % l.capacity) * l.head_dim;
  }

  std::vector<Layer> layers_;
  LazyFloats keys_, values_;
  std::uint64_t bytes_ = 0;
};

}  // namespace doppler
