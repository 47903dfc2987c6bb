#include "backend/gpu/provider.h"

#include <fmt/format.h>
#include <wgpu.h>

#include "backend/gpu/long_wait.h"
#include "system/process.h"

namespace doppler::gpu::provider {
namespace {

// Mesa's device-select layer asks the desktop which GPU it draws with, each time adapters are listed; without
// a desktop, libwayland-client then prints "error: XDG_RUNTIME_DIR is invalid or not set" on stderr, four
// times. Doppler ranks adapters itself, so there the layer is left out, by the variable that its manifest
// names, unless the user has configured the layer.
void leave_out_device_selection() {
  if (!system::environment_variable("XDG_RUNTIME_DIR") &&
      !system::environment_variable("MESA_VK_DEVICE_SELECT"))
    system::set_environment_default("NODEVICE_SELECT", "1");
}

// The major version that the headers are of, and what providers/tensor-cores calls itself: wgpu 29.0.4, and
// its own number from 0xD1 on, which wgpu-native's builds are far from.
constexpr std::uint32_t kHeaders = 29, kOurs = 0x1d0004d1, kOurFirst = 0xd1;

bool is_ours() {
  return (wgpuGetVersion() & 255) >= kOurFirst;
}

WGPUInstance create_instance() {
  if (!wrong_version().empty()) return nullptr;
  leave_out_device_selection();
  WGPUInstanceExtras extras = {};
  extras.chain.sType = static_cast<WGPUSType>(WGPUSType_InstanceExtras);
  extras.backends = WGPUInstanceBackend_Vulkan | WGPUInstanceBackend_Metal | WGPUInstanceBackend_DX12;
  // Without the library's own log: errors reach the device's callbacks anyway.
  wgpuSetLogLevel(WGPULogLevel_Off);
  WGPUInstanceDescriptor descriptor = WGPU_INSTANCE_DESCRIPTOR_INIT;
  descriptor.nextInChain = &extras.chain;
  return wgpuCreateInstance(&descriptor);
}

}  // namespace

WGPUInstance instance() {
  static WGPUInstance const made = create_instance();
  return made;
}

std::vector<WGPUAdapter> list_adapters() {
  if (instance() == nullptr) return {};
  WGPUInstanceEnumerateAdapterOptions options = {};
  options.backends = WGPUInstanceBackend_Vulkan | WGPUInstanceBackend_Metal | WGPUInstanceBackend_DX12;
  std::vector<WGPUAdapter> adapters(wgpuInstanceEnumerateAdapters(instance(), &options, nullptr));
  if (!adapters.empty()) wgpuInstanceEnumerateAdapters(instance(), &options, adapters.data());
  return adapters;
}

std::string why_no_adapter() {
  return "Install the GPU's Vulkan driver, or use --backend cpu.";
}

WGPUFeatureName subgroup_feature() {
  return static_cast<WGPUFeatureName>(WGPUNativeFeature_Subgroup);
}

std::string_view subgroup_prelude() {
  return "";  // the standard's "enable subgroups;" is refused
}

WGPUFeatureName tiles_feature() {
  // wgpu-native lists it, but refuses devices that ask for it: an experiment, for which it has no switch.
  return is_ours() ? static_cast<WGPUFeatureName>(WGPUNativeFeature_CooperativeMatrix) : WGPUFeatureName{};
}

bool proves_barriers() {
  return false;
}

bool maps_new_buffers() {
  return true;
}

std::size_t threads_for_calls(std::size_t wanted) {
  return wanted;
}

WGPUShaderModule create_shader_module(WGPUDevice device, const WGPUShaderModuleDescriptor& descriptor,
                                      bool checked) {
  if (checked) return wgpuDeviceCreateShaderModule(device, &descriptor);
  return wgpuDeviceCreateShaderModuleTrusted(device, &descriptor, WGPUShaderRuntimeChecks_None);
}

std::uint64_t submit(WGPUQueue queue, WGPUCommandBuffer commands) {
  return wgpuQueueSubmitForIndex(queue, 1, &commands);
}

void wait(WGPUDevice device, std::uint64_t submission) {
  const LongWait waiting;
  const WGPUSubmissionIndex index = submission;
  wgpuDevicePoll(device, true, &index);
}

void wait_all(WGPUDevice device) {
  const LongWait waiting;
  wgpuDevicePoll(device, true, nullptr);
}

void settle(WGPUDevice) {}

void poll(WGPUDevice device) {
  wgpuDevicePoll(device, false, nullptr);
}

double timestamp_nanoseconds(WGPUQueue queue) {
  return wgpuQueueGetTimestampPeriod(queue);
}

std::string version() {
  const std::uint32_t v = wgpuGetVersion();
  if (is_ours()) return fmt::format("wgpu {}.{}.{} with tensor cores", v >> 24, v >> 16 & 255, v >> 8 & 255);
  return fmt::format("wgpu-native {}.{}.{}.{}", v >> 24, v >> 16 & 255, v >> 8 & 255, v & 255);
}

std::string wrong_version() {
  if (wgpuGetVersion() >> 24 == kHeaders && (!is_ours() || wgpuGetVersion() == kOurs)) return {};
  return fmt::format(
      "The WebGPU library beside the program is {}, but the program is made for wgpu-native {} "
      "or for wgpu 29.0.4 with tensor cores. Run scripts/install_webgpu.sh and build again.",
      version(), kHeaders);
}

}  // namespace doppler::gpu::provider
