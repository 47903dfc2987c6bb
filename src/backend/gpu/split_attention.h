// How the threads of attention_decode.wgsl, which takes an attention in splits of the sequence, share a head.
#pragma once

#include "backend/gpu/context.h"

namespace doppler::gpu {

// TEAM of team.wgsl where subgroups are not wide.
constexpr std::uint32_t kTeamThreads = 16;

// LP, PG, CHUNK, HEADS_AT_ONCE. Errors: kUnsupported, with the reason, where no workgroup holds the heads.
Result<ShaderValues> split_attention_shape(const Context& context, const AttentionParams& a);

}  // namespace doppler::gpu
