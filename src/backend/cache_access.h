// CacheAccess: cutting a backend's cache back, reading it out and filling it, so that sequences can be forked
// and kept in files. The bytes are the same for every backend: layer after layer, keys before values, head
// after head, position after position, each a row of kv_row_bytes(); of a layer with a window only the
// positions that the next token attends to. Then the layer's convolution state and its recurrent state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/cache_extent.h"
#include "backend/kv_type.h"
#include "backend/slot_lengths.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

class CacheAccess {
 public:
  // The backend's, which outlive this.
  explicit CacheAccess(SlotLengths& lengths) : lengths_(lengths) {}
  virtual ~CacheAccess() = default;
  // Whether the slot can go back to its first `length` tokens: not where a sliding window's ring has
  // overwritten what these need, and not where a recurrent layer's state has gone on.
  bool can_cut(std::uint32_t slot, std::uint64_t length) const { return lengths_.can_cut(slot, length); }
  // Errors: kUsage where can_cut() is false.
  Status cut(std::uint32_t slot, std::uint64_t length);
  // The states of recurrent layers as they are now, to come back to. Errors: those of read().
  virtual Result<std::vector<std::byte>> read_states(std::uint32_t slot) = 0;
  // Whether the slot can go back to its first `length` tokens if its states are put back.
  bool can_cut_with_states(std::uint32_t slot, std::uint64_t length) const {
    return lengths_.can_cut_rings(slot, length);
  }
  // Goes back to the first `length` tokens with the states that read_states() gave when there were no more.
  // Errors: kUsage where can_cut_with_states() is false, kMismatch for bytes of another size: then nothing
  // changes; those of the device, after which the slot is empty.
  Status cut_with_states(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> states);
  // The keys and values of a slot's tokens. Errors: kLimit when memory is short; those of the device.
  virtual Result<std::vector<std::byte>> read(std::uint32_t slot) = 0;
  // Makes a slot hold `length` tokens, whose keys and values read() returned. Errors: kMismatch for bytes of
  // another size, kLimit for more than the context: then nothing changes; kLimit where the slots have no
  // pages left for them, and those of the device, after which the slot is empty.
  virtual Status write(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> bytes) = 0;
  // Makes the slot `to` hold the tokens of `from`; the pages of both are the same until one goes on. Errors:
  // those of the device, after which `to` is empty.
  Status share(std::uint32_t from, std::uint32_t to);

  // The error of a sequence that found no room among the others.
  Error no_room(std::uint32_t slot) const { return lengths_.pages().error(slot); }
  // Called with the slot that wants room where pages ran out: clears a slot that can do without its cache and
  // returns true, or returns false.
  void on_shortage(std::function<bool(std::uint32_t slot)> spare) {
    lengths_.pages().on_shortage(std::move(spare));
  }

 protected:
  virtual std::span<const KvLayer> layers() const = 0;
  virtual Status write_states(std::uint32_t slot, std::span<const std::byte> states) = 0;
  // Copies what lies in no page: rings and states.
  virtual Status copy_unpaged(std::uint32_t from, std::uint32_t to) = 0;
  SlotLengths& lengths_;
};

// Bytes of read() for so many tokens; nothing if they overflow.
std::optional<std::uint64_t> cache_bytes(std::span<const KvLayer> layers, KvType type, std::uint64_t length);

enum class CachePart : std::uint8_t { kKeys, kValues, kConvState, kState };

// Some positions of one head, or a whole state, that lie side by side both in the cache and in the bytes of
// read().
struct CacheRun {
  std::size_t layer = 0;
  CachePart part = CachePart::kKeys;
  std::uint32_t kv_head = 0;
  std::uint64_t position = 0;  // the first
  std::uint64_t in_bytes = 0;  // where the run begins among the bytes of read()
  std::uint64_t count = 0;     // bytes
};
// Every run of a slot of `length` tokens, in the order of read()'s bytes. Stops at the first error.
Status for_each_run(std::span<const KvLayer> layers, KvType type, std::uint64_t length,
                    const CacheExtent& extent, const std::function<Status(const CacheRun& run)>& visit);
// The same for what lies in no page.
Status for_each_unpaged_run(std::span<const KvLayer> layers, KvType type, std::uint64_t length,
                            const CacheExtent& extent,
                            const std::function<Status(const CacheRun& run)>& visit);

// The same for the states alone, whose bytes are those of read_states().
Status for_each_state(std::span<const KvLayer> layers,
                      const std::function<Status(const CacheRun& run)>& visit);
std::uint64_t state_bytes(std::span<const KvLayer> layers);

// The checks of every write(). Errors: those of CacheAccess::write.
Status check_cache_bytes(std::span<const KvLayer> layers, KvType type, std::uint64_t context,
                         std::uint64_t length, std::uint64_t bytes);

}  // namespace doppler
