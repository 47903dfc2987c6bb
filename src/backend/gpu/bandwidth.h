// ReadBandwidth: how fast a GPU reads its own memory, the bound that kernels are compared with.
#pragma once

#include "backend/gpu/device.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/recorder.h"

namespace doppler::gpu {

class ReadBandwidth {
 public:
  // Takes `bytes` of the device's memory, or less where a binding or the memory is too small. Errors: kLimit
  // where not even 16 MiB are left.
  static Result<ReadBandwidth> create(Device& device, std::uint64_t bytes);

  // Reads all of it several times: bytes per second.
  Result<double> measure();
  std::uint64_t bytes() const { return bytes_; }
  // Reads all of it once.
  FixedDispatch dispatch() const { return {read_, {groups(), 1, 1}}; }

 private:
  explicit ReadBandwidth(Device& device) : device_(&device) {}
  Status fill(const Buffer& data);
  std::uint32_t groups() const;

  Device* device_;
  BoundKernel read_;
  std::uint64_t bytes_ = 0;
};

}  // namespace doppler::gpu
