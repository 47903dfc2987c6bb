#include "backend/kv_cache.h"

#include <algorithm>

#include "base/checked.h"
#include "base/text.h"
#include "system/memory.h"

namespace doppler {

std::uint64_t kv_capacity(const KvLayer& layer, std::uint64_t context, std::uint32_t reach) {
  if (layer.window == 0) return context;
  return std::min<std::uint64_t>(context, std::uint64_t{layer.window} + reach - 1);
}

Result<std::uint64_t> KvCache::bytes_needed(std::span<const KvLayer> layers, std::uint64_t context,
                                            std::uint32_t slots, std::uint32_t reach, KvType type) {
  Checked rows, states;  // rows: keys and values
  for (const KvLayer& layer : layers) {
    rows = rows + Checked(kv_capacity(layer, context, reach)) * Checked(layer.kv_heads) *
                      Checked(kv_row_bytes(type, layer.head_dim)) * Checked(slots) *
                      Checked(layer.has_values ? 2u : 1u);
    states = states + Checked(layer.recurrent_values()) * Checked(sizeof(float)) * Checked(slots);
  }
  const auto bytes = (rows + states).get();
  if (!bytes)
    return fail(ErrorCode::kLimit,
                "The KV cache of {} positions in {} slots exceeds 2^64 bytes. Lower the context.", context,
                slots);
  return *bytes;
}

Result<KvCache> KvCache::create(std::span<const KvLayer> layers, std::uint64_t context, std::uint32_t slots,
                                std::uint32_t reach, KvType type) {
  KvCache cache;
  cache.type_ = type;
  DOPPLER_ASSIGN(cache.bytes_, bytes_needed(layers, context, slots, reach, type));
  if (const std::uint64_t available = system::available_memory(); cache.bytes_ > available) {
    return fail(
        ErrorCode::kLimit,
        "The KV cache of {} positions in {} slots needs {}, but the machine has {} left. Lower the context.",
        context, slots, human_bytes(cache.bytes_), human_bytes(available));
  }
  std::uint64_t first = 0, first_value = 0, first_state = 0;
  for (const KvLayer& layer : layers) {
    const std::uint64_t capacity = kv_capacity(layer, context, reach);
    const std::uint64_t row_bytes = kv_row_bytes(type, layer.head_dim);
    const std::uint64_t slot_bytes = capacity * layer.kv_heads * row_bytes;
    cache.layers_.push_back({.capacity = capacity,
                             .row_bytes = row_bytes,
                             .first = first,
                             .first_value = first_value,
                             .slot_bytes = slot_bytes,
                             .has_values = layer.has_values,
                             .first_state = first_state,
                             .conv_values = layer.conv_values(),
                             .slot_values = layer.recurrent_values()});
    first_state += layer.recurrent_values() * slots;
    first += slot_bytes * slots;
    if (layer.has_values) first_value += slot_bytes * slots;
  }
  DOPPLER_ASSIGN(cache.keys_, LazyFloats::allocate((first + 3) / 4));
  DOPPLER_ASSIGN(cache.values_, LazyFloats::allocate((first_value + 3) / 4));
  DOPPLER_ASSIGN(cache.states_, LazyFloats::allocate(first_state));
  return cache;
}

}  // namespace doppler
