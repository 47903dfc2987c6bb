#include "backend/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/text.h"
#include "system/memory.h"

namespace doppler {
namespace {

bool has_pages(std::span<const KvLayer> layers, std::uint32_t slots) {
  return std::ranges::any_of(layers, [&](const KvLayer& layer) { return is_paged(layer, slots); });
}

// The part of the memory that is left which a cache takes where it cannot have all it may use: a step's
// values and weights in other forms want some, too.
constexpr std::uint64_t share_of(std::uint64_t available) {
  return available / 4 * 3;
}

// Of the numbers of all pages that slots may have.
std::uint64_t table_bytes(const CacheExtent& extent) {
  return (Checked(pages_for(extent.context)) * Checked(extent.slots) * Checked(sizeof(std::uint32_t)))
      .value_or(UINT64_MAX);
}

// As many positions, a context at least, as fit where those of all slots do not; 0 where they do.
Result<std::uint64_t> positions_that_fit(std::span<const KvLayer> layers, CacheExtent extent, KvType type,
                                         std::uint64_t available) {
  if (extent.positions != 0 || !has_pages(layers, extent.slots)) return extent.positions;
  if (const auto whole = KvCache::bytes_needed(layers, extent, type); whole && *whole <= available) return 0;
  extent.positions = extent.context;
  DOPPLER_ASSIGN(const std::uint64_t least, KvCache::bytes_needed(layers, extent, type));
  std::uint64_t page_bytes = 0;
  for (const KvLayer& layer : layers) {
    if (is_paged(layer, extent.slots))
      page_bytes +=
          kv_row_bytes(type, layer.head_dim) * layer.kv_heads * kPagePositions * (layer.has_values ? 2 : 1);
  }
  const std::uint64_t more = share_of(available) > least ? (share_of(available) - least) / page_bytes : 0;
  return (pages_for(extent.context) + more) * kPagePositions;
}

}  // namespace

Result<std::uint64_t> KvCache::bytes_needed(std::span<const KvLayer> layers, const CacheExtent& extent,
                                            KvType type) {
  Checked rows, states;  // rows: keys and values
  for (const KvLayer& layer : layers) {
    rows = rows + Checked(extent.rows(layer).value_or(UINT64_MAX)) * Checked(layer.kv_heads) *
                      Checked(kv_row_bytes(type, layer.head_dim)) * Checked(layer.has_values ? 2u : 1u);
    states = states + Checked(layer.recurrent_values()) * Checked(sizeof(float)) * Checked(extent.slots);
  }
  const auto bytes = (rows + states).get();
  if (!bytes)
    return fail(ErrorCode::kLimit,
                "The KV cache of {} positions in {} slots exceeds 2^64 bytes. Lower the context.",
                extent.context, extent.slots);
  return *bytes;
}

Result<KvCache> KvCache::create(std::span<const KvLayer> layers, const CacheExtent& asked, KvType type) {
  KvCache cache;
  cache.type_ = type;
  const std::uint64_t available = system::available_memory();
  CacheExtent extent = asked;
  DOPPLER_ASSIGN(extent.positions, positions_that_fit(layers, asked, type, available));
  cache.is_short_ = extent.positions != asked.positions;
  DOPPLER_ASSIGN(cache.bytes_, bytes_needed(layers, extent, type));
  const std::uint64_t table = has_pages(layers, extent.slots) ? table_bytes(extent) : 0;
  if (!(Checked(cache.bytes_) + Checked(table)).at_most(available)) {
    return fail(
        ErrorCode::kLimit,
        "The KV cache of {} positions in {} slots needs {}, but the machine has {} left. Lower the context.",
        extent.context, extent.slots, human_bytes(cache.bytes_), human_bytes(available));
  }
  if (has_pages(layers, extent.slots)) {
    DOPPLER_ASSIGN(const std::uint32_t pages, extent.pages());
    cache.pages_ = PageTable(pages, extent.slots, extent.context);
  }
  cache.positions_ = cache.pages_.empty() ? extent.context * extent.slots
                                          : std::uint64_t{cache.pages_.pages()} * kPagePositions;
  std::uint64_t first = 0, first_value = 0, first_state = 0;
  for (const KvLayer& layer : layers) {
    const std::uint64_t row_bytes = kv_row_bytes(type, layer.head_dim);
    const std::uint64_t bytes = extent.rows(layer).value_or(0) * layer.kv_heads * row_bytes;
    cache.layers_.push_back({.capacity = kv_capacity(layer, extent.context, extent.reach),
                             .row_bytes = row_bytes,
                             .first = first,
                             .first_value = first_value,
                             .kv_heads = layer.kv_heads,
                             .has_values = layer.has_values,
                             .paged = is_paged(layer, extent.slots),
                             .first_state = first_state,
                             .conv_values = layer.conv_values(),
                             .slot_values = layer.recurrent_values()});
    first_state += layer.recurrent_values() * extent.slots;
    first += bytes;
    if (layer.has_values) first_value += bytes;
  }
  DOPPLER_ASSIGN(cache.keys_, LazyFloats::allocate((first + 3) / 4));
  DOPPLER_ASSIGN(cache.values_, LazyFloats::allocate((first_value + 3) / 4));
  DOPPLER_ASSIGN(cache.states_, LazyFloats::allocate(first_state));
  return cache;
}

std::size_t KvCache::runs(std::size_t layer, std::uint32_t slot, std::uint32_t kv_head, std::uint64_t first,
                          std::size_t count, std::span<KvRun> out) {
  const Layer& l = layers_[layer];
  const std::uint64_t period = l.paged ? kPagePositions : l.capacity;
  std::size_t runs = 0;
  while (count > 0) {
    const auto fit = static_cast<std::size_t>(std::min<std::uint64_t>(count, period - first % period));
    const KvRun run{key(layer, slot, kv_head, first), value(layer, slot, kv_head, first), fit};
    // Of a layer with one head, pages that follow each other are one run.
    const bool follows = runs > 0 && out[runs - 1].keys + out[runs - 1].count * l.row_bytes == run.keys;
    if (follows)
      out[runs - 1].count += fit;
    else
      out[runs++] = run;
    first += fit;
    count -= fit;
  }
  return runs;
}

void KvCache::copy(const PageCopy& copy) {
  for (const Layer& l : layers_) {
    if (!l.paged) continue;
    const std::uint64_t bytes = kPagePositions * l.kv_heads * l.row_bytes;
    std::uint8_t* const keys = bytes_of(keys_) + l.first;
    std::memcpy(keys + copy.to * bytes, keys + copy.from * bytes, bytes);
    if (!l.has_values) continue;
    std::uint8_t* const values = bytes_of(values_) + l.first_value;
    std::memcpy(values + copy.to * bytes, values + copy.from * bytes, bytes);
  }
}

}  // namespace doppler
