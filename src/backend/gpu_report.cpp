#include "backend/gpu_report.h"

#if DOPPLER_GPU
#include "backend/gpu/device.h"
#include "backend/gpu/provider.h"
#endif

namespace doppler {

DeviceInfo info_of(const gpu::AdapterInfo& adapter) {
  return {.name = adapter.name, .kind = adapter.kind, .api = adapter.api, .driver = adapter.driver};
}

#if DOPPLER_GPU

Result<std::vector<GpuReport>> report_gpus() {
  std::vector<GpuReport> reports;
  for (gpu::AdapterInfo& adapter : gpu::list_adapters()) {
    GpuReport report{.adapter = std::move(adapter), .features = {}, .limits = {}, .problem = {}};
    if (const auto device = gpu::Device::open({.adapter = std::to_string(reports.size())})) {
      report.features = (*device)->features();
      report.limits = (*device)->limits();
    } else {
      report.problem = device.error().message;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string gpu_library() {
  return gpu::provider::version();
}

#else

Result<std::vector<GpuReport>> report_gpus() {
  return std::unexpected(no_gpu_support());
}

std::string gpu_library() {
  return {};
}

#endif

}  // namespace doppler
