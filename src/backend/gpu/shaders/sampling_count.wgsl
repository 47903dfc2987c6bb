// Counts the tokens of the history and notes which have biases. Workgroups: x, a thread for an
// entry in each round.
#include "sampling_parameters.wgsl"
@group(0) @binding(0) var<storage, read> parameters : Parameters;
@group(0) @binding(1) var<storage, read> window : array<u32>;
@group(0) @binding(2) var<storage, read> bias_ids : array<u32>;
@group(0) @binding(3) var<storage, read_write> marks : array<atomic<u32>>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let first = group.x * ${THREADS}u + t;
  for (var i = first; i < parameters.history; i += parameters.groups * ${THREADS}u) {
    let id = window[i];
    if (id < parameters.vocab) { atomicAdd(&marks[2u * id], 1u); }
  }
  for (var i = first; i < parameters.biases; i += parameters.groups * ${THREADS}u) {
    atomicStore(&marks[2u * bias_ids[i] + 1u], i + 1u);
  }
}
