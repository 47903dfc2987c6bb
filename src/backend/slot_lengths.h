// SlotLengths: how many tokens each slot's cache holds, and how far it may be cut back. What a slot does not
// hold any more gives its pages back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/page_table.h"
#include "plan/plan.h"

namespace doppler {

class SlotLengths {
 public:
  SlotLengths(const std::vector<KvLayer>& layers, std::uint64_t context, std::uint32_t slots,
              std::uint32_t reach, PageTable& pages);

  std::uint64_t operator[](std::size_t slot) const { return lengths_[slot]; }
  std::size_t size() const { return lengths_.size(); }
  std::span<const std::uint64_t> all() const { return lengths_; }

  // Notes that a token was written at the end.
  void grow(std::size_t slot);
  void clear(std::size_t slot);
  // Notes that the slot holds `length` tokens of the `written` that are in its cache.
  void keep(std::size_t slot, std::uint64_t length, std::uint64_t written);
  // Notes that the cache was filled from outside with what a token at `length` attends to, and no more.
  void fill(std::size_t slot, std::uint64_t length);

  // Whether everything that a token at `length` attends to is still there: a ring overwrites what lies
  // further back than its capacity.
  bool can_cut(std::size_t slot, std::uint64_t length) const;
  // The same for what rings hold alone: states are put back by others.
  bool can_cut_rings(std::size_t slot, std::uint64_t length) const;
  // Only where one of them says so.
  void cut(std::size_t slot, std::uint64_t length) { set(slot, length); }

  // The pages of the slots, of which each has those of its tokens and perhaps some that were reserved.
  PageTable& pages() { return *pages_; }

 private:
  void set(std::size_t slot, std::uint64_t length);
  struct Ring {
    std::uint64_t window, capacity;
  };
  std::vector<Ring> rings_;  // of the layers with a window, each kind once
  bool recurrent_ = false;   // a layer keeps a state, which goes on and never back
  PageTable* pages_;
  std::vector<std::uint64_t> lengths_;
  std::vector<std::uint64_t> written_;  // one past the furthest position written since the slot was empty
  std::vector<std::uint64_t> filled_;   // the length that fill() gave: no cut goes below it
};

}  // namespace doppler
