// What a recurrence makes of its time step. DECAY: x * weight, the logarithm of a state's decay; else time_step_value(x + weight). Workgroups: x over values, y over tokens.
// Template values (recurrent_kernels.cpp): WIDTH values of a row; those of time_step_value.wgsl. A token's row of x, out begins
// at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read> weight : array<f32>;
@group(0) @binding(2) var<storage, read_write> out : array<f32>;
#if !DECAY
#include "time_step_value.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${WIDTH}u) {
    return;
  }
  let given = x[group.y * ${X_STRIDE}u + ${X_OFFSET}u + i];
#if DECAY
  let value = given * weight[i];
#else
  let value = time_step_value(given + weight[i]);
#endif
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = value;
}
