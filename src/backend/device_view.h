// DeviceView: properties and measurements of the device that a backend computes on, if it is not the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace doppler {

struct DeviceInfo {
  std::string name;    // "NVIDIA H200"
  std::string kind;    // "discrete", "integrated", "software", "unknown"
  std::string api;     // "Vulkan"
  std::string driver;  // "NVIDIA 580.159.04"
  bool software() const { return kind == "software"; }
  std::string describe() const;  // "NVIDIA H200 (Vulkan, driver NVIDIA 580.159.04)"
};

// Exact counts of the work that a backend has given its device so far.
struct DeviceCounters {
  std::uint64_t submits = 0, dispatches = 0;
  std::uint64_t read_backs = 0, read_back_bytes = 0;  // that the host has waited for
  std::uint64_t written_bytes = 0;
};

// One kernel of a step: all its calls together.
struct KernelTime {
  std::string what;    // the op that it computes, as VariantRow names it
  std::string kernel;  // "gemv.wgsl"
  std::uint64_t calls = 0;
  double seconds = 0;       // of all calls
  std::uint64_t bytes = 0;  // weights and cache that all calls read, as on the device; 0: activations only
};

// What became of one kernel that was run on inputs of its own and compared with plain loops on the CPU.
struct KernelCheck {
  enum class Result : std::uint8_t {
    kRight,
    kWrong,
    kNoCheck
  };  // kNoCheck: only the whole program covers it
  std::string what;    // as in KernelTime
  std::string kernel;  // the file and the values that were chosen
  Result result = Result::kRight;
  std::string difference;  // of a wrong one
};

class DeviceView {
 public:
  virtual ~DeviceView() = default;
  virtual DeviceInfo info() const = 0;
  virtual DeviceCounters counters() const = 0;
  // How fast the device reads its own memory: bytes per second, measured now over `bytes`, or over fewer
  // where it has less free memory; the first call allocates it.
  virtual Result<double> measure_read_bandwidth(std::uint64_t bytes) = 0;
  // Measures the kernels of a step of one token at the end of each of the sequences in slots
  // [0, sequences), as they continue by themselves, and forgets the sequences. Errors: kUsage without a
  // sequence there, kUnsupported for more than continue together.
  virtual Result<std::vector<KernelTime>> time_kernels(std::uint32_t sequences) = 0;
  // Runs every kernel of the backend's programs now, also those that passed when the model was loaded, and at
  // the end the program for single tokens, whose logits must be those of the batch program. Kernels that were
  // refused when the model was loaded are among them. Forgets slot 0's sequence.
  virtual Result<std::vector<KernelCheck>> check_kernels() = 0;
};

}  // namespace doppler
