// Whether a device computes what it should: each kernel against plain loops, the whole model against the
// reference backend, and its tokens against those in other company.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/device_view.h"
#include "base/json_fwd.h"
#include "engine/loaded.h"

namespace doppler::bench {

struct KernelChecks {
  std::string model;
  std::optional<DeviceInfo> device;
  std::vector<KernelCheck> rows;  // kernels, then the whole model, then its tokens (same_tokens.h)

  std::size_t count(KernelCheck::Result result) const;
  bool right() const { return count(KernelCheck::Result::kWrong) == 0; }
};

// `loaded` on the backend to be checked. A backend without a device has no kernels to list; only its logits
// are compared. `loaded` may have another backend afterwards. Errors: those of running, on it and on the
// reference backend.
Result<KernelChecks> check_kernels(Loaded& loaded, const std::string& name);

Json to_json(const KernelChecks& checks);
std::string to_text(const KernelChecks& checks);

}  // namespace doppler::bench
