// Handle: owns one reference to a WebGPU object.
#pragma once

#include <webgpu.h>

#include <utility>

namespace doppler::gpu {

template <typename T, void (*kAddRef)(T), void (*kRelease)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T taken) : raw_(taken) {}
  Handle(const Handle& other) : raw_(other.raw_) {
    if (raw_ != nullptr) kAddRef(raw_);
  }
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Handle() {
    if (raw_ != nullptr) kRelease(raw_);
  }
  T get() const { return raw_; }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T raw_ = nullptr;
};

using AdapterHandle = Handle<WGPUAdapter, wgpuAdapterAddRef, wgpuAdapterRelease>;
using DeviceHandle = Handle<WGPUDevice, wgpuDeviceAddRef, wgpuDeviceRelease>;
using QueueHandle = Handle<WGPUQueue, wgpuQueueAddRef, wgpuQueueRelease>;
using BufferHandle = Handle<WGPUBuffer, wgpuBufferAddRef, wgpuBufferRelease>;
using ShaderHandle = Handle<WGPUShaderModule, wgpuShaderModuleAddRef, wgpuShaderModuleRelease>;
using PipelineHandle = Handle<WGPUComputePipeline, wgpuComputePipelineAddRef, wgpuComputePipelineRelease>;
using PipelineLayoutHandle = Handle<WGPUPipelineLayout, wgpuPipelineLayoutAddRef, wgpuPipelineLayoutRelease>;
using BindGroupLayoutHandle =
    Handle<WGPUBindGroupLayout, wgpuBindGroupLayoutAddRef, wgpuBindGroupLayoutRelease>;
using BindGroupHandle = Handle<WGPUBindGroup, wgpuBindGroupAddRef, wgpuBindGroupRelease>;
using EncoderHandle = Handle<WGPUCommandEncoder, wgpuCommandEncoderAddRef, wgpuCommandEncoderRelease>;
using PassHandle =
    Handle<WGPUComputePassEncoder, wgpuComputePassEncoderAddRef, wgpuComputePassEncoderRelease>;
using QuerySetHandle = Handle<WGPUQuerySet, wgpuQuerySetAddRef, wgpuQuerySetRelease>;
using CommandsHandle = Handle<WGPUCommandBuffer, wgpuCommandBufferAddRef, wgpuCommandBufferRelease>;

inline WGPUStringView view_of(std::string_view text) {
  return {text.data(), text.size()};
}
inline std::string_view view_of(WGPUStringView text) {
  if (text.data == nullptr) return {};
  return text.length == WGPU_STRLEN ? std::string_view(text.data) : std::string_view(text.data, text.length);
}

}  // namespace doppler::gpu
