#include "backend/cache_access.h"

#include <algorithm>
#include <utility>

#include "backend/page_table.h"
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
                "The cache cannot be cut to {} tokens: sliding windows have overwritten what these need, or "
                "recurrent layers have gone on.",
                length);
  }
  lengths_.cut(slot, length);
  return {};
}

Status CacheAccess::cut_with_states(std::uint32_t slot, std::uint64_t length,
                                    std::span<const std::byte> states) {
  if (!can_cut_with_states(slot, length)) {
    return fail(ErrorCode::kUsage,
                "The cache cannot be cut to {} tokens: sliding windows have overwritten what these need.",
                length);
  }
  if (states.size() != state_bytes(layers())) {
    return fail(ErrorCode::kMismatch, "The states have {} bytes, but this model's have {}.", states.size(),
                state_bytes(layers()));
  }
  if (Status written = write_states(slot, states); !written) {
    lengths_.clear(slot);
    return written;
  }
  lengths_.cut(slot, length);
  return {};
}

Status CacheAccess::share(std::uint32_t from, std::uint32_t to) {
  if (from == to) return {};
  const std::uint64_t length = lengths_[from];
  lengths_.clear(to);
  if (length == 0) return {};
  DOPPLER_TRY(copy_unpaged(from, to));
  lengths_.pages().share(from, to, length);
  lengths_.fill(to, length);
  return {};
}

std::uint64_t state_bytes(std::span<const KvLayer> layers) {
  std::uint64_t bytes = 0;
  for (const KvLayer& layer : layers) bytes += layer.recurrent_values() * sizeof(float);
  return bytes;
}

Status for_each_state(std::span<const KvLayer> layers,
                      const std::function<Status(const CacheRun& run)>& visit) {
  std::uint64_t at = 0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const std::pair<CachePart, std::uint64_t> states[] = {
        {CachePart::kConvState, layers[layer].conv_values()}, {CachePart::kState, layers[layer].state}};
    for (const auto& [part, values] : states) {
      const std::uint64_t count = values * sizeof(float);
      if (count == 0) continue;
      DOPPLER_TRY(visit({.layer = layer, .part = part, .in_bytes = at, .count = count}));
      at += count;
    }
  }
  return {};
}

std::optional<std::uint64_t> cache_bytes(std::span<const KvLayer> layers, KvType type, std::uint64_t length) {
  Checked rows, states;  // rows: keys and values
  for (const KvLayer& layer : layers) {
    rows = rows + Checked(attended(layer, length)) * Checked(layer.kv_heads) *
                      Checked(kv_row_bytes(type, layer.head_dim)) * Checked(layer.has_values ? 2u : 1u);
    if (length > 0) states = states + Checked(layer.recurrent_values()) * Checked(sizeof(float));
  }
  return (rows + states).get();
}

Status for_each_run(std::span<const KvLayer> layers, KvType type, std::uint64_t length,
                    const CacheExtent& extent, const std::function<Status(const CacheRun& run)>& visit) {
  std::uint64_t at = 0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const KvLayer& kv = layers[layer];
    const std::uint64_t row = kv_row_bytes(type, kv.head_dim);
    const std::uint64_t period =
        is_paged(kv, extent.slots) ? kPagePositions : kv_capacity(kv, extent.context, extent.reach);
    const std::uint64_t first = length - attended(kv, length);
    for (const CachePart part : {CachePart::kKeys, CachePart::kValues}) {
      if (part == CachePart::kValues && !kv.has_values) continue;
      for (std::uint32_t head = 0; head < kv.kv_heads; ++head) {
        for (std::uint64_t position = first; position < length;) {
          const std::uint64_t count = std::min(length - position, period - position % period);
          DOPPLER_TRY(visit({.layer = layer,
                             .part = part,
                             .kv_head = head,
                             .position = position,
                             .in_bytes = at,
                             .count = count * row}));
          at += count * row;
          position += count;
        }
      }
    }
    const std::pair<CachePart, std::uint64_t> states[] = {{CachePart::kConvState, kv.conv_values()},
                                                          {CachePart::kState, kv.state}};
    for (const auto& [part, values] : states) {
      if (values == 0 || length == 0) continue;
      const std::uint64_t count = values * sizeof(float);
      DOPPLER_TRY(visit({.layer = layer, .part = part, .in_bytes = at, .count = count}));
      at += count;
    }
  }
  return {};
}

Status for_each_unpaged_run(std::span<const KvLayer> layers, KvType type, std::uint64_t length,
                            const CacheExtent& extent,
                            const std::function<Status(const CacheRun& run)>& visit) {
  return for_each_run(layers, type, length, extent, [&](const CacheRun& run) -> Status {
    const bool rows = run.part == CachePart::kKeys || run.part == CachePart::kValues;
    return rows && is_paged(layers[run.layer], extent.slots) ? Status() : visit(run);
  });
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
