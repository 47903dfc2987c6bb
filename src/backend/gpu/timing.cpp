#include "backend/gpu/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "backend/gpu/provider.h"

namespace doppler::gpu {
namespace {

// Encoding a dispatch takes the host about a microsecond and some memory.
constexpr std::uint64_t kMostDispatches = 20000;

// A query set holds 4096 moments at most.
constexpr std::size_t kMostPasses = 2048;

// Below what any clock here resolves: nothing takes no time.
constexpr double kLeastSeconds = 1e-9;

constexpr int kTimes = 3;  // times that a run is measured: the one in the middle counts

// Seconds of `runs` runs by the host's clock.
Result<double> time_on_host(Device& device, const std::function<void(Recorder&)>& record,
                            std::uint64_t runs) {
  Recorder recorder(device);
  for (std::uint64_t i = 0; i < runs; ++i) record(recorder);
  DOPPLER_TRY(recorder.finish());
  const auto start = std::chrono::steady_clock::now();
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  DOPPLER_TRY(device.wait(submission));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The device's own clock, which times passes.
class DeviceClock {
 public:
  static Result<DeviceClock> create(Device& device, std::size_t passes) {
    DeviceClock clock(device, passes);
    WGPUQuerySetDescriptor descriptor = WGPU_QUERY_SET_DESCRIPTOR_INIT;
    descriptor.type = WGPUQueryType_Timestamp;
    descriptor.count = static_cast<std::uint32_t>(2 * passes);
    clock.set_ = QuerySetHandle(wgpuDeviceCreateQuerySet(device.raw(), &descriptor));
    DOPPLER_TRY(device.check());
    DOPPLER_ASSIGN(clock.results_, device.make_query_results("times", clock.bytes()));
    DOPPLER_ASSIGN(clock.back_, device.make_read_back("times", clock.bytes()));
    return clock;
  }

  // Seconds of each pass, which `record` records by its number: some dispatches.
  Result<std::vector<double>> time(const std::function<void(Recorder&, std::size_t)>& record) {
    DOPPLER_ASSIGN(const std::vector<TimedPass> passes, moments(record));
    std::vector<double> seconds;
    for (const TimedPass& pass : passes) seconds.push_back(std::max(pass.end - pass.begin, kLeastSeconds));
    return seconds;
  }

  // When they began and ended, since the first one did.
  Result<std::vector<TimedPass>> moments(const std::function<void(Recorder&, std::size_t)>& record) {
    Recorder recorder(*device_);
    for (std::size_t i = 0; i < passes_; ++i) {
      recorder.time_pass(set_, static_cast<std::uint32_t>(2 * i));
      record(recorder, i);
    }
    recorder.resolve_times(set_, static_cast<std::uint32_t>(2 * passes_), results_);
    recorder.copy(results_, 0, back_, 0, bytes());
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
    std::vector<std::uint64_t> ticks(2 * passes_);
    DOPPLER_TRY(device_->read(back_, bytes(), submission, [&](std::span<const std::byte> from) {
      std::memcpy(ticks.data(), from.data(), from.size());
    }));
    const double tick = provider::timestamp_nanoseconds(device_->queue()) * 1e-9;
    const auto seconds = [&](std::uint64_t at) {
      return at > ticks[0] ? static_cast<double>(at - ticks[0]) * tick : 0.0;
    };
    std::vector<TimedPass> passes;
    for (std::size_t i = 0; i < ticks.size(); i += 2)
      passes.push_back({seconds(ticks[i]), seconds(ticks[i + 1])});
    return passes;
  }

 private:
  DeviceClock(Device& device, std::size_t passes) : device_(&device), passes_(passes) {}
  std::uint64_t bytes() const { return 2 * passes_ * sizeof(std::uint64_t); }
  Device* device_;
  std::size_t passes_;
  QuerySetHandle set_;
  Buffer results_, back_;
};

double middle(std::array<double, kTimes> measured) {
  std::ranges::sort(measured);
  return std::max(measured[kTimes / 2], kLeastSeconds);
}

Result<double> time_by_device(Device& device, std::uint64_t most_runs,
                              const std::function<void(Recorder&)>& record, double seconds) {
  DOPPLER_ASSIGN(DeviceClock clock, DeviceClock::create(device, 1));
  const auto time = [&](std::uint64_t runs) -> Result<double> {
    DOPPLER_ASSIGN(const std::vector<double> times, clock.time([&](Recorder& recorder, std::size_t) {
      for (std::uint64_t i = 0; i < runs; ++i) record(recorder);
    }));
    return times[0];
  };
  DOPPLER_TRY(time(1));  // the first use of a kernel or a buffer is no measure
  DOPPLER_ASSIGN(const double once, time(1));
  if (once > seconds) return once;
  const auto runs =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(seconds / kTimes / once), 1, most_runs);
  std::array<double, kTimes> measured{};
  for (double& one : measured) {
    DOPPLER_ASSIGN(one, time(runs));
    one /= static_cast<double>(runs);
  }
  return middle(measured);
}

Result<double> time_by_host(Device& device, std::uint64_t most_runs,
                            const std::function<void(Recorder&)>& record, double seconds) {
  DOPPLER_TRY(time_on_host(device, record, 1));
  DOPPLER_ASSIGN(const double once, time_on_host(device, record, 1));
  if (once > seconds) return once;  // the host's share is small already
  const double share = seconds / kTimes / std::max(once, kLeastSeconds);
  const auto runs =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 2, std::max<std::uint64_t>(most_runs, 2));
  std::array<double, kTimes> measured{};
  for (double& time : measured) {
    DOPPLER_ASSIGN(const double one, time_on_host(device, record, 1));
    DOPPLER_ASSIGN(const double many, time_on_host(device, record, 1 + runs));
    time = (many - one) / static_cast<double>(runs);
  }
  return middle(measured);
}

}  // namespace

Result<double> time_on_device(Device& device, std::uint64_t dispatches,
                              const std::function<void(Recorder&)>& record, double seconds) {
  const std::uint64_t most =
      std::max<std::uint64_t>(kMostDispatches / std::max<std::uint64_t>(dispatches, 1), 1);
  if (device.features().timestamps) return time_by_device(device, most, record, seconds);
  return time_by_host(device, most, record, seconds);
}

Result<double> time_each(Device& device, std::span<const FixedDispatch> dispatches, double seconds) {
  const auto record = [&](Recorder& recorder) {
    for (const FixedDispatch& dispatch : dispatches) recorder.dispatch(dispatch);
  };
  DOPPLER_ASSIGN(const double all, time_on_device(device, dispatches.size(), record, seconds));
  return all / static_cast<double>(dispatches.size());
}

Result<std::vector<double>> time_in_turns(Device& device, std::span<const std::vector<FixedDispatch>> lists,
                                          double seconds) {
  std::vector<double> best(lists.size(), HUGE_VAL);
  if (!device.features().timestamps) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      DOPPLER_ASSIGN(best[i], time_each(device, lists[i], seconds));
    }
    return best;
  }
  DOPPLER_ASSIGN(DeviceClock clock, DeviceClock::create(device, lists.size()));
  std::vector<std::uint64_t> runs(lists.size(), 1);
  for (int turn = 0; turn <= kTimes; ++turn) {
    DOPPLER_ASSIGN(const std::vector<double> times, clock.time([&](Recorder& recorder, std::size_t i) {
      for (std::uint64_t run = 0; run < runs[i]; ++run) {
        for (const FixedDispatch& dispatch : lists[i]) recorder.dispatch(dispatch);
      }
    }));
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const auto dispatches = static_cast<double>(std::max<std::size_t>(lists[i].size(), 1));
      // The first use of a kernel or a buffer is no measure, but tells how often a turn runs.
      if (turn > 0) best[i] = std::min(best[i], times[i] / static_cast<double>(runs[i]) / dispatches);
      if (turn == 0)
        runs[i] = std::clamp<std::uint64_t>(
            static_cast<std::uint64_t>(seconds / kTimes / times[i]), 1,
            std::max<std::uint64_t>(kMostDispatches / lists.size() / (lists[i].size() + 1), 1));
    }
  }
  return best;
}

Result<std::vector<TimedPass>> time_in_place(Device& device, std::span<const FixedDispatch> dispatches) {
  if (!device.features().timestamps)
    return fail(ErrorCode::kUnsupported, "The GPU {} has no clock that can be read.", device.adapter().name);
  if (dispatches.size() > kMostPasses)
    return fail(ErrorCode::kLimit, "{} dispatches are too many to be timed one by one.", dispatches.size());
  DOPPLER_ASSIGN(DeviceClock clock, DeviceClock::create(device, dispatches.size()));
  return clock.moments([&](Recorder& recorder, std::size_t i) { recorder.dispatch(dispatches[i]); });
}

}  // namespace doppler::gpu
