#include "backend/page_table.h"

#include <algorithm>

namespace doppler {

PageTable::PageTable(std::uint32_t pages, std::uint32_t slots, std::uint64_t context)
    : row_(static_cast<std::size_t>(pages_for(context))),
      entries_(slots * row_),
      counts_(slots),
      changed_(slots),
      users_(pages),
      free_(pages) {
  // Those in front first, in order: so the only sequence lies in one piece.
  for (std::uint32_t i = 0; i < pages; ++i) free_[i] = pages - 1 - i;
}

Error PageTable::error(std::uint32_t slot) const {
  return {ErrorCode::kLimit,
          fmt::format(
              "The cache has room for {} positions of all sequences together, and none is left for "
              "the sequence in slot {}, which has {}. Run fewer sequences at a time, use shorter texts, "
              "or raise the cache's positions (--cache-positions, LoadOptions::cache_positions).",
              std::uint64_t{pages()} * kPagePositions, slot, std::uint64_t{count(slot)} * kPagePositions)};
}

std::uint32_t PageTable::take(std::uint32_t slot, std::size_t index) {
  const std::uint32_t page = free_.back();
  free_.pop_back();
  users_[page] = 1;
  entries_[slot * row_ + index] = page;
  changed_[slot] = 1;
  return page;
}

void PageTable::give_back(std::uint32_t page) {
  if (--users_[page] == 0) free_.push_back(page);
}

Result<std::optional<PageCopy>> PageTable::reserve(std::uint32_t slot, std::uint64_t held,
                                                   std::uint64_t length) {
  std::optional<PageCopy> copy;
  if (empty() || length <= held) return copy;
  const std::size_t first = held / kPagePositions, wanted = static_cast<std::size_t>(pages_for(length));
  const auto has = [&](std::size_t i) { return i < counts_[slot] && users_[entries_[slot * row_ + i]] == 1; };
  const auto missing = [&] {
    std::size_t count = 0;
    for (std::size_t i = first; i < wanted; ++i) count += has(i) ? 0 : 1;
    return count;
  };
  // Whoever spares a page may be the one that shared some with this slot.
  while (free_.size() < missing()) {
    if (!spare_ || !spare_(slot)) return std::unexpected(error(slot));
  }
  for (std::size_t i = first; i < wanted; ++i) {
    if (has(i)) continue;
    const bool shared = i < counts_[slot];
    const std::uint32_t before = shared ? entries_[slot * row_ + i] : 0;
    if (shared) give_back(before);
    const std::uint32_t page = take(slot, i);
    if (shared && i == first && held % kPagePositions != 0) copy = PageCopy{before, page};
    if (!shared) counts_[slot] = static_cast<std::uint32_t>(i + 1);
  }
  return copy;
}

void PageTable::cut(std::uint32_t slot, std::uint64_t length) {
  if (empty()) return;
  const auto kept = static_cast<std::size_t>(pages_for(length));
  // The furthest first, so that who grows again gets the same pages in the same order.
  while (counts_[slot] > kept) give_back(entries_[slot * row_ + --counts_[slot]]);
}

void PageTable::share(std::uint32_t from, std::uint32_t to, std::uint64_t length) {
  if (empty() || from == to) return;
  release(to);
  const auto count = static_cast<std::size_t>(pages_for(length));
  for (std::size_t i = 0; i < count && i < counts_[from]; ++i) {
    const std::uint32_t page = entries_[from * row_ + i];
    ++users_[page];
    entries_[to * row_ + i] = page;
    ++counts_[to];
  }
  changed_[to] = 1;
}

}  // namespace doppler
