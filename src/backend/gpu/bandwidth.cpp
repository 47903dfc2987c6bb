#include "backend/gpu/bandwidth.h"

#include <algorithm>

#include "backend/gpu/timing.h"

namespace doppler::gpu {
namespace {

// A workgroup reads 64 KiB: enough loads in flight, and 1 GiB takes 16384 workgroups of at most 65535.
constexpr std::uint32_t kLoopThreads = 256, kItems = 16;
constexpr std::uint64_t kGroupBytes = std::uint64_t{kLoopThreads} * kItems * 16;
constexpr std::uint64_t kLeastBytes = 16 << 20;

ShaderValues values(bool fill) {
  return {{"THREADS", kLoopThreads}, {"ITEMS", kItems}, {"FILL", fill ? 1 : 0}};
}

}  // namespace

std::uint32_t ReadBandwidth::groups() const {
  return static_cast<std::uint32_t>(bytes_ / kGroupBytes);
}

Result<ReadBandwidth> ReadBandwidth::create(Device& device, std::uint64_t bytes) {
  ReadBandwidth made(device);
  const Limits& limits = device.limits();
  bytes = std::min({std::max(bytes, kGroupBytes), limits.binding_bytes, limits.buffer_bytes - kGroupBytes,
                    limits.workgroups_per_dimension * kGroupBytes}) /
          kGroupBytes * kGroupBytes;
  Result<Buffer> data = device.make_buffer("bandwidth", bytes);
  while (!data && data.error().code == ErrorCode::kLimit && bytes / 2 >= kLeastBytes) {
    bytes = bytes / 2 / kGroupBytes * kGroupBytes;
    data = device.make_buffer("bandwidth", bytes);
  }
  if (!data) return std::unexpected(std::move(data).error());
  made.bytes_ = bytes;
  DOPPLER_TRY(made.fill(*data));
  DOPPLER_ASSIGN(const Buffer out, device.make_buffer("bandwidth result", 16));
  DOPPLER_ASSIGN(auto kernel, Kernel::create(device, "bandwidth.wgsl", values(false)));
  DOPPLER_ASSIGN(made.read_, BoundKernel::create(device, std::move(kernel), {{"data", *data}, {"out", out}}));
  return made;
}

Status ReadBandwidth::fill(const Buffer& data) {
  DOPPLER_ASSIGN(auto kernel, Kernel::create(*device_, "bandwidth.wgsl", values(true)));
  DOPPLER_ASSIGN(const BoundKernel bound, BoundKernel::create(*device_, std::move(kernel), {{"data", data}}));
  Recorder recorder(*device_);
  recorder.dispatch(bound, {groups(), 1, 1});
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  return device_->wait(submission);
}

Result<double> ReadBandwidth::measure() {
  DOPPLER_ASSIGN(const double seconds,
                 time_on_device(*device_, 1, [&](Recorder& r) { r.dispatch(dispatch()); }));
  return static_cast<double>(bytes_) / seconds;
}

}  // namespace doppler::gpu
