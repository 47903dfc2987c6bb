// How long dispatches take on the device: by the device's own clock, where it has one; else many of them in
// one submission, so that what the host and the queue cost disappears in the difference.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/recorder.h"

namespace doppler::gpu {

// Seconds of one run of the dispatches that `record` records, about `seconds` of measuring in all. Without a
// clock on the device it is the difference between a submission with many runs and one with a single run,
// which swings by some tenths of a millisecond. `dispatches` is how many one run has.
Result<double> time_on_device(Device& device, std::uint64_t dispatches,
                              const std::function<void(Recorder&)>& record, double seconds = 0.02);

// The mean seconds of one of `dispatches`, which run one after the other.
Result<double> time_each(Device& device, std::span<const FixedDispatch> dispatches, double seconds = 0.02);

// The mean seconds of one dispatch of each list. The lists take turns, and of each the best turn counts, so
// that a clock that rises meanwhile does not decide. About `seconds` of measuring each.
Result<std::vector<double>> time_in_turns(Device& device, std::span<const std::vector<FixedDispatch>> lists,
                                          double seconds = 0.02);

// When each of the dispatches began and ended, in seconds since the first one did: each in a pass of its own,
// in their order, in one submission. Errors: kUnsupported without a clock on the device.
struct TimedPass {
  double begin = 0, end = 0;
};
Result<std::vector<TimedPass>> time_in_place(Device& device, std::span<const FixedDispatch> dispatches);

}  // namespace doppler::gpu
