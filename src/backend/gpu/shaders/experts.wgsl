// y = W_e x (+ bias_e) for each of a token's chosen experts e: only their rows are read. The matrices of all experts lie one
// under the other. A workgroup takes R rows of an expert; thread t has row t % R and the units from t / R * UNITS on.
// Workgroups: x over R rows of an expert, y over tokens, z over a token's chosen experts.
// Source: the plan's op kExpertMatmul.
//
// Template values (op_kernels.cpp): R, LANES, UNITS powers of two, AT_ONCE 1: see gemv.wgsl; EXPERTS of ROWS rows each, from row FIRST of all on; this
// buffer has SHARD_ROWS rows of all from ROW0 on; WIDTH values of x; OWN 1: each chosen expert has its own part of a token's row of x; X_VEC 1: x
// can be read in vectors of four; BIAS 1: bias[e * ROWS + row] is added; FORM, SCALES, UNITS_K see weights.wgsl.
// Row i of x, ids, out begins at float i * STRIDE + OFFSET; out has ROWS values for each chosen expert.
@group(0) @binding(0) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(1) var<storage, read> scales : array<u32>;
#endif
#if BIAS
@group(0) @binding(2) var<storage, read> bias : array<f32>;
#endif
#if X_VEC
@group(0) @binding(3) var<storage, read> x : array<vec4f>;
#else
@group(0) @binding(3) var<storage, read> x : array<f32>;
#endif
@group(0) @binding(4) var<storage, read> ids : array<f32>;
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#define THREADS R * LANES
#define COVERED LANES * UNITS == UNITS_K
#define SETS 1
#define SET_ROWS 0
#include "weights.wgsl"

var<private> from_x : u32;  // float where the expert's row of x begins
fn x_at(unit : u32, j : u32) -> vec4f {
  let k = unit * 64u + j * 4u;
#if X_VEC
  if (k >= ${WIDTH}u) { return vec4f(0.0); }
  return x[(from_x + k) / 4u];
#else
  var v = vec4f(0.0);
#for e in 0..4
  if (k + ${e}u < ${WIDTH}u) { v[${e}] = x[from_x + k + ${e}u]; }
#endfor
  return v;
#endif
}
#include "dot.wgsl"
#include "row_sum.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let place = group.z;
  let expert = min(u32(max(ids[token * ${IDS_STRIDE}u + ${IDS_OFFSET}u + place], 0.0)), ${EXPERTS - 1}u);
#if OWN
  from_x = token * ${X_STRIDE}u + ${X_OFFSET}u + place * ${WIDTH}u;
#else
  from_x = token * ${X_STRIDE}u + ${X_OFFSET}u;
#endif
  let own = group.x * ${R}u + t % ${R}u;
  let among_all = ${FIRST}u + expert * ${ROWS}u + own;
  let is_here = own < ${ROWS}u && among_all >= ${ROW0}u && among_all < ${ROW0 + SHARD_ROWS}u;
  let row = select(0u, among_all - ${ROW0}u, is_here);
  let lane = t / ${R}u;
#include "unit_loads.wgsl"
#include "unit_products.wgsl"
  let total = row_sum(vec2f(sum0, 0.0), t).x;
  if (t < ${R}u && is_here) {
    let to = token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + place * ${ROWS}u + own;
#if BIAS
    out[to] = total + bias[expert * ${ROWS}u + own];
#else
    out[to] = total;
#endif
  }
}
