// Ops that change a row of DIM values by what they are together. OP: 0 x * rms(like) / rms(x), the mean of whose squares is
// at least LEAST_BITS; 1 relu(x - (mean + DEVIATIONS_BITS * standard deviation)). Workgroups: x over the rows (heads) of a
// token, y over tokens. A token's rows of x, out, and its LIKE_DIM values of like begin at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> x : array<f32>;
#if OP == 0
@group(0) @binding(1) var<storage, read> like : array<f32>;
#endif
@group(0) @binding(2) var<storage, read_write> out : array<f32>;
#include "reduce.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let base_at = group.y * ${X_STRIDE}u + ${X_OFFSET}u + group.x * ${DIM}u;
  let to = group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + group.x * ${DIM}u;
  // Sums of the row, of its squares, and of like's squares.
  var sums = vec4f(0.0);
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
    let v = x[base_at + i];
    sums.x += v;
    sums.y = fma(v, v, sums.y);
  }
#if OP == 0
  let like_at = group.y * ${LIKE_STRIDE}u + ${LIKE_OFFSET}u;
  for (var i = t; i < ${LIKE_DIM}u; i += ${THREADS}u) {
    sums.z = fma(like[like_at + i], like[like_at + i], sums.z);
  }
  let all = workgroup_sum(sums, t);
  let factor = sqrt((all.z / ${LIKE_DIM}.0) / max(all.y / ${DIM}.0, bitcast<f32>(${LEAST_BITS}u)));
#else
  let mean = workgroup_sum(sums, t).x / ${DIM}.0;
  // Squares of what is left without the mean, which is more exact.
  var spread = 0.0;
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
    let v = x[base_at + i] - mean;
    spread = fma(v, v, spread);
  }
  let deviation = sqrt(workgroup_sum(vec4f(spread, 0.0, 0.0, 0.0), t).x / ${DIM}.0);
  let least = fma(bitcast<f32>(${DEVIATIONS_BITS}u), deviation, mean);
#endif
  for (var i = t; i < ${DIM}u; i += ${THREADS}u) {
#if OP == 0
    out[to + i] = x[base_at + i] * factor;
#else
    let v = x[base_at + i] - least;
    out[to + i] = select(v, 0.0, v < 0.0);
#endif
  }
}
