// The kernels of a decode step, each timed by itself and compared with the device's memory bandwidth.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/json_fwd.h"
#include "bench/measure.h"

namespace doppler::bench {

struct KernelTable {
  std::string model, backend;
  DeviceInfo device;
  std::uint64_t depth = 0;  // tokens in the cache before the step
  std::uint32_t sequences = 1;
  double read_bandwidth = 0;  // of the device, bytes per second
  std::vector<KernelTime> rows;
  double seconds() const;  // of all kernels
};

// Fills a slot for each of the sequences with `depth` tokens and one more, and times the kernels of that
// step. `yardstick_bytes`: how much memory the bandwidth measurement reads. Errors: kUnsupported where the
// backend runs no kernels on a device, or not as many sequences together.
Result<KernelTable> measure_kernels(Loaded& loaded, std::uint64_t depth, std::uint32_t sequences,
                                    std::uint64_t yardstick_bytes);

Json to_json(const KernelTable& table);
// For a terminal of `width` columns.
std::string to_text(const KernelTable& table, std::size_t width);

}  // namespace doppler::bench
