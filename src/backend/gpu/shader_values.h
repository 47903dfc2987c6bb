// Template values and bindings that several programs give their kernels in the same way: those of a matrix, a
// rotation, an attention layer.
#pragma once

#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/kernel.h"

namespace doppler::gpu {

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b);

// FORM, SCALES, UNITS_K.
void add_format(ShaderValues& values, const GpuMatrix& matrix);
// codes and, where there are any, scales.
void bind_shard(std::vector<Bound>& buffers, const GpuMatrix& matrix, const Shard& shard);
// BIAS, and the shard's part of it; shards begin at multiples of 64 floats, as bindings must.
void bind_bias(const PlacedMatrix& part, const Shard& shard, ShaderValues& values,
               std::vector<Bound>& buffers);

// All values of embed.wgsl and its bindings but for `out`.
void add_embed(const Context& context, const Op& op, std::size_t which, const GpuMatrix& table,
               const Shard& shard, std::uint32_t threads, ShaderValues& values, std::vector<Bound>& buffers);
// KV_HALF, DIM, KV_HEADS, CAPACITY, SLOTS, POSITIONS: where an attention's keys and values lie.
void add_cache(const Context& context, const Op& attention, ShaderValues& values);
// The buffer of attention's sinks, where it has some: SINKS of add_scores().
Status bind_sinks(Context& context, const Op& attention, std::vector<Bound>& buffers);
// HEADS, WINDOW, CHUNKED, SINKS, SCALE_BITS, SOFTCAP, ALIBI: how it scores them.
void add_scores(const Op& attention, ShaderValues& values);
// PAIRS, HIGH_ROWS, INTERLEAVED: how a head is turned.
void add_rotation(const Context& context, const RopeParams& rope, ShaderValues& values);

}  // namespace doppler::gpu
