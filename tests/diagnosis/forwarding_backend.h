// A backend that leaves everything to another one, for tests that change one thing of it.
#pragma once

#include "backend/backend.h"

namespace doppler::testing {

class ForwardingBackend : public Backend {
 public:
  // It must outlive this.
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}
  std::string_view name() const override { return inner_.name(); }
  const Plan& plan() const override { return inner_.plan(); }
  const BackendOptions& options() const override { return inner_.options(); }
  Precision precision() const override { return inner_.precision(); }
  std::uint64_t length(std::uint32_t slot) const override { return inner_.length(slot); }
  void clear(std::uint32_t slot) override { inner_.clear(slot); }
  MemoryUse memory() const override { return inner_.memory(); }
  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    return inner_.step(input, tap);
  }

 private:
  Backend& inner_;
};

}  // namespace doppler::testing
