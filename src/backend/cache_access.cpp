#include "backend/cache_access.h"

#include <algorithm>

#include "backend/kv_cache.h"
#include "base/checked.h"

namespace doppler {
namespace {

// Positions of a layer that the token at `length` attends to, besides itself.
std::uint64_t attended(const KvLayer& layer, std::uint64_t length) {
  return layer.window == 0 ? length : std::min<std::uint64_t>(length, layer.window - 1);
}

}  // namespace

Status CacheAccess::cut(std::uint32_t slot, std::uint64_t length) {
  if (!can_cut(slot, length)) {
    return fail(ErrorCode::kUsage,
                "The cache cannot be cut to {} tokens: sliding windows have overwritten what these need.",
                length);
  }
  lengths_.cut(slot, length);
  return {};
}

std::optional<std::uint64_t> cache_bytes(std::span<const KvLayer> layers, KvType type, std::uint64_t length) {
  Checked sum;
  for (const KvLayer& layer : layers) {
    sum = sum + Checked(attended(layer, length)) * Checked(layer.kv_heads) *
                    Checked(kv_row_bytes(type, layer.head_dim)) * Checked(layer.has_values ? 2u : 1u);
  }
  return sum.get();
}

Status for_each_run(std::span<const KvLayer> layers, KvType type, std::uint64_t length, std::uint64_t context,
                    std::uint32_t reach, const std::function<Status(const CacheRun& run)>& visit) {
  std::uint64_t at = 0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const KvLayer& kv = layers[layer];
    const std::uint64_t row = kv_row_bytes(type, kv.head_dim);
    const std::uint64_t capacity = kv_capacity(kv, context, reach);
    const std::uint64_t first = length - attended(kv, length);
    for (const bool values : {false, true}) {
      if (values && !kv.has_values) continue;
      for (std::uint64_t head = 0; head < kv.kv_heads; ++head) {
        for (std::uint64_t position = first; position < length;) {
          const std::uint64_t place = position % capacity;
          const std::uint64_t count = std::min(length - position, capacity - place);
          DOPPLER_TRY(visit({.layer = layer,
                             .values = values,
                             .in_slot = (head * capacity + place) * row,
                             .in_bytes = at,
                             .count = count * row}));
          at += count * row;
          position += count;
        }
      }
    }
  }
  return {};
}

Status check_cache_bytes(std::span<const KvLayer> layers, KvType type, std::uint64_t context,
                         std::uint64_t length, std::uint64_t bytes) {
  if (length > context) {
    return fail(ErrorCode::kLimit, "The sequence has {} tokens, but the context holds {}. Raise the context.",
                length, context);
  }
  const auto expected = cache_bytes(layers, type, length);
  if (!expected || *expected != bytes) {
    return fail(ErrorCode::kMismatch, "The cache of {} tokens has {} bytes, but this model's has {}.", length,
                bytes, expected.value_or(0));
  }
  return {};
}

}  // namespace doppler
