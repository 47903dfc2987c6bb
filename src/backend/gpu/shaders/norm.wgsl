// y = x / sqrt(mean(x^2) + eps) * weight [+ bias], for each row of DIM values; a token has several rows (heads) side by side.
// LAYER: of x without its mean. OWN: each row has its own weight. The weight has its offset added already.
// Workgroups: x over heads, y over tokens.
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019); Ba et al., "Layer Normalization" (2016).
// A token's rows of x, out begin at float token * STRIDE + OFFSET; EPS_BITS: the bits of eps.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read> weight : array<f32>;
@group(0) @binding(2) var<storage, read_write> out : array<f32>;
#if BIAS
@group(0) @binding(3) var<storage, read> bias : array<f32>;
#endif
#include "reduce.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let base_at = group.y * ${X_STRIDE}u + ${X_OFFSET}u + group.x * ${DIM}u;
  let to = group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + group.x * ${DIM}u;
#if OWN
  let own = group.x * ${DIM}u;
#else
  let own = 0u;
#endif
#if LAYER
  var all = 0.0;
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
    all += x[base_at + i];
  }
  let center = workgroup_sum(vec4f(all, 0.0, 0.0, 0.0), t).x / ${DIM}.0;
#endif
  var sum = 0.0;
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
#if LAYER
    let v = x[base_at + i] - center;
#else
    let v = x[base_at + i];
#endif
    sum += v * v;
  }
  let mean = workgroup_sum(vec4f(sum, 0.0, 0.0, 0.0), t).x / ${DIM}.0;
  let factor = 1.0 / sqrt(mean + bitcast<f32>(${EPS_BITS}u));
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
#if LAYER
    let v = (x[base_at + i] - center) * factor;
#else
    let v = x[base_at + i] * factor;
#endif
#if BIAS
    out[to + i] = v * weight[own + i] + bias[own + i];
#else
    out[to + i] = v * weight[own + i];
#endif
  }
}
