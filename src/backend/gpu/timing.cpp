#include "backend/gpu/timing.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace doppler::gpu {
namespace {

// Encoding a dispatch takes the host about a microsecond and some memory.
constexpr std::uint64_t kMostDispatches = 20000;

Result<double> time_runs(Device& device, const std::function<void(Recorder&)>& record, std::uint64_t runs) {
  Recorder recorder(device);
  for (std::uint64_t i = 0; i < runs; ++i) record(recorder);
  DOPPLER_TRY(recorder.finish());
  const auto start = std::chrono::steady_clock::now();
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  DOPPLER_TRY(device.wait(submission));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<double> time_on_device(Device& device, std::uint64_t dispatches,
                              const std::function<void(Recorder&)>& record, double seconds) {
  DOPPLER_TRY(time_runs(device, record, 1));  // the first use of a kernel or a buffer is no measure
  DOPPLER_ASSIGN(const double once, time_runs(device, record, 1));
  if (once > seconds) return once;  // the host's share is small already
  const std::uint64_t most = kMostDispatches / std::max<std::uint64_t>(dispatches, 1);
  const auto runs = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(seconds / 3 / once), 2,
                                              std::max<std::uint64_t>(most, 2));
  std::array<double, 3> measured{};
  for (double& time : measured) {
    DOPPLER_ASSIGN(const double one, time_runs(device, record, 1));
    DOPPLER_ASSIGN(const double many, time_runs(device, record, 1 + runs));
    time = (many - one) / static_cast<double>(runs);
  }
  std::ranges::sort(measured);
  return std::max(measured[1], 1e-9);  // below what any clock here resolves
}

Result<double> time_each(Device& device, std::span<const FixedDispatch> dispatches, double seconds) {
  const auto record = [&](Recorder& recorder) {
    for (const FixedDispatch& dispatch : dispatches) recorder.dispatch(dispatch);
  };
  DOPPLER_ASSIGN(const double all, time_on_device(device, dispatches.size(), record, seconds));
  return all / static_cast<double>(dispatches.size());
}

}  // namespace doppler::gpu
