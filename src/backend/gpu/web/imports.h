// What a page's WebGPU lends the module: the functions of web/src/gpu.js. Objects are numbers there, 0 is
// none; sizes are doubles, since JavaScript's numbers are. Functions that wait suspend the module meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#define DOPPLER_GPU_IMPORT(name) __attribute__((import_module("gpu"), import_name(name)))

namespace doppler::gpu::web {

using Number = std::uint32_t;

struct BoundRange {
  std::uint32_t binding = 0;
  Number buffer = 0;
  double offset = 0, bytes = 0;
};

// Why there is no WebGPU here, in one sentence, or nothing: as much as `capacity` holds. Returns its size.
DOPPLER_GPU_IMPORT("missing") std::size_t missing(char* into, std::size_t capacity);
// Waits. The adapter that the browser prefers.
DOPPLER_GPU_IMPORT("request_adapter") Number request_adapter();
// {"vendor", "architecture", "device", "description", "software", "features": [...], "limits": {...}}
DOPPLER_GPU_IMPORT("describe_adapter")
std::size_t describe_adapter(Number adapter, char* into, std::size_t capacity);
// Waits. `wanted`: {"requiredFeatures": [...], "requiredLimits": {...}}.
DOPPLER_GPU_IMPORT("request_device")
Number request_device(Number adapter, const char* wanted, std::size_t length);
// Buffers and devices are destroyed. Whatever still uses them is the caller's mistake.
DOPPLER_GPU_IMPORT("release") void release(Number object);

DOPPLER_GPU_IMPORT("create_buffer")
Number create_buffer(Number device, const char* label, std::size_t length, double bytes, double usage);
DOPPLER_GPU_IMPORT("create_shader")
Number create_shader(Number device, const char* label, std::size_t length, const char* code,
                     std::size_t code_length);
// Two numbers an entry: its binding, and whether it is written.
DOPPLER_GPU_IMPORT("create_layout")
Number create_layout(Number device, const std::uint32_t* entries, std::size_t count);
DOPPLER_GPU_IMPORT("create_pipeline_layout") Number create_pipeline_layout(Number device, Number layout);
// Begins to compile it; it may be used after the next settle().
DOPPLER_GPU_IMPORT("create_pipeline")
Number create_pipeline(Number device, const char* label, std::size_t length, Number shader, Number layout);
DOPPLER_GPU_IMPORT("create_group")
Number create_group(Number device, Number layout, const BoundRange* ranges, std::size_t count);

DOPPLER_GPU_IMPORT("create_encoder") Number create_encoder(Number device);
DOPPLER_GPU_IMPORT("begin_pass") Number begin_pass(Number encoder);
DOPPLER_GPU_IMPORT("set_pipeline") void set_pipeline(Number pass, Number pipeline);
DOPPLER_GPU_IMPORT("set_group") void set_group(Number pass, Number group);
DOPPLER_GPU_IMPORT("dispatch")
void dispatch(Number pass, std::uint32_t x, std::uint32_t y, std::uint32_t z);
DOPPLER_GPU_IMPORT("end_pass") void end_pass(Number pass);
DOPPLER_GPU_IMPORT("copy")
void copy(Number encoder, Number from, double from_offset, Number to, double to_offset, double bytes);
DOPPLER_GPU_IMPORT("finish") Number finish(Number encoder);
// The number of the submission, from 1 on.
DOPPLER_GPU_IMPORT("submit") std::uint32_t submit(Number device, Number commands);
DOPPLER_GPU_IMPORT("write_buffer")
void write_buffer(Number device, Number buffer, double offset, const void* from, std::size_t bytes);

// Waits until the pipelines that were begun are there, a submission is done (0: none, kEverything: all that
// was asked for), and every error of what came before is known.
inline constexpr std::uint32_t kEverything = UINT32_MAX;
DOPPLER_GPU_IMPORT("settle") void settle(Number device, std::uint32_t submission);
// Waits for the buffer's first bytes, and copies them. False if they cannot be had.
DOPPLER_GPU_IMPORT("read_buffer")
bool read_buffer(Number device, Number buffer, std::size_t bytes, std::byte* into);
// The next error that is known: its type as WGPUErrorType, or kLost; 0: there is none.
inline constexpr std::uint32_t kLost = 100;
DOPPLER_GPU_IMPORT("next_error") std::uint32_t next_error(char* into, std::size_t capacity);

}  // namespace doppler::gpu::web
