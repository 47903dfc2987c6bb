// KvCache: keys and values of every layer and slot. A layer with a window keeps a ring of it, the others
// every position, in pages that all slots share (page_table.h). A recurrent layer has its state here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cache_extent.h"
#include "backend/kv_type.h"
#include "backend/page_table.h"
#include "base/memory.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

class KvCache {
 public:
  // Computes the size with checked arithmetic first. Errors: kLimit when it exceeds the machine's memory,
  // with the bytes and what to lower. Where no number of positions is asked for, and all that the slots may
  // use does not fit, they share what does, a context at least. Memory is only touched, and so only used, as
  // positions are written.
  static Result<KvCache> create(std::span<const KvLayer> layers, const CacheExtent& extent,
                                KvType type = KvType::kF32);

  // Bytes the same arguments would take, keys, values and states together. Errors: kLimit if they overflow.
  static Result<std::uint64_t> bytes_needed(std::span<const KvLayer> layers, const CacheExtent& extent,
                                            KvType type = KvType::kF32);

  // One position's row of kv_row_bytes(), whose page the slot has: layout [page][kv_head][position of the
  // page][row], or [slot][kv_head][position % capacity][row] in layers without pages. Aligned to 4 bytes
  // where the type's rows are.
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
  // Positions [first, first + count) of a head, in order, as runs: at most most_runs(count). Returns how
  // many.
  std::size_t runs(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head, std::uint64_t first,
                   std::size_t count, std::span<KvRun> out);
  static constexpr std::size_t most_runs(std::size_t count) { return count / kPagePositions + 2; }
  // Copies a page in every layer that has pages.
  void copy(const PageCopy& copy);

  KvType type() const { return type_; }
  PageTable& pages() { return pages_; }
  // Of all sequences together. `is_short`: fewer than the slots may use, because no more fit.
  std::uint64_t positions() const { return positions_; }
  bool is_short() const { return is_short_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Layer {
    std::uint64_t capacity, row_bytes, first, first_value;  // bytes before this layer's keys, and values
    std::uint64_t kv_heads;
    bool has_values, paged;
    std::uint64_t first_state, conv_values, slot_values;  // of the states, in floats
  };

  static std::uint8_t* bytes_of(LazyFloats& memory) { return reinterpret_cast<std::uint8_t*>(memory.data()); }
  std::size_t offset(const Layer& l, std::uint32_t slot, std::uint32_t kv_head,
                     std::uint64_t position) const {
    const std::uint64_t block = l.paged ? pages_.page(slot, position) : slot;
    const std::uint64_t place = position % (l.paged ? kPagePositions : l.capacity);
    return ((block * l.kv_heads + kv_head) * (l.paged ? kPagePositions : l.capacity) + place) * l.row_bytes;
  }

  std::size_t state_offset(std::size_t layer, std::uint32_t slot) const {
    return layers_[layer].first_state + slot * layers_[layer].slot_values;
  }

  std::vector<Layer> layers_;
  KvType type_ = KvType::kF32;
  LazyFloats keys_, values_, states_;
  PageTable pages_;
  std::uint64_t bytes_ = 0, positions_ = 0;
  bool is_short_ = false;
};

}  // namespace doppler
