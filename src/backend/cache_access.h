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
  // another size, kLimit for more than the context: then nothing changes; those of the device, after which
  // the slot is empty.
  virtual Status write(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> bytes) = 0;

 protected:
  virtual std::span<const KvLayer> layers() const = 0;
  virtual Status write_states(std::uint32_t slot, std::span<const std::byte> states) = 0;
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
  std::uint64_t in_slot = 0;   // where the run begins among the slot's bytes of the layer's part
  std::uint64_t in_bytes = 0;  // where it begins among the bytes of read()
  std::uint64_t count = 0;     // bytes
};
// Every run of a slot of `length` tokens, in the order of read()'s bytes; a slot's rows lie in the cache as
// [kv_head][position % capacity]. Stops at the first error.
Status for_each_run(std::span<const KvLayer> layers, KvType type, std::uint64_t length, std::uint64_t context,
                    std::uint32_t reach, const std::function<Status(const CacheRun& run)>& visit);

// The same for the states alone, whose bytes are those of read_states().
Status for_each_state(std::span<const KvLayer> layers,
                      const std::function<Status(const CacheRun& run)>& visit);
std::uint64_t state_bytes(std::span<const KvLayer> layers);

// The checks of every write(). Errors: those of CacheAccess::write.
Status check_cache_bytes(std::span<const KvLayer> layers, KvType type, std::uint64_t context,
                         std::uint64_t length, std::uint64_t bytes);

}  // namespace doppler
