// How attention of many tokens is cut into workgroups for tensor cores (shaders/attention_half.wgsl).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backend/gpu/context.h"

namespace doppler::gpu {

struct HalfAttention {
  std::uint32_t row_tiles = 1;  // of 16 tokens of a head that a workgroup has
  std::uint32_t subgroups = 4;
  constexpr std::uint32_t tokens() const { return 16 * row_tiles; }
  constexpr std::uint32_t threads() const { return 32 * subgroups; }
  std::uint32_t workgroup_bytes(std::uint32_t head_dim) const;
  std::string name() const;  // "32 tokens, 4 subgroups"
};

// Every cut that is worth measuring, those to prefer first.
std::span<const HalfAttention> half_attentions();

bool half_attention_fits(const Limits& limits, const HalfAttention& shape, const AttentionParams& a);

// The cut for so many tokens; nothing where none fits, or the heads are not made of tiles.
std::optional<HalfAttention> choose_half_attention(const Limits& limits, const AttentionParams& a,
                                                   std::uint32_t tokens);

// Whether an attention's cache is in halves, and its heads such that the kernel can read them.
bool attends_halves(const Context& context, const Op& attention);

// Adds a cut's values to those that attention_half.wgsl shares with attention.wgsl.
void add_half_attention(const Device& device, ShaderValues& values, const HalfAttention& shape);

}  // namespace doppler::gpu
