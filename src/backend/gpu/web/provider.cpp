#include "backend/gpu/provider.h"

#include <fmt/format.h>

#include "backend/gpu/web/imports.h"
#include "backend/gpu/web/objects.h"

namespace doppler::gpu::provider {
namespace {

// Enough for every feature and limit that there is.
constexpr std::size_t kTextBytes = 16 << 10;

Json describe(web::Number adapter) {
  std::string text(kTextBytes, '\0');
  text.resize(std::min(web::describe_adapter(adapter, text.data(), text.size()), text.size()));
  auto facts = parse_json(text, "The description of the GPU");
  return facts && facts->is_object() ? std::move(*facts) : Json::object();
}

}  // namespace

WGPUInstance instance() {
  static int there;
  return reinterpret_cast<WGPUInstance>(&there);
}

std::vector<WGPUAdapter> list_adapters() {
  const web::Number number = web::request_adapter();
  if (number == 0) return {};
  auto* const adapter = new WGPUAdapterImpl(number);
  adapter->facts = describe(number);
  adapter->name = fmt::format("{} {}", adapter->facts.value("vendor", "unknown"),
                              adapter->facts.value("architecture", ""));
  return {adapter};
}

std::string why_no_adapter() {
  char why[500];
  const std::size_t size = web::missing(why, sizeof(why));
  if (size == 0) return "The browser offers no GPU on this device.";
  return std::string(why, std::min(size, sizeof(why)));
}

WGPUFeatureName subgroup_feature() {
  return WGPUFeatureName_Subgroups;
}

std::string_view subgroup_prelude() {
  // What the browser does not follow from a loop's bounds, but holds: lanes of a subgroup stay together.
  return "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
}

// Browsers have subgroup matrices as an experiment only.
WGPUFeatureName tiles_feature() {
  return WGPUFeatureName{};
}

bool proves_barriers() {
  return true;
}

bool maps_new_buffers() {
  return false;
}

std::size_t threads_for_calls(std::size_t) {
  return 1;  // the page's objects belong to the first
}

WGPUShaderModule create_shader_module(WGPUDevice device, const WGPUShaderModuleDescriptor& descriptor, bool) {
  return wgpuDeviceCreateShaderModule(device, &descriptor);
}

std::uint64_t submit(WGPUQueue queue, WGPUCommandBuffer commands) {
  return web::submit(queue->device->number, commands->number);
}

void wait(WGPUDevice device, std::uint64_t submission) {
  web::settle_device(device, static_cast<std::uint32_t>(submission));
}

void wait_all(WGPUDevice device) {
  web::settle_device(device, web::kEverything);
}

void settle(WGPUDevice device) {
  web::settle_device(device, 0);
}

void poll(WGPUDevice) {}

double timestamp_nanoseconds(WGPUQueue) {
  return 1;
}

std::string version() {
  return "the browser's WebGPU";
}

std::string wrong_version() {
  return {};
}

}  // namespace doppler::gpu::provider
