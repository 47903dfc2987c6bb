// CacheExtent: how much a cache holds, and where: in pages that all sequences share, or in a place for each
// slot.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/options.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

// Positions of a slot in a layer without pages: all of the context, or a window's ring, in which so many
// tokens (`reach`, see ring_reach()) may follow one that is still to attend. A step's tokens do, since they
// are all appended before any of them attends; and so do those that a cut takes back.
std::uint64_t kv_capacity(const KvLayer& layer, std::uint64_t context, std::uint32_t reach);

// Whether a layer's positions lie in pages (page_table.h). A ring is bounded already; and a single slot needs
// none: what it may hold lies in one piece, and no kernel has to look anything up.
bool is_paged(const KvLayer& layer, std::uint32_t slots);

struct CacheExtent {
  std::uint64_t context = 0;  // positions of a sequence at most
  std::uint32_t slots = 1;
  std::uint32_t reach = 1;
  // Of all sequences together, in layers with pages; 0: as many as the slots may use.
  std::uint64_t positions = 0;

  // Whole pages, and no more than the slots may use. Errors: kLimit for more than can be numbered.
  Result<std::uint32_t> pages() const;
  // Rows of each head of a layer's keys; nothing if they overflow.
  std::optional<std::uint64_t> rows(const KvLayer& layer) const;
};

// That of a backend whose step size was chosen.
CacheExtent cache_extent(const BackendOptions& options);

}  // namespace doppler
