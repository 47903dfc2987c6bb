// KvCache: keys and values of every layer and slot. A layer with a window keeps a ring of it, the others
// every position of the context. A recurrent layer has its state here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_type.h"
#include "base/memory.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

// Positions that a layer keeps: all of the context, or a window's ring, in which so many tokens (`reach`, see
// ring_reach()) may follow one that is still to attend. A step's tokens do, since they are all appended
// before any of them attends; and so do those that a cut takes back.
std::uint64_t kv_capacity(const KvLayer& layer, std::uint64_t context, std::uint32_t reach);

class KvCache {
 public:
  // Computes the size with checked arithmetic first. Errors: kLimit when it exceeds the machine's memory,
  // with the bytes and what to lower. Memory is only touched, and so only used, as positions are written.
  static Result<KvCache> create(std::span<const KvLayer> layers, std::uint64_t context, std::uint32_t slots,
                                std::uint32_t reach, KvType type = KvType::kF32);

  // Bytes the same arguments would take, keys, values and states together. Errors: kLimit if they overflow.
  static Result<std::uint64_t> bytes_needed(std::span<const KvLayer> layers, std::uint64_t context,
                                            std::uint32_t slots, std::uint32_t reach,
                                            KvType type = KvType::kF32);

  // One position's row of kv_row_bytes(): layout [slot][kv_head][position % capacity][row], so that the
  // positions of a head lie in one stream. Aligned to 4 bytes where the type's rows are.
  std::uint8_t* key(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head, std::uint64_t position) {
    const Layer& l = layers_[layer];
    return bytes_of(keys_) + l.first + offset(l, slot, kv_head, position);
  }
  // Of a layer without values of its own: the key, with which they begin.
  std::uint8_t* value(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head, std::uint64_t position) {
    const Layer& l = layers_[layer];
    if (!l.has_values) return key(layer, slot, kv_head, position);
    return bytes_of(values_) + l.first_value + offset(l, slot, kv_head, position);
  }
  // The state of a recurrent layer in float32: KvLayer::conv_rows x conv_channels, and KvLayer::state values.
  float* conv_state(std::size_t layer, std::uint32_t slot) {
    return states_.data() + state_offset(layer, slot);
  }
  float* state(std::size_t layer, std::uint32_t slot) {
    return conv_state(layer, slot) + layers_[layer].conv_values;
  }
  KvType type() const { return type_; }
  // Positions a layer holds; position p lives at p % capacity.
  std::uint64_t capacity(std::size_t layer) const { return layers_[layer].capacity; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Layer {
    std::uint64_t capacity, row_bytes, first, first_value;  // bytes before this layer's keys, and values
    std::uint64_t slot_bytes;
    bool has_values;
    std::uint64_t first_state, conv_values, slot_values;  // of the states, in floats
  };

  static std::uint8_t* bytes_of(LazyFloats& memory) { return reinterpret_cast<std::uint8_t*>(memory.data()); }
  static std::size_t offset(const Layer& l, std::uint32_t slot, std::uint32_t kv_head,
                            std::uint64_t position) {
    return slot * l.slot_bytes + (kv_head * l.capacity + position % l.capacity) * l.row_bytes;
  }

  std::size_t state_offset(std::size_t layer, std::uint32_t slot) const {
    return layers_[layer].first_state + slot * layers_[layer].slot_values;
  }

  std::vector<Layer> layers_;
  KvType type_ = KvType::kF32;
  LazyFloats keys_, values_, states_;
  std::uint64_t bytes_ = 0;
};

}  // namespace doppler
