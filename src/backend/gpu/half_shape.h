// How a matrix product with many tokens is cut for tensor cores (shaders/gemm_half.wgsl), and which cut suits
// a shape.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backend/gpu/device.h"
#include "backend/gpu/shader.h"
#include "backend/gpu/weights.h"

namespace doppler::gpu {

struct HalfShape {
  std::uint32_t tile_tokens = 0, tile_rows = 0;      // of a workgroup
  std::uint32_t blocks = 1;                          // of 32 values along k in workgroup memory at a time
  std::uint32_t groups_tokens = 1, groups_rows = 1;  // subgroups along them
  std::uint32_t splits = 1;                          // parts of k that workgroups share
  double seconds_full = 0, seconds_alone = 0;        // of a tile along one value of k: see half_shape.cpp
  constexpr std::uint32_t threads() const { return groups_tokens * groups_rows * 32; }
  std::uint32_t workgroup_bytes() const;
  std::string name() const;  // "128x128x32 2x2 /3"
};

// Rows of x16 are a multiple of this: the most tokens of a tile.
inline constexpr std::uint32_t kHalfTileTokens = 128;
// With fewer tokens most of a tile is empty, and 8-bit products are as fast.
inline constexpr std::uint32_t kLeastHalfTokens = 33;

// Every cut, with one split.
std::span<const HalfShape> half_shapes();

// Whether the device has what the kernels need. A matrix of f32 keeps its floats.
bool multiplies_halves(const Device& device);
bool multiplies_halves(const WeightFormat& format);

bool half_fits(const Limits& limits, const HalfShape& shape);

// The fastest cut by a model of a large GPU; nothing for a device that holds none.
std::optional<HalfShape> choose_half_shape(const Limits& limits, std::uint32_t tokens, std::uint32_t rows,
                                           std::uint32_t units);

// The values of gemm_half.wgsl for a matrix of `rows` x `units` and a cut; its other values say where results
// go. `room`: tokens that x16 has room for.
ShaderValues half_values(const Device& device, const HalfShape& shape, const WeightFormat& format,
                         std::uint32_t rows, std::uint32_t units, std::uint32_t room);

}  // namespace doppler::gpu
