#include "backend/gpu/gpu_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/gpu/recorder.h"

namespace doppler::gpu {

std::uint64_t GpuCache::begin_of(const CacheRun& run, std::uint32_t slot) const {
  const KvLayer& kv = context_.plan.kv_layers[run.layer];
  if (run.part == CachePart::kConvState) return slot * kv.conv_values() * sizeof(float);
  if (run.part == CachePart::kState) return slot * kv.state * sizeof(float);
  const KvBuffers& buffers = context_.kv[run.layer];
  const std::uint64_t block = buffers.paged ? context_.pages.page(slot, run.position) : slot;
  return ((block * kv.kv_heads + run.kv_head) * buffers.capacity + run.position % buffers.capacity) *
         kv_row_bytes(*context_.options.kv_type, kv.head_dim);
}

const Buffer& GpuCache::buffer_of(const CacheRun& run) const {
  const KvBuffers& buffers = context_.kv[run.layer];
  switch (run.part) {
    case CachePart::kKeys:
      return buffers.keys;
    case CachePart::kValues:
      return buffers.values;
    case CachePart::kConvState:
      return buffers.conv_state;
    case CachePart::kState:
      break;
  }
  return buffers.state;
}

Status GpuCache::for_each_run(std::uint64_t length,
                              const std::function<Status(const CacheRun&)>& visit) const {
  return doppler::for_each_run(context_.plan.kv_layers, *context_.options.kv_type, length,
                               cache_extent(context_.options), visit);
}

Result<std::vector<std::byte>> GpuCache::read(std::uint32_t slot) {
  const auto total = cache_bytes(context_.plan.kv_layers, *context_.options.kv_type, lengths_[slot]);
  if (!total) return fail(ErrorCode::kLimit, "The sequence's cache exceeds 2^64 bytes.");
  std::vector<std::byte> bytes(*total);
  // The keys or the values of one layer at a time: in one submission, through one buffer.
  std::vector<CacheRun> runs;
  const auto fetch = [&]() -> Status {
    if (runs.empty()) return {};
    const std::uint64_t begin = runs.front().in_bytes,
                        count = runs.back().in_bytes + runs.back().count - begin;
    DOPPLER_ASSIGN(const Buffer back, context_.device->make_read_back("cache", count));
    Recorder recorder(*context_.device);
    for (const CacheRun& run : runs) {
      recorder.copy(buffer_of(run), begin_of(run, slot), back, run.in_bytes - begin, run.count);
    }
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
    runs.clear();
    return context_.device->read(back, count, submission, [&](std::span<const std::byte> from) {
      std::memcpy(&bytes[begin], from.data(), from.size());
    });
  };
  const auto collect = [&](const CacheRun& run) -> Status {
    Status fetched;
    if (!runs.empty() && (runs.back().layer != run.layer || runs.back().part != run.part)) fetched = fetch();
    runs.push_back(run);
    return fetched;
  };
  DOPPLER_TRY(for_each_run(lengths_[slot], collect));
  DOPPLER_TRY(fetch());
  return bytes;
}

Result<std::vector<std::byte>> GpuCache::read_states(std::uint32_t slot) {
  std::vector<std::byte> states(state_bytes(layers()));
  if (states.empty()) return states;
  DOPPLER_ASSIGN(const Buffer back, context_.device->make_read_back("states", states.size()));
  Recorder recorder(*context_.device);
  DOPPLER_TRY(for_each_state(layers(), [&](const CacheRun& run) -> Status {
    recorder.copy(buffer_of(run), begin_of(run, slot), back, run.in_bytes, run.count);
    return {};
  }));
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  DOPPLER_TRY(context_.device->read(back, states.size(), submission, [&](std::span<const std::byte> from) {
    std::memcpy(states.data(), from.data(), from.size());
  }));
  return states;
}

Status GpuCache::write_states(std::uint32_t slot, std::span<const std::byte> states) {
  return for_each_state(layers(), [&](const CacheRun& run) -> Status {
    return context_.device->write(buffer_of(run), begin_of(run, slot),
                                  states.subspan(run.in_bytes, run.count));
  });
}

// A buffer cannot be copied to itself, so each part goes through one of its own.
Status GpuCache::copy_unpaged(std::uint32_t from, std::uint32_t to) {
  std::vector<CacheRun> runs;
  std::uint64_t total = 0;
  DOPPLER_TRY(for_each_unpaged_run(layers(), *context_.options.kv_type, lengths_[from],
                                   cache_extent(context_.options), [&](const CacheRun& run) -> Status {
                                     runs.push_back(run);
                                     total = std::max(total, run.count);
                                     return {};
                                   }));
  if (runs.empty()) return {};
  DOPPLER_ASSIGN(const Buffer between, context_.device->make_buffer("a slot's copy", total));
  Recorder recorder(*context_.device);
  for (const CacheRun& run : runs) {
    recorder.copy(buffer_of(run), begin_of(run, from), between, 0, run.count);
    recorder.copy(between, 0, buffer_of(run), begin_of(run, to), run.count);
  }
  DOPPLER_TRY(recorder.submit());
  return {};
}

Status GpuCache::write(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> bytes) {
  DOPPLER_TRY(check_cache_bytes(context_.plan.kv_layers, *context_.options.kv_type, context_.options.context,
                                length, bytes.size()));
  lengths_.clear(slot);
  DOPPLER_TRY(context_.reserve(slot, 0, length));
  DOPPLER_TRY(for_each_run(length, [&](const CacheRun& run) -> Status {
    return context_.device->write(buffer_of(run), begin_of(run, slot),
                                  bytes.subspan(run.in_bytes, run.count));
  }));
  lengths_.fill(slot, length);
  return {};
}

}  // namespace doppler::gpu
