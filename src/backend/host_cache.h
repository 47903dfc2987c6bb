// HostCache: CacheAccess for backends whose cache is a KvCache in the host's memory.
#pragma once

#include "backend/backend.h"
#include "backend/kv_cache.h"
#include "backend/slot_lengths.h"

namespace doppler {

class HostCache final : public CacheAccess {
 public:
  // All of them belong to the backend and outlive this.
  HostCache(const Plan& plan, const BackendOptions& options, KvCache& cache, SlotLengths& lengths)
      : CacheAccess(lengths), plan_(plan), options_(options), cache_(cache) {}

  Result<std::vector<std::byte>> read(std::uint32_t slot) override;
  Status write(std::uint32_t slot, std::uint64_t length, std::span<const std::byte> bytes) override;
  Result<std::vector<std::byte>> read_states(std::uint32_t slot) override;

 private:
  std::span<const KvLayer> layers() const override { return plan_.kv_layers; }
  Status write_states(std::uint32_t slot, std::span<const std::byte> states) override;
  Status copy_unpaged(std::uint32_t from, std::uint32_t to) override;
  std::uint8_t* bytes_of(const CacheRun& run, std::uint32_t slot);
  const Plan& plan_;
  const BackendOptions& options_;
  KvCache& cache_;
};

}  // namespace doppler
