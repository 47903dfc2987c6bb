// A backend that shows every step to one more tap, so that code that drives a backend with its own tap
// (record, compare) need not know about probes and traces.
#pragma once

#include "backend/backend.h"
#include "backend/tap_list.h"

namespace doppler::diagnosis {

class TappedBackend final : public Backend {
 public:
  // Both must outlive this; `besides` may be null.
  TappedBackend(Backend& inner, Tap* besides) : inner_(inner), besides_(besides) {}

  std::string_view name() const override { return inner_.name(); }
  const Plan& plan() const override { return inner_.plan(); }
  const BackendOptions& options() const override { return inner_.options(); }
  Precision precision() const override { return inner_.precision(); }
  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    inner_.observe(observer());
    TapList taps;
    return inner_.step(input, taps.add(tap).add(besides_).get());
  }
  CacheAccess* cache() override { return inner_.cache(); }
  DeviceView* device() override { return inner_.device(); }
  Result<std::vector<VariantRow>> describe() override { return inner_.describe(); }
  std::uint64_t length(std::uint32_t slot) const override { return inner_.length(slot); }
  void clear(std::uint32_t slot) override { inner_.clear(slot); }
  MemoryUse memory() const override { return inner_.memory(); }

 private:
  Backend& inner_;
  Tap* const besides_;
};

}  // namespace doppler::diagnosis
