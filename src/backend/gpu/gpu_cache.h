// GpuCache: CacheAccess for the cache on the device. Not to be used while a sequence is being continued.
#pragma once

#include "backend/cache_access.h"
#include "backend/gpu/context.h"
#include "backend/slot_lengths.h"

namespace doppler::gpu {

class GpuCache final : public CacheAccess {
 public:
  // Both belong to the backend and outlive this.
  GpuCache(Context& context, SlotLengths& lengths) : CacheAccess(lengths), context_(context) {}

  Result<std::vector<std::byte>> read(std::uint32_t slot) override;
  Status write(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> bytes) override;
  Result<std::vector<std::byte>> read_states(std::uint32_t slot) override;

 private:
  std::span<const KvLayer> layers() const override { return context_.plan.kv_layers; }
  Status write_states(std::uint32_t slot, std::span<const std::byte> states) override;
  Status copy_unpaged(std::uint32_t from, std::uint32_t to) override;
  // Offset of a run's first byte in the buffer of its layer's part.
  std::uint64_t begin_of(const CacheRun& run, std::uint32_t slot) const;
  const Buffer& buffer_of(const CacheRun& run) const;
  Status for_each_run(std::uint64_t length, const std::function<Status(const CacheRun&)>& visit) const;
  Context& context_;
};

}  // namespace doppler::gpu
