// Rows ids[token] of an embedding table: embed_row.wgsl. A table of several buffers has a dispatch for each, which leaves the other buffers' tokens
// alone. Workgroups: x over the width, of which a thread takes four (number q), y over tokens.
// Source: the plan's op kEmbed.
// Template value (shader_values.cpp): IDS the word of `step` where the tokens' ids begin.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(2) var<storage, read> scales : array<u32>;
#endif
@group(0) @binding(3) var<storage, read_write> out : array<vec4f>;
#include "embed_row.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  put_embedding(group.y, step[${IDS}u + group.y], group.x * ${THREADS}u + t);
}
