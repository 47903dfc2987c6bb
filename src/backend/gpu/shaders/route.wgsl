// Which experts a token is sent to (WEIGH 0), best first and the first of equals, or what each of them counts (WEIGH 1), or
// both (WEIGH 2), from the router's logits: the plan's ops kChoose and kWeigh, as backend/routing.cpp has them. One workgroup for a
// token. Workgroups: y over tokens; x: the first routes, the others (QUANTISES 1) quantise THREADS vectors of four each of what
// the experts read.
// Sources: Shazeer et al. (2017), DeepSeek-AI (2024), Liu et al. (2023).
//
// Template values (op_kernels.cpp): EXPERTS, of which CHOSEN; SCORE 0 softmax, 1 sigmoid, 2 softmax of the chosen, 3 sparse
// mixer; GROUPS of which KEPT_GROUPS stay, by the sum of their GROUP_BEST best; NORMALISE, NORM_EPS_BITS, NORM_FLOOR_BITS;
// SCALE_BITS; BAND_BITS of the sparse mixer; CORRECTED 1: `corrections` are added to the scores that choose; EACH 1: weights are
// multiplied with `each`, a value for each expert; QUANTISES 1: the WIDTH floats from GIVEN_OFFSET on, a multiple of 4 both,
// become out8, outs as quantise.wgsl leaves them, UNITS_K units. Row i of logits, ids, out, weights_out begins at float i * STRIDE + OFFSET.
#define CHOOSES WEIGH != 1
#define WEIGHS WEIGH != 0
#define ROUTER_THREADS THREADS
#define ALONE SUBGROUPS && THREADS == SUBGROUP_SIZE
@group(0) @binding(0) var<storage, read> logits : array<f32>;
#if !(CHOOSES)
@group(0) @binding(1) var<storage, read> ids : array<f32>;
#else
@group(0) @binding(1) var<storage, read_write> out : array<f32>;
#if CORRECTED
@group(0) @binding(2) var<storage, read> corrections : array<f32>;
#endif
#endif
#if WEIGHS
@group(0) @binding(3) var<storage, read_write> weights_out : array<f32>;
#if EACH
@group(0) @binding(4) var<storage, read> each : array<f32>;
#endif
#endif
#if QUANTISES
@group(0) @binding(5) var<storage, read> given : array<vec4f>;
@group(0) @binding(6) var<storage, read_write> out8 : array<u32>;
@group(0) @binding(7) var<storage, read_write> outs : array<vec2f>;
#include "quantise_vec.wgsl"
#endif
#include "routing.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
#if QUANTISES
  if (group.x > 0u) {
    let v = (group.x - 1u) * ${THREADS}u + t;
    var four = vec4f(0.0);
    if (v < ${WIDTH / 4}u) {
      four = given[${GIVEN_OFFSET / 4}u + v];
    }
    let made = quantise_vec(four, t);
    if (v < ${UNITS_K * 16}u) {
      out8[v] = made.word;
      if ((v & 7u) == 0u) {
        outs[v >> 3u] = vec2f(made.scale, made.scale * f32(made.sum));
      }
    }
    return;
  }
#endif
  let from_logits = group.y * ${LOGITS_STRIDE}u + ${LOGITS_OFFSET}u;
#if !(CHOOSES)
  let from_ids = group.y * ${IDS_STRIDE}u + ${IDS_OFFSET}u;
#endif
  let router = t;
#include "routing_steps.wgsl"
#for i in 0..CHOSEN
  if (t == ${i % THREADS}u) {
#if CHOOSES
    out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET + i}u] = f32(id${i});
#endif
#if WEIGHS && EACH
    weights_out[group.y * ${WEIGHTS_STRIDE}u + ${WEIGHTS_OFFSET + i}u] = w${i} * factor * each[id${i}];
#elif WEIGHS
    weights_out[group.y * ${WEIGHTS_STRIDE}u + ${WEIGHTS_OFFSET + i}u] = w${i} * factor;
#endif
  }
#endfor
}
