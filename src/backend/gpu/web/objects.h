// The objects behind webgpu.h's handles in a page: a number of JavaScript's each, and a count of references.
#pragma once

#include <webgpu.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/web/imports.h"
#include "base/json.h"

namespace doppler::gpu::web {

struct Object {
  explicit Object(Number taken) : number(taken) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  const Number number;
  std::uint32_t references = 1;
};

// Objects that another one uses, each with what lets go of it.
using Kept = std::vector<std::unique_ptr<Object, void (*)(Object*)>>;

template <typename T>
void let_go(T* object) {
  if (--object->references > 0) return;
  release(object->number);
  delete object;
}

// Tells the device's callbacks what is known by now.
void tell_errors(WGPUDevice device);
// settle() of imports.h, and tell_errors().
void settle_device(WGPUDevice device, std::uint32_t submission);

}  // namespace doppler::gpu::web

struct WGPUAdapterImpl : doppler::gpu::web::Object {
  using Object::Object;
  doppler::Json facts;  // as describe_adapter() gives them
  std::string name;     // where the browser does not tell the device's
};
struct WGPUDeviceImpl : doppler::gpu::web::Object {
  using Object::Object;
  WGPUUncapturedErrorCallbackInfo error = {};
  WGPUDeviceLostCallbackInfo lost = {};
  std::uint64_t unsettled_bytes = 0;  // written since all was waited for
  std::uint64_t settled = 0;          // how often that was begun before was waited for
};
struct WGPUQueueImpl : doppler::gpu::web::Object {  // lives shorter than its device
  explicit WGPUQueueImpl(WGPUDevice of) : Object(0), device(of) {}
  WGPUDevice device;
};
struct WGPUBufferImpl : doppler::gpu::web::Object {
  using Object::Object;
  WGPUDevice device = nullptr;
  std::vector<std::byte> mapped;
};
struct WGPUShaderModuleImpl : doppler::gpu::web::Object {
  using Object::Object;
};
struct WGPUComputePipelineImpl : doppler::gpu::web::Object {
  using Object::Object;
  WGPUDevice device = nullptr;
  std::uint64_t begun = 0;  // the device's `settled` when its compilation was begun
};
struct WGPUPipelineLayoutImpl : doppler::gpu::web::Object {
  using Object::Object;
};
struct WGPUBindGroupLayoutImpl : doppler::gpu::web::Object {
  using Object::Object;
};
struct WGPUBindGroupImpl : doppler::gpu::web::Object {
  using Object::Object;
  doppler::gpu::web::Kept kept;
};
struct WGPUCommandEncoderImpl : doppler::gpu::web::Object {
  using Object::Object;
  doppler::gpu::web::Kept kept;  // by what is recorded
};
struct WGPUComputePassEncoderImpl : doppler::gpu::web::Object {
  using Object::Object;
  WGPUCommandEncoder encoder = nullptr;
};
struct WGPUCommandBufferImpl : doppler::gpu::web::Object {
  using Object::Object;
  doppler::gpu::web::Kept kept;
};
struct WGPUQuerySetImpl : doppler::gpu::web::Object {
  using Object::Object;
};
