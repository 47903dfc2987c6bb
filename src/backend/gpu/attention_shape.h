// How attention with many tokens is cut into workgroups (shaders/attention_tiled.wgsl).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backend/gpu/device.h"
#include "backend/gpu/shader.h"
#include "plan/plan.h"

namespace doppler::gpu {

struct AttentionShape {
  std::uint32_t tokens = 0;     // of a workgroup
  std::uint32_t lanes = 0;      // threads of a token's row of scores, four positions each
  std::uint32_t rows_each = 0;  // tokens of a thread
  bool unrolled = true;         // the columns of a chunk are written out, not a loop
  std::uint32_t threads() const { return lanes * tokens / rows_each; }
  std::string name() const;  // "16 x 128, 4 each"
};

// Every cut that is worth measuring, the one to prefer for wide heads first.
std::span<const AttentionShape> attention_shapes();

// The values derived from a cut for a head size.
struct AttentionCut {
  std::uint32_t chunk = 0;           // columns of k in workgroup memory at a time
  std::uint32_t column_threads = 0;  // that share a row of sums
  std::uint32_t bytes = 0;           // of workgroup memory
};
// Nothing where the cut does not suit the head size or the device.
std::optional<AttentionCut> cut_attention(const Limits& limits, const AttentionShape& shape,
                                          std::uint32_t head_dim);

// Adds a cut's values for attention_tiled.wgsl to those that it shares with attention.wgsl.
void add_attention_cut(ShaderValues& values, const AttentionShape& shape, const AttentionCut& cut);

// The positions of a prompt, dealt out to workgroups of their own (shaders/prompt_parts.wgsl).
struct PromptParts {
  std::uint32_t part = 0;    // PART
  std::uint32_t places = 0;  // MOST_SPLITS
};
// Where a step of `tokens` tokens in tiles of `tile` leaves processors of a large GPU without a workgroup;
// nothing where it has one for each, or where what the parts leave cannot be put together. `positions`: that
// a cache has room for.
std::optional<PromptParts> choose_prompt_parts(const AttentionParams& a, std::uint32_t tile,
                                               std::uint32_t tokens, std::uint64_t positions);

// The cut for a head size; nothing where none fits.
std::optional<AttentionShape> choose_attention_shape(const Limits& limits, std::uint32_t head_dim);

}  // namespace doppler::gpu
