// Counts the tokens of the history and notes which have biases. Workgroups: x, a thread for an
// entry in each round.
#include "sampling_parameters.wgsl"
@group(0) @binding(0) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(1) var<storage, read> window : array<u32>;
@group(0) @binding(2) var<storage, read> bias_ids : array<u32>;
@group(0) @binding(3) var<storage, read_write> marks : array<atomic<u32>>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  begin_row(parameters[0].begun + group.y);
  let first = group.x * ${THREADS}u + t;
  for (var i = first; i < parameters[row].history; i += parameters[row].groups * ${THREADS}u) {
    let id = window[parameters[row].window_at + i];
    if (id < parameters[row].vocab) { atomicAdd(&marks[2u * (base + id)], 1u); }
  }
  for (var i = first; i < parameters[row].biases; i += parameters[row].groups * ${THREADS}u) {
    atomicStore(&marks[2u * (base + bias_ids[i]) + 1u], i + 1u);
  }
}
