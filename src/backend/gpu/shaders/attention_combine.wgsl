// Puts together the results of the workgroups of attention_decode.wgsl, where no product does it on its way (see
// combined.wgsl for `parts`, `marks` and the template values). Workgroups: x over vectors of four of the WIDTH = heads *
// head size values of `out`, one a thread.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> parts : array<vec4f>;
@group(0) @binding(2) var<storage, read> marks : array<vec2f>;
@group(0) @binding(3) var<storage, read_write> out : array<vec4f>;
#if SINKS
@group(0) @binding(4) var<storage, read> sinks : array<f32>;
#endif
#include "combined.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let v = group.x * ${THREADS}u + t;
  if (v < ${WIDTH / 4}u) {
    out[v] = combined(v, splits_of(step[${POSITIONS}u]).count);
  }
}
