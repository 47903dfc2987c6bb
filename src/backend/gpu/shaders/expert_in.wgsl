// activation(gate) * up of one token's chosen experts. The matrices lie under each other: the gates of all experts, then
// their ups. A workgroup takes R rows of gate and up of an expert; thread t has row t % R and the units from t / R * UNITS on,
// whose loads are issued at once.
// Workgroups: x over R rows of an expert, z over the token's chosen experts, with MANY 1 y over tokens. ROUTES 1: every subgroup finds the token's experts
// itself, from the router's logits, while the rest of the GPU would wait for a kernel of one workgroup; the first stores them.
// Source: the plan's ops kExpertMatmul and kGated.
//
// Template values (decode_experts.cpp): R, LANES, UNITS, AT_ONCE: see gemv.wgsl; EXPERTS of ROWS rows each, a multiple of R; ACT and
// what describes x: see given_x.wgsl; IDS_OFFSET float of `ids`, or (ROUTES) of ids_out, where the token's experts begin; BIAS 1: each expert's own are added;
// ACTIVATION, or SHAPED 1: see gate.wgsl; QUANTISE_OUT 1: results go to out8, outs as quantise.wgsl leaves them, ROWS of each
// expert behind those of the one before, R being a multiple of 32 then; EMIT_PARTS, EMIT_ACT 1: gate and up, or the results as
// floats, are stored too. MANY 1 (batch_experts.cpp): several tokens with CHOSEN experts each, whose ids lie IDS_STRIDE floats apart. ROUTES 1: THREADS a multiple of a subgroup, and the values of route.wgsl. FORM, SCALES, UNITS_K see weights.wgsl.
@group(0) @binding(0) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(1) var<storage, read> scales : array<u32>;
#endif
#if BIAS
@group(0) @binding(2) var<storage, read> gate_bias : array<f32>;
@group(0) @binding(11) var<storage, read> up_bias : array<f32>;
#endif
#if ROUTES
@group(0) @binding(5) var<storage, read_write> ids_out : array<f32>;
@group(0) @binding(12) var<storage, read> logits : array<f32>;
#if CORRECTED
@group(0) @binding(13) var<storage, read> corrections : array<f32>;
#endif
@group(0) @binding(14) var<storage, read_write> weights_out : array<f32>;
#if EACH
@group(0) @binding(15) var<storage, read> each : array<f32>;
#endif
#define ALONE 1
#define CHOOSES 1
#define WEIGHS 1
#define ROUTER_THREADS SUBGROUP_SIZE
#else
@group(0) @binding(5) var<storage, read> ids : array<f32>;
#endif
#if QUANTISE_OUT
@group(0) @binding(6) var<storage, read_write> out8 : array<u32>;
@group(0) @binding(7) var<storage, read_write> outs : array<vec2f>;
#else
@group(0) @binding(6) var<storage, read_write> out : array<f32>;
#endif
#if EMIT_PARTS
@group(0) @binding(8) var<storage, read_write> gate_out : array<f32>;
@group(0) @binding(9) var<storage, read_write> up_out : array<f32>;
#endif
#if EMIT_ACT
@group(0) @binding(10) var<storage, read_write> act_out : array<f32>;
#endif
#default MANY 0
#define THREADS R * LANES
#define COVERED LANES * UNITS == UNITS_K
#define SETS 2
#define SET_ROWS EXPERTS * ROWS
#include "weights.wgsl"
#include "given_x.wgsl"
#include "gate.wgsl"
#include "dot.wgsl"
#include "row_sum.wgsl"
#if ROUTES
#include "routing.wgsl"
#endif
#if QUANTISE_OUT
#include "quantise_vec.wgsl"
var<workgroup> acts : array<f32, ${R}>;  // the workgroup's results
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
#if ROUTES
  let from_logits = ${LOGITS_OFFSET}u;
  let router = t % ${SUBGROUP_SIZE}u;
#include "routing_steps.wgsl"
  var expert = id0;
#for i in 1..CHOSEN
  if (group.z == ${i}u) {
    expert = id${i};
  }
#endfor
  if (group.x + group.z == 0u) {
#for i in 0..CHOSEN
    if (t == ${i % THREADS}u) {
      ids_out[${IDS_OFFSET + i}u] = f32(id${i});
#if EACH
      weights_out[${WEIGHTS_OFFSET + i}u] = w${i} * factor * each[id${i}];
#else
      weights_out[${WEIGHTS_OFFSET + i}u] = w${i} * factor;
#endif
    }
#endfor
  }
#else
#if MANY
  token = group.y;
  let place = group.y * ${CHOSEN}u + group.z;
  let expert = min(u32(max(ids[group.y * ${IDS_STRIDE}u + ${IDS_OFFSET}u + group.z], 0.0)), ${EXPERTS - 1}u);
#else
  let expert = min(u32(max(ids[${IDS_OFFSET}u + group.z], 0.0)), ${EXPERTS - 1}u);
#endif
#endif
#if !MANY
  let place = group.z;
#endif
  let own = group.x * ${R}u + t % ${R}u;
  let row = expert * ${ROWS}u + own;
  let lane = t / ${R}u;
#include "unit_loads.wgsl"
#include "unit_products.wgsl"
  let both = row_sum(vec2f(sum0, sum1), t);
  var act = 0.0;
  if (t < ${R}u) {
#if BIAS
    let gate = both.x + gate_bias[row];
    let up = both.y + up_bias[row];
#else
    let gate = both.x;
    let up = both.y;
#endif
    act = gated(gate, up);
    let to = place * ${ROWS}u + own;
#if EMIT_PARTS
    gate_out[to] = gate;
    up_out[to] = up;
#endif
#if EMIT_ACT
    act_out[to] = act;
#endif
#if !QUANTISE_OUT
    out[to] = act;
#endif
  }
#if QUANTISE_OUT
  if (t < ${R}u) {
    acts[t] = act;
  }
  workgroupBarrier();
  var four = vec4f(0.0);
  if (t < ${R / 4}u) {
    four = vec4f(acts[4u * t], acts[4u * t + 1u], acts[4u * t + 2u], acts[4u * t + 3u]);
  }
  let made = quantise_vec(four, t);
  if (t < ${R / 4}u) {
    let word = (place * ${ROWS}u + group.x * ${R}u) / 4u + t;
    out8[word] = made.word;
    if ((t & 7u) == 0u) {
      outs[word / 8u] = vec2f(made.scale, made.scale * f32(made.sum));
    }
  }
#endif
}
