// out = [z +] the sum over one token's chosen experts e of weight_e (W_e x_e [+ bias_e]): products and their sum. The matrices
// of all experts lie under each other. A workgroup takes R rows; thread t has row t % R of the expert at place
// t / R / PLACE_LANES, and there the units from t / R % PLACE_LANES * UNITS on. Workgroups: x over R rows, with MANY 1 y over tokens.
// Source: the plan's ops kExpertMatmul and kExpertSum.
//
// Template values (decode_experts.cpp): R; PLACE_LANES, UNITS, AT_ONCE; EXPERTS of ROWS rows each, of which CHOSEN; x_e are the 8-bit blocks x8,
// xs as expert_in.wgsl leaves them (ACT 1) or floats of WIDTH values each (ACT 0);
// IDS_OFFSET, WEIGHTS_OFFSET, X_OFFSET, Z_OFFSET, OUT_OFFSET floats where they begin; WEIGHTED 0: they count 1 each; BIAS; ADDS 1:
// there is z; EMIT_PARTS 1: what each expert gives is stored too; MANY 1 (batch_experts.cpp): several
// tokens, whose rows of ids, weights, z and out lie IDS_STRIDE ... OUT_STRIDE floats apart, else for one; HANDS_OVER 1: results go to joined.wgsl instead of out. FORM, SCALES, UNITS_K see weights.wgsl.
@group(0) @binding(0) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(1) var<storage, read> scales : array<u32>;
#endif
#if BIAS
@group(0) @binding(2) var<storage, read> bias : array<f32>;
#endif
#if ACT == 1
@group(0) @binding(3) var<storage, read> x8 : array<vec4u>;
@group(0) @binding(4) var<storage, read> xs : array<vec2f>;
#else
@group(0) @binding(3) var<storage, read> x : array<f32>;
#endif
@group(0) @binding(5) var<storage, read> ids : array<f32>;
#if WEIGHTED
@group(0) @binding(6) var<storage, read> weights : array<f32>;
#endif
#if ADDS
@group(0) @binding(7) var<storage, read> z : array<f32>;
#endif
#default HANDS_OVER 0
#if !HANDS_OVER
@group(0) @binding(8) var<storage, read_write> out : array<f32>;
#endif
#if EMIT_PARTS
@group(0) @binding(9) var<storage, read_write> parts_out : array<f32>;
#endif
#default MANY 0
#if !MANY
#define IDS_STRIDE 0
#define WEIGHTS_STRIDE 0
#define Z_STRIDE 0
#define OUT_STRIDE 0
#endif
#define LANES PLACE_LANES
#define PLACES CHOSEN
#define THREADS R * LANES * PLACES
#define COVERED LANES * UNITS == UNITS_K
#define SETS 1
#define SET_ROWS 0
#include "weights.wgsl"
var<private> place : u32;
var<private> token : u32;
#if ACT == 1
fn x8_at(unit : u32, piece : u32) -> vec4u { return x8[((token * ${CHOSEN}u + place) * ${UNITS_K}u + unit) * 4u + piece]; }
fn xs_at(unit : u32, block : u32) -> vec2f { return xs[((token * ${CHOSEN}u + place) * ${UNITS_K}u + unit) * 2u + block]; }
#else
fn x_at(unit : u32, j : u32) -> vec4f {
  let k = unit * 64u + j * 4u;
  var v = vec4f(0.0);
#for e in 0..4
  if (k + ${e}u < ${WIDTH}u) { v[${e}] = x[${X_OFFSET}u + place * ${WIDTH}u + k + ${e}u]; }
#endfor
  return v;
}
#endif
#include "dot.wgsl"
#include "row_sum.wgsl"
var<workgroup> weighed : array<f32, ${PLACES * R}>;  // [place][row]

fn expert_at(of_place : u32) -> u32 {
  return min(u32(max(ids[token * ${IDS_STRIDE}u + ${IDS_OFFSET}u + of_place], 0.0)), ${EXPERTS - 1}u);
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let lane = t / ${R}u % ${LANES}u;
  place = t / ${R * LANES}u;
#if MANY
  token = group.y;
#endif
  let own = min(group.x * ${R}u + t % ${R}u, ${ROWS - 1}u);
  let row = expert_at(place) * ${ROWS}u + own;
#include "unit_loads.wgsl"
  // What a thread puts together in the end: row t % R of this place.
  let of_place = min(t / ${R}u, ${PLACES - 1}u);
#if WEIGHTED
  let weight = weights[token * ${WEIGHTS_STRIDE}u + ${WEIGHTS_OFFSET}u + of_place];
#endif
#if BIAS
  let own_bias = bias[expert_at(of_place) * ${ROWS}u + own];
#endif
#include "unit_products.wgsl"
  var part = row_sum(vec2f(sum0, 0.0), t).x;
#if BIAS
  part += own_bias;
#endif
  if (t < ${PLACES * R}u) {
#if EMIT_PARTS
    if (group.x * ${R}u + t % ${R}u < ${ROWS}u) {
      parts_out[of_place * ${ROWS}u + own] = part;
    }
#endif
#if WEIGHTED
    weighed[t] = fma(part, weight, 1.2e-38);  // no mere product, which a driver might join with the sum behind: see dot.wgsl
#else
    weighed[t] = part;
#endif
  }
  workgroupBarrier();
  if (t < ${R}u && group.x * ${R}u + t < ${ROWS}u) {
#for c in 0..PLACES
    let total_${c} = weighed[${c * R}u + t];
#sum total, c, PLACES
#endfor
#if ADDS
    let result = z[token * ${Z_STRIDE}u + ${Z_OFFSET}u + own] + total;
#else
    let result = total;
#endif
#if HANDS_OVER
    hand_over(${OUT_OFFSET}u + own, result);
#else
    out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + own] = result;
#endif
  }
}
