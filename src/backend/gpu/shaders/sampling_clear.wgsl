// Forgets how often tokens were seen and which have biases. Workgroups: x over `chunk` tokens each.
#include "sampling_parameters.wgsl"
@group(0) @binding(0) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(1) var<storage, read_write> marks : array<vec2u>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  begin_row(parameters[0].begun + group.y);
  let end = min((group.x + 1u) * parameters[row].chunk, parameters[row].vocab);
  for (var i = group.x * parameters[row].chunk + t; i < end; i += ${THREADS}u) { marks[base + i] = vec2u(0u); }
}
