// Forgets how often tokens were seen and which have biases. Workgroups: x over `chunk` tokens each.
#include "sampling_parameters.wgsl"
@group(0) @binding(0) var<storage, read> parameters : Parameters;
@group(0) @binding(1) var<storage, read_write> marks : array<vec2u>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let end = min((group.x + 1u) * parameters.chunk, parameters.vocab);
  for (var i = group.x * parameters.chunk + t; i < end; i += ${THREADS}u) { marks[i] = vec2u(0u); }
}
