// A report on WebGPU on this machine, for people. It can also be asked for in a program without GPU support.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu/adapter.h"
#include "base/result.h"

namespace doppler {

struct GpuReport {
  gpu::AdapterInfo adapter;
  gpu::Features features;
  gpu::Limits limits;
  std::string problem;  // why it cannot be opened; features and limits are then empty
};

// Every adapter in the order in which GpuOptions::adapter counts them, opened for a moment. Errors:
// kUnsupported in a program without GPU support.
Result<std::vector<GpuReport>> report_gpus();

// "wgpu-native 29.0.1.1", or empty.
std::string gpu_library();

DeviceInfo info_of(const gpu::AdapterInfo& adapter);

}  // namespace doppler
