#include "backend/cache_extent.h"

#include <algorithm>

#include "backend/page_table.h"
#include "base/checked.h"

namespace doppler {

std::uint64_t kv_capacity(const KvLayer& layer, std::uint64_t context, std::uint32_t reach) {
  if (layer.window == 0) return context;
  return std::min<std::uint64_t>(context, std::uint64_t{layer.window} + reach - 1);
}

bool is_paged(const KvLayer& layer, std::uint32_t slots) {
  return slots > 1 && layer.kv_heads > 0 && layer.window == 0;
}

Result<std::uint32_t> CacheExtent::pages() const {
  const std::uint64_t all = (Checked(pages_for(context)) * Checked(slots)).value_or(UINT64_MAX);
  const std::uint64_t pages = positions == 0 ? all : std::min(all, pages_for(positions));
  if (pages <= UINT32_MAX) return static_cast<std::uint32_t>(pages);
  return fail(
      ErrorCode::kLimit,
      "The KV cache of {} positions in {} slots has more pages than can be numbered. Lower the context.",
      context, slots);
}

std::optional<std::uint64_t> CacheExtent::rows(const KvLayer& layer) const {
  if (!is_paged(layer, slots)) return (Checked(kv_capacity(layer, context, reach)) * Checked(slots)).get();
  const auto count = pages();
  if (!count) return std::nullopt;
  return std::uint64_t{*count} * kPagePositions;
}

CacheExtent cache_extent(const BackendOptions& options) {
  return {.context = options.context,
          .slots = options.slots,
          .reach = ring_reach(options),
          .positions = options.cache_positions};
}

}  // namespace doppler
