// A GPU's name, features and limits, without the WebGPU header.
#pragma once

#include <cstdint>
#include <string>

namespace doppler::gpu {

struct AdapterInfo {
  std::string name;    // "NVIDIA H200"
  std::string driver;  // "NVIDIA 580.159.04"
  std::string api;     // "Vulkan"
  std::string kind;    // "discrete", "integrated", "software", "unknown"
  std::uint32_t vendor_id = 0, device_id = 0;
  bool software() const { return kind == "software"; }
};

// Multiplication of tiles of 16 x 16 halves that a subgroup does together, with sums in floats.
enum class Tiles : std::uint8_t {
  kNone,
  kDevice,  // tensor cores
  kPlain,   // loops in their place, for tests
};

struct Features {
  bool f16 = false;                 // WGSL's f16
  bool subgroups = false;           // subgroup operations, lanes in the order of local_invocation_index
  std::uint32_t subgroup_size = 1;  // as a kernel measured it
  // Wide enough for what eight threads do together: a block of 32 values, four each.
  bool wide_subgroups() const { return subgroups && subgroup_size >= 8; }
  bool fma_rounds_once = false;  // WGSL's fma(), which may round the product and then the sum, does not
  Tiles tiles = Tiles::kNone;
  bool timestamps = false;  // the device notes when a pass begins and ends
};

struct Limits {
  std::uint64_t buffer_bytes = 0, binding_bytes = 0;
  std::uint32_t binding_alignment = 256;    // of a binding's offset
  std::uint32_t workgroup_bytes = 0;        // workgroup memory
  std::uint32_t workgroup_invocations = 0;  // threads of a workgroup
  std::uint32_t workgroups_per_dimension = 0;
  std::uint32_t storage_buffers = 0;  // bindings of one kernel
};

}  // namespace doppler::gpu
