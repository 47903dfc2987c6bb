// The functions of webgpu.h that the backend calls, over the page's WebGPU. Structures are read here, where
// the compiler knows them; what JavaScript is handed are numbers and texts.
#include <webgpu.h>

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/handle.h"
#include "backend/gpu/web/imports.h"
#include "backend/gpu/web/objects.h"
#include "base/json.h"

namespace web = doppler::gpu::web;
using doppler::gpu::view_of;

namespace {

// Writes that are not done yet lie in the browser's memory a second time.
constexpr std::uint64_t kMostUnsettledBytes = 64 << 20;

// So many characters of an error are told.
constexpr std::size_t kErrorBytes = 2000;

template <typename T>
T* made(web::Number number) {
  return number == 0 ? nullptr : new T(number);
}

// What the command buffer still needs lives as long as it.
template <typename T>
void keep(web::Kept& kept, T* object) {
  if (object == nullptr) return;
  ++object->references;
  kept.emplace_back(object, [](web::Object* raw) { web::let_go(static_cast<T*>(raw)); });
}

struct LimitName {
  const char* name;
  std::uint32_t WGPULimits::* small = nullptr;
  std::uint64_t WGPULimits::* large = nullptr;
};
constexpr LimitName kLimits[] = {
    {.name = "maxBufferSize", .large = &WGPULimits::maxBufferSize},
    {.name = "maxStorageBufferBindingSize", .large = &WGPULimits::maxStorageBufferBindingSize},
    {.name = "minStorageBufferOffsetAlignment", .small = &WGPULimits::minStorageBufferOffsetAlignment},
    {.name = "maxComputeWorkgroupStorageSize", .small = &WGPULimits::maxComputeWorkgroupStorageSize},
    {.name = "maxComputeInvocationsPerWorkgroup", .small = &WGPULimits::maxComputeInvocationsPerWorkgroup},
    {.name = "maxComputeWorkgroupSizeX", .small = &WGPULimits::maxComputeWorkgroupSizeX},
    {.name = "maxComputeWorkgroupsPerDimension", .small = &WGPULimits::maxComputeWorkgroupsPerDimension},
    {.name = "maxStorageBuffersPerShaderStage", .small = &WGPULimits::maxStorageBuffersPerShaderStage},
};

struct FeatureName {
  WGPUFeatureName feature;
  const char* name;
};
// Not the timestamps of passes, which browsers round to what kernels take.
constexpr FeatureName kFeatures[] = {{WGPUFeatureName_ShaderF16, "shader-f16"},
                                     {WGPUFeatureName_Subgroups, "subgroups"}};

const char* name_of(WGPUFeatureName feature) {
  for (const FeatureName& known : kFeatures) {
    if (known.feature == feature) return known.name;
  }
  return "";
}

WGPUStringView text_of(const doppler::Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return view_of(std::string_view());
  return view_of(std::string_view(found->get_ref<const std::string&>()));
}

}  // namespace

namespace doppler::gpu::web {

void tell_errors(WGPUDevice device) {
  char text[kErrorBytes];
  while (const std::uint32_t type = next_error(text, sizeof(text))) {
    const WGPUStringView message{text, WGPU_STRLEN};
    if (type == kLost) {
      const auto& lost = device->lost;
      lost.callback(&device, WGPUDeviceLostReason_Unknown, message, lost.userdata1, lost.userdata2);
    } else {
      const auto& error = device->error;
      error.callback(&device, static_cast<WGPUErrorType>(type), message, error.userdata1, error.userdata2);
    }
  }
}

void settle_device(WGPUDevice device, std::uint32_t submission) {
  settle(device->number, submission);
  ++device->settled;
  if (submission == kEverything) device->unsettled_bytes = 0;
  tell_errors(device);
}

}  // namespace doppler::gpu::web

#define DOPPLER_REFERENCES(Type)                \
  void wgpu##Type##AddRef(WGPU##Type object) {  \
    ++object->references;                       \
  }                                             \
  void wgpu##Type##Release(WGPU##Type object) { \
    web::let_go(object);                        \
  }

extern "C" {

DOPPLER_REFERENCES(Adapter)
DOPPLER_REFERENCES(Device)
DOPPLER_REFERENCES(Queue)
DOPPLER_REFERENCES(Buffer)
DOPPLER_REFERENCES(ShaderModule)
DOPPLER_REFERENCES(ComputePipeline)
DOPPLER_REFERENCES(PipelineLayout)
DOPPLER_REFERENCES(BindGroupLayout)
DOPPLER_REFERENCES(BindGroup)
DOPPLER_REFERENCES(CommandEncoder)
DOPPLER_REFERENCES(ComputePassEncoder)
DOPPLER_REFERENCES(QuerySet)
DOPPLER_REFERENCES(CommandBuffer)

// --- adapters and devices

WGPUStatus wgpuAdapterGetInfo(WGPUAdapter adapter, WGPUAdapterInfo* info) {
  const doppler::Json& facts = adapter->facts;
  info->vendor = text_of(facts, "vendor");
  info->architecture = text_of(facts, "architecture");
  info->device = text_of(facts, "device");
  if (info->device.length == 0) info->device = view_of(std::string_view(adapter->name));
  info->description = text_of(facts, "description");
  info->backendType = WGPUBackendType_WebGPU;
  info->adapterType = facts.value("software", false) ? WGPUAdapterType_CPU : WGPUAdapterType_Unknown;
  return WGPUStatus_Success;
}

void wgpuAdapterInfoFreeMembers(WGPUAdapterInfo) {}  // they are the adapter's

WGPUStatus wgpuAdapterGetLimits(WGPUAdapter adapter, WGPULimits* limits) {
  const doppler::Json& given = adapter->facts["limits"];
  for (const LimitName& limit : kLimits) {
    const double value = given.value(limit.name, 0.0);
    if (limit.small != nullptr)
      limits->*limit.small = static_cast<std::uint32_t>(value);
    else
      limits->*limit.large = static_cast<std::uint64_t>(value);
  }
  return WGPUStatus_Success;
}

WGPUBool wgpuAdapterHasFeature(WGPUAdapter adapter, WGPUFeatureName feature) {
  for (const doppler::Json& name : adapter->facts["features"]) {
    if (name == name_of(feature)) return 1;
  }
  return 0;
}

WGPUFuture wgpuAdapterRequestDevice(WGPUAdapter adapter, const WGPUDeviceDescriptor* descriptor,
                                    WGPURequestDeviceCallbackInfo callback) {
  doppler::Json wanted = {{"requiredFeatures", doppler::Json::array()},
                          {"requiredLimits", doppler::Json::object()}};
  for (std::size_t i = 0; i < descriptor->requiredFeatureCount; ++i)
    wanted["requiredFeatures"].push_back(name_of(descriptor->requiredFeatures[i]));
  for (const LimitName& limit : kLimits) {
    const WGPULimits& limits = *descriptor->requiredLimits;
    wanted["requiredLimits"][limit.name] = limit.small != nullptr ? limits.*limit.small : limits.*limit.large;
  }
  const std::string text = doppler::dump_json(wanted);
  auto* const device = made<WGPUDeviceImpl>(web::request_device(adapter->number, text.data(), text.size()));
  char why[kErrorBytes] = "";
  if (device == nullptr) {
    web::next_error(why, sizeof(why));
  } else {
    device->error = descriptor->uncapturedErrorCallbackInfo;
    device->lost = descriptor->deviceLostCallbackInfo;
  }
  callback.callback(device == nullptr ? WGPURequestDeviceStatus_Error : WGPURequestDeviceStatus_Success,
                    device, {why, WGPU_STRLEN}, callback.userdata1, callback.userdata2);
  return {};
}

WGPUQueue wgpuDeviceGetQueue(WGPUDevice device) {
  return new WGPUQueueImpl(device);
}

// --- what is made once

WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice device, const WGPUBufferDescriptor* descriptor) {
  auto* const buffer = made<WGPUBufferImpl>(
      web::create_buffer(device->number, descriptor->label.data, descriptor->label.length,
                         static_cast<double>(descriptor->size), static_cast<double>(descriptor->usage)));
  if (buffer != nullptr) buffer->device = device;
  return buffer;
}

WGPUShaderModule wgpuDeviceCreateShaderModule(WGPUDevice device,
                                              const WGPUShaderModuleDescriptor* descriptor) {
  const auto& source = *reinterpret_cast<const WGPUShaderSourceWGSL*>(descriptor->nextInChain);
  return made<WGPUShaderModuleImpl>(web::create_shader(device->number, descriptor->label.data,
                                                       descriptor->label.length, source.code.data,
                                                       source.code.length));
}

WGPUBindGroupLayout wgpuDeviceCreateBindGroupLayout(WGPUDevice device,
                                                    const WGPUBindGroupLayoutDescriptor* descriptor) {
  std::vector<std::uint32_t> entries;
  for (std::size_t i = 0; i < descriptor->entryCount; ++i) {
    const WGPUBindGroupLayoutEntry& entry = descriptor->entries[i];
    entries.push_back(entry.binding);
    entries.push_back(entry.buffer.type == WGPUBufferBindingType_Storage ? 1 : 0);
  }
  return made<WGPUBindGroupLayoutImpl>(
      web::create_layout(device->number, entries.data(), descriptor->entryCount));
}

WGPUPipelineLayout wgpuDeviceCreatePipelineLayout(WGPUDevice device,
                                                  const WGPUPipelineLayoutDescriptor* descriptor) {
  return made<WGPUPipelineLayoutImpl>(
      web::create_pipeline_layout(device->number, descriptor->bindGroupLayouts[0]->number));
}

WGPUComputePipeline wgpuDeviceCreateComputePipeline(WGPUDevice device,
                                                    const WGPUComputePipelineDescriptor* descriptor) {
  auto* const pipeline = made<WGPUComputePipelineImpl>(
      web::create_pipeline(device->number, descriptor->label.data, descriptor->label.length,
                           descriptor->compute.module->number, descriptor->layout->number));
  if (pipeline == nullptr) return nullptr;
  pipeline->device = device;
  pipeline->begun = device->settled;
  return pipeline;
}

WGPUBindGroup wgpuDeviceCreateBindGroup(WGPUDevice device, const WGPUBindGroupDescriptor* descriptor) {
  std::vector<web::BoundRange> ranges;
  web::Kept kept;
  for (std::size_t i = 0; i < descriptor->entryCount; ++i) {
    const WGPUBindGroupEntry& entry = descriptor->entries[i];
    ranges.push_back({entry.binding, entry.buffer->number, static_cast<double>(entry.offset),
                      static_cast<double>(entry.size)});
    keep(kept, entry.buffer);
  }
  auto* const group = made<WGPUBindGroupImpl>(
      web::create_group(device->number, descriptor->layout->number, ranges.data(), ranges.size()));
  if (group != nullptr) group->kept = std::move(kept);
  return group;
}

// Never called, since no adapter has the feature.
WGPUQuerySet wgpuDeviceCreateQuerySet(WGPUDevice, const WGPUQuerySetDescriptor*) {
  return nullptr;
}
void wgpuCommandEncoderResolveQuerySet(WGPUCommandEncoder, WGPUQuerySet, std::uint32_t, std::uint32_t,
                                       WGPUBuffer, std::uint64_t) {}

// --- commands

WGPUCommandEncoder wgpuDeviceCreateCommandEncoder(WGPUDevice device, const WGPUCommandEncoderDescriptor*) {
  return made<WGPUCommandEncoderImpl>(web::create_encoder(device->number));
}

WGPUComputePassEncoder wgpuCommandEncoderBeginComputePass(WGPUCommandEncoder encoder,
                                                          const WGPUComputePassDescriptor*) {
  auto* const pass = made<WGPUComputePassEncoderImpl>(web::begin_pass(encoder->number));
  if (pass != nullptr) pass->encoder = encoder;
  return pass;
}

void wgpuComputePassEncoderSetPipeline(WGPUComputePassEncoder pass, WGPUComputePipeline pipeline) {
  if (pipeline->begun == pipeline->device->settled) web::settle_device(pipeline->device, 0);
  keep(pass->encoder->kept, pipeline);
  web::set_pipeline(pass->number, pipeline->number);
}

void wgpuComputePassEncoderSetBindGroup(WGPUComputePassEncoder pass, std::uint32_t, WGPUBindGroup group,
                                        std::size_t, const std::uint32_t*) {
  keep(pass->encoder->kept, group);
  web::set_group(pass->number, group->number);
}

void wgpuComputePassEncoderDispatchWorkgroups(WGPUComputePassEncoder pass, std::uint32_t x, std::uint32_t y,
                                              std::uint32_t z) {
  web::dispatch(pass->number, x, y, z);
}

void wgpuComputePassEncoderEnd(WGPUComputePassEncoder pass) {
  web::end_pass(pass->number);
}

void wgpuCommandEncoderCopyBufferToBuffer(WGPUCommandEncoder encoder, WGPUBuffer from,
                                          std::uint64_t from_offset, WGPUBuffer to, std::uint64_t to_offset,
                                          std::uint64_t bytes) {
  keep(encoder->kept, from);
  keep(encoder->kept, to);
  web::copy(encoder->number, from->number, static_cast<double>(from_offset), to->number,
            static_cast<double>(to_offset), static_cast<double>(bytes));
}

WGPUCommandBuffer wgpuCommandEncoderFinish(WGPUCommandEncoder encoder, const WGPUCommandBufferDescriptor*) {
  auto* const commands = made<WGPUCommandBufferImpl>(web::finish(encoder->number));
  if (commands != nullptr) commands->kept = std::move(encoder->kept);
  return commands;
}

void wgpuQueueWriteBuffer(WGPUQueue queue, WGPUBuffer buffer, std::uint64_t offset, const void* from,
                          std::size_t bytes) {
  WGPUDevice device = queue->device;
  web::write_buffer(device->number, buffer->number, static_cast<double>(offset), from, bytes);
  device->unsettled_bytes += bytes;
  if (device->unsettled_bytes > kMostUnsettledBytes) web::settle_device(device, web::kEverything);
}

// --- reading

WGPUFuture wgpuBufferMapAsync(WGPUBuffer buffer, WGPUMapMode, std::size_t, std::size_t bytes,
                              WGPUBufferMapCallbackInfo callback) {
  buffer->mapped.resize(bytes);
  const bool read = web::read_buffer(buffer->device->number, buffer->number, bytes, buffer->mapped.data());
  ++buffer->device->settled;
  web::tell_errors(buffer->device);
  callback.callback(read ? WGPUMapAsyncStatus_Success : WGPUMapAsyncStatus_Error, view_of(std::string_view()),
                    callback.userdata1, callback.userdata2);
  return {};
}

const void* wgpuBufferGetConstMappedRange(WGPUBuffer buffer, std::size_t offset, std::size_t) {
  return buffer->mapped.data() + offset;
}

// Never called, since provider::maps_new_buffers() says no.
void* wgpuBufferGetMappedRange(WGPUBuffer, std::size_t, std::size_t) {
  return nullptr;
}

void wgpuBufferUnmap(WGPUBuffer buffer) {
  buffer->mapped.clear();
}

}  // extern "C"
