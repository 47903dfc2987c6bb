// y = x / sqrt(mean(x^2) + eps) * weight, for each row of DIM values; a token has several rows (heads) side by side.
// The weight has its offset added already. Workgroups: x over heads, y over tokens.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
// A token's rows of x, out begin at float token * STRIDE + OFFSET; EPS_BITS: the bits of eps.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read> weight : array<f32>;
@group(0) @binding(2) var<storage, read_write> out : array<f32>;
#include "reduce.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let base_at = group.y * ${X_STRIDE}u + ${X_OFFSET}u + group.x * ${DIM}u;
  let to = group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + group.x * ${DIM}u;
  var sum = 0.0;
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
    let v = x[base_at + i];
    sum += v * v;
  }
  let mean = workgroup_sum(vec4f(sum, 0.0, 0.0, 0.0), t).x / ${DIM}.0;
  let factor = 1.0 / sqrt(mean + bitcast<f32>(${EPS_BITS}u));
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
    out[to + i] = x[base_at + i] * factor * weight[i];
  }
}
