// Everything that differs between providers of webgpu.h. Natively the provider is wgpu-native, and
// provider.cpp is the one file that includes its wgpu.h; everything else calls the standard header alone. In
// a page it is web/: the browser's WebGPU, called through imports of the module.
#pragma once

#include <webgpu.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doppler::gpu::provider {

// The process's instance, which looks for adapters through Vulkan, Metal and Direct3D 12 only: the kernels
// are not made for OpenGL's compute, and its probe prints warnings on machines without a display. Null if
// there is none. It is never released: a process that starts NVIDIA's Vulkan driver (580.159.04) for the
// thirtieth time finds no adapter any more.
WGPUInstance instance();

// Every adapter of the machine; each handle is the caller's to release.
std::vector<WGPUAdapter> list_adapters();
// What to tell somebody who has none: a sentence.
std::string why_no_adapter();

// The feature that shaders with subgroup operations need, and the lines that such shaders begin with.
WGPUFeatureName subgroup_feature();
std::string_view subgroup_prelude();
// The feature that shaders with cooperative matrices need; 0: there is none that can be had.
WGPUFeatureName tiles_feature();
// Whether shaders are refused unless it is proven that all threads come to each barrier together.
bool proves_barriers();
// Whether buffers are best filled where they lie when they are made, rather than written in pieces.
bool maps_new_buffers();

// How many threads of a wanted number (0: as many as there are) may call the library.
std::size_t threads_for_calls(std::size_t wanted);

// A shader module, with every access checked against its buffer's bounds or (`checked` false) none.
WGPUShaderModule create_shader_module(WGPUDevice device, const WGPUShaderModuleDescriptor& descriptor,
                                      bool checked);

// Hands a command buffer to the queue; the number names it for wait().
std::uint64_t submit(WGPUQueue queue, WGPUCommandBuffer commands);
// Blocks until that submission is done and the callbacks of mapped buffers have been called.
void wait(WGPUDevice device, std::uint64_t submission);
// Blocks until everything that was submitted is done.
void wait_all(WGPUDevice device);
// Blocks until the pipelines that were asked for are there, or their errors: natively at once.
void settle(WGPUDevice device);
// Calls the callbacks that are due, without blocking.
void poll(WGPUDevice device);

// Nanoseconds between two timestamps of a pass that differ by one.
double timestamp_nanoseconds(WGPUQueue queue);

// "wgpu-native 29.0.1.1", or "wgpu 29.0.4 with tensor cores" (providers/tensor-cores)
std::string version();
// Why the library that was found cannot be used: it is of another version than the headers. Empty: it can.
std::string wrong_version();

}  // namespace doppler::gpu::provider
