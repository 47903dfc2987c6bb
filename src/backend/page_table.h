// PageTable: which pages of a pool each slot has. A page has room for kPagePositions positions of every layer
// that keeps the whole context; position p of a slot lies in its page p / kPagePositions, wherever that is in
// the pool. So a sequence takes the memory of its length, and sequences that begin alike share the pages of
// their beginning. A page that several slots have is never written: whoever goes on in one gets a copy first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace doppler {

// A page is a run of positions that lie side by side: long enough that a kernel looks a page up once for
// several tiles of it (the largest tile of the cpu's has 16 positions, a split of the gpu's 32), and short
// enough that half a page, what a sequence wastes on average, is little beside any conversation.
inline constexpr std::uint32_t kPagePositions = 32;

constexpr std::uint64_t pages_for(std::uint64_t positions) {
  return positions / kPagePositions + (positions % kPagePositions != 0 ? 1 : 0);
}

// What is to be copied from one page to another, in every layer that has pages, before anything is written.
struct PageCopy {
  std::uint32_t from = 0, to = 0;
  bool operator==(const PageCopy&) const = default;
};

class PageTable {
 public:
  PageTable() = default;  // of a cache without pages: every call succeeds and does nothing
  // `pages` in the pool; a slot has at most as many as `context` positions need.
  PageTable(std::uint32_t pages, std::uint32_t slots, std::uint64_t context);

  // Gives the slot the pages of its first `length` positions, of which those from `held` on are to be
  // written. Errors: kLimit where the pool has too few, even after on_shortage(); then nothing has changed.
  Result<std::optional<PageCopy>> reserve(std::uint32_t slot, std::uint64_t held, std::uint64_t length);
  // Gives back what lies beyond the slot's first `length` positions.
  void cut(std::uint32_t slot, std::uint64_t length);
  void release(std::uint32_t slot) { cut(slot, 0); }
  // Makes the slot `to`, which has no pages, have those of the first `length` positions of `from`, too.
  void share(std::uint32_t from, std::uint32_t to, std::uint64_t length);

  // Called with the slot that wants pages where none are free. Releases the pages of another and returns
  // true, or returns false: nobody can spare any.
  void on_shortage(std::function<bool(std::uint32_t slot)> spare) { spare_ = std::move(spare); }
  // The error of a reserve() that found no page.
  Error error(std::uint32_t slot) const;

  std::uint32_t page(std::uint32_t slot, std::uint64_t position) const {
    return entries_[slot * row_ + position / kPagePositions];
  }
  // A slot's pages in the order of positions, behind them numbers of pages that mean nothing: row_pages().
  std::span<const std::uint32_t> row(std::uint32_t slot) const {
    return std::span(entries_).subspan(slot * row_, row_);
  }
  std::uint32_t row_pages() const { return static_cast<std::uint32_t>(row_); }
  std::uint32_t pages() const { return static_cast<std::uint32_t>(users_.size()); }
  std::uint32_t free_pages() const { return static_cast<std::uint32_t>(free_.size()); }
  // Pages that the slot has.
  std::uint32_t count(std::uint32_t slot) const { return counts_.empty() ? 0 : counts_[slot]; }
  bool empty() const { return counts_.empty(); }
  // Whether the slot's row has changed since the last call: for those who keep a copy of it.
  bool take_changed(std::uint32_t slot) {
    return !empty() && std::exchange(changed_[slot], std::uint8_t{0}) != 0;
  }

 private:
  std::uint32_t take(std::uint32_t slot, std::size_t index);
  void give_back(std::uint32_t page);

  std::size_t row_ = 0;
  std::vector<std::uint32_t> entries_;  // [slot][row_]
  std::vector<std::uint32_t> counts_;   // by slot: entries that name pages of its own
  std::vector<std::uint8_t> changed_;   // by slot: a flag
  std::vector<std::uint32_t> users_;    // by page: slots that have it
  std::vector<std::uint32_t> free_;     // the next to be taken last
  std::function<bool(std::uint32_t)> spare_;
};

}  // namespace doppler
