// How long dispatches take on the device: many of them in one submission, so that what the host and the queue
// cost disappears in the difference.
#pragma once

#include <functional>
#include <span>

#include "backend/gpu/device.h"
#include "backend/gpu/recorder.h"

namespace doppler::gpu {

// Seconds of one run of what `record` records, about `seconds` of measuring in all: the difference between a
// submission with many runs and one with a single run. `dispatches` is how many one run has.
Result<double> time_on_device(Device& device, std::uint64_t dispatches,
                              const std::function<void(Recorder&)>& record, double seconds = 0.02);

// The mean seconds of one of `dispatches`, which run one after the other.
Result<double> time_each(Device& device, std::span<const FixedDispatch> dispatches, double seconds = 0.02);

}  // namespace doppler::gpu
