#include "backend/host_cache.h"

#include <cstring>

#include "base/text.h"
#include "system/memory.h"

namespace doppler {

std::uint8_t* HostCache::bytes_of(const CacheRun& run, std::uint32_t slot) {
  switch (run.part) {
    case CachePart::kKeys:
      return cache_.key(run.layer, slot, run.kv_head, run.position);
    case CachePart::kValues:
      return cache_.value(run.layer, slot, run.kv_head, run.position);
    case CachePart::kConvState:
      return reinterpret_cast<std::uint8_t*>(cache_.conv_state(run.layer, slot));
    case CachePart::kState:
      break;
  }
  return reinterpret_cast<std::uint8_t*>(cache_.state(run.layer, slot));
}

Result<std::vector<std::byte>> HostCache::read(std::uint32_t slot) {
  const auto total = cache_bytes(plan_.kv_layers, cache_.type(), lengths_[slot]);
  if (const std::uint64_t available = system::available_memory(); !total || *total > available) {
    return fail(ErrorCode::kLimit, "A copy of the sequence's cache needs {}, but the machine has {} left.",
                human_bytes(total.value_or(UINT64_MAX)), human_bytes(available));
  }
  std::vector<std::byte> bytes(*total);
  DOPPLER_TRY(for_each_run(plan_.kv_layers, cache_.type(), lengths_[slot], cache_extent(options_),
                           [&](const CacheRun& run) -> Status {
                             std::memcpy(&bytes[run.in_bytes], bytes_of(run, slot), run.count);
                             return {};
                           }));
  return bytes;
}

Result<std::vector<std::byte>> HostCache::read_states(std::uint32_t slot) {
  std::vector<std::byte> states(state_bytes(layers()));
  DOPPLER_TRY(for_each_state(layers(), [&](const CacheRun& run) -> Status {
    std::memcpy(&states[run.in_bytes], bytes_of(run, slot), run.count);
    return {};
  }));
  return states;
}

Status HostCache::write_states(std::uint32_t slot, std::span<const std::byte> states) {
  return for_each_state(layers(), [&](const CacheRun& run) -> Status {
    std::memcpy(bytes_of(run, slot), &states[run.in_bytes], run.count);
    return {};
  });
}

Status HostCache::copy_unpaged(std::uint32_t from, std::uint32_t to) {
  return for_each_unpaged_run(layers(), cache_.type(), lengths_[from], cache_extent(options_),
                              [&](const CacheRun& run) -> Status {
                                std::memcpy(bytes_of(run, to), bytes_of(run, from), run.count);
                                return {};
                              });
}

Status HostCache::write(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> bytes) {
  DOPPLER_TRY(check_cache_bytes(plan_.kv_layers, cache_.type(), options_.context, length, bytes.size()));
  lengths_.clear(slot);
  DOPPLER_TRY(cache_.pages().reserve(slot, 0, length));
  DOPPLER_TRY(for_each_run(plan_.kv_layers, cache_.type(), length, cache_extent(options_),
                           [&](const CacheRun& run) -> Status {
                             std::memcpy(bytes_of(run, slot), &bytes[run.in_bytes], run.count);
                             return {};
                           }));
  lengths_.fill(slot, length);
  return {};
}

}  // namespace doppler
