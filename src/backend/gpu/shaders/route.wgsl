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
// become out8, outs as quantise.wgsl leaves them, UNITS_K units. Row i of x, ids, out, weights_out begins at float i * STRIDE + OFFSET.
#define CHOOSES WEIGH != 1
#define WEIGHS WEIGH != 0
// ALONE 1: the workgroup is a subgroup, whose threads keep their experts (t, t + THREADS, ...: OWN of them) in registers.
#define ALONE SUBGROUPS && THREADS == SUBGROUP_SIZE
#define OWN (EXPERTS + THREADS - 1) / THREADS
@group(0) @binding(0) var<storage, read> x : array<f32>;
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
#include "reduce.wgsl"

#if CHOOSES
#define SHUTS KEPT_GROUPS < GROUPS
#define GROUP_SIZE EXPERTS / GROUPS
#if SHUTS || !(ALONE)
var<workgroup> scores : array<f32, ${EXPERTS}>;
#endif
#if !(ALONE)
var<workgroup> taken : array<u32, ${EXPERTS}>;
var<workgroup> best_scores : array<f32, ${THREADS}>;
var<workgroup> best_ids : array<u32, ${THREADS}>;
#if WEIGHS
var<workgroup> chosen : array<u32, ${CHOSEN}>;
#endif
#endif
#if SHUTS
var<workgroup> group_scores : array<f32, ${GROUPS}>;
var<workgroup> kept : array<u32, ${GROUPS}>;
#endif
#endif

fn logistic(v : f32) -> f32 {
  return 1.0 / (1.0 + exp(-clamp(v, -80.0, 80.0)));
}

#if CHOOSES && ALONE
// Numbers in the order of the scores, above 0, which marks an expert that is taken or none.
fn key_of(score : f32) -> u32 {
  let bits = bitcast<u32>(select(score, 0.0, score == 0.0));
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}
#elif CHOOSES
// Whether expert b with score v goes before expert a with score u; 0xffffffff is none.
fn goes_before(v : f32, b : u32, u : f32, a : u32) -> bool {
  return b != 0xffffffffu && (a == 0xffffffffu || v > u || (v == u && b < a));
}
#endif

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
  let from_x = group.y * ${X_STRIDE}u + ${X_OFFSET}u;
#if CHOOSES
  let to = group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u;
#endif
#if ALONE
#for e in 0..OWN
  // e: the thread's expert, has: there is one, l: its logit.
  let e${e} = t + ${e * THREADS}u;
  let has${e} = e${e} < ${EXPERTS}u;
  let l${e} = select(-3.0e38, x[from_x + min(e${e}, ${EXPERTS - 1}u)], has${e});
#endfor
#endif
#if SCORE == 0
  // The softmax over all experts.
  var largest = -3.0e38;
  var sum = 0.0;
#if ALONE
#for e in 0..OWN
  largest = max(largest, l${e});
#endfor
  largest = subgroup_max(largest);
#for e in 0..OWN
  sum += select(0.0, exp(l${e} - largest), has${e});
#endfor
  let all = subgroup_sum(vec4f(sum, 0.0, 0.0, 0.0)).x;
#else
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
    largest = max(largest, x[from_x + e]);
  }
  largest = workgroup_max(largest, t);
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
    sum += exp(x[from_x + e] - largest);
  }
  let all = workgroup_sum(vec4f(sum, 0.0, 0.0, 0.0), t).x;
#endif
#endif
#if CHOOSES
#if ALONE
#for e in 0..OWN
#if SCORE == 0
  var score${e} = exp(l${e} - largest) / all;
#elif SCORE == 1
  var score${e} = logistic(l${e});
#else
  var score${e} = l${e};
#endif
#if CORRECTED
  score${e} += corrections[min(e${e}, ${EXPERTS - 1}u)];
#endif
#if SHUTS
  if (has${e}) {
    scores[e${e}] = score${e};
  }
#endif
#endfor
#else
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
#if SCORE == 0
    var score = exp(x[from_x + e] - largest) / all;
#elif SCORE == 1
    var score = logistic(x[from_x + e]);
#else
    var score = x[from_x + e];
#endif
#if CORRECTED
    score += corrections[e];
#endif
    scores[e] = score;
    taken[e] = 0u;
  }
#endif
#if SHUTS || !(ALONE)
  workgroupBarrier();
#endif
#if SHUTS
  for (var g = t; g < ${GROUPS}u; g += ${THREADS}u) {
    // The best ones are taken out one by one; those before the last are known by their score and place.
    var total = 0.0;
    var last_score = 3.0e38;
    var last = 0u;
    for (var i = 0u; i < ${GROUP_BEST}u && i < ${GROUP_SIZE}u; i++) {
      var found = 0xffffffffu;
      for (var e = g * ${GROUP_SIZE}u; e < (g + 1u) * ${GROUP_SIZE}u; e++) {
        let later = i == 0u || scores[e] < last_score || (scores[e] == last_score && e > last);
        if (later && (found == 0xffffffffu || scores[e] > scores[found])) {
          found = e;
        }
      }
      found = min(found, ${EXPERTS - 1}u);
      last_score = scores[found];
      last = found;
      total += last_score;
    }
    group_scores[g] = total;
    kept[g] = 0u;
  }
  workgroupBarrier();
  if (t == 0u) {
    for (var i = 0u; i < ${KEPT_GROUPS}u; i++) {
      var found = 0xffffffffu;
      for (var g = 0u; g < ${GROUPS}u; g++) {
        if (kept[g] == 0u && (found == 0xffffffffu || group_scores[g] > group_scores[found])) {
          found = g;
        }
      }
      kept[min(found, ${GROUPS - 1}u)] = 1u;
    }
  }
  workgroupBarrier();
#if !(ALONE)
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
    taken[e] = 1u - kept[e / ${GROUP_SIZE}u];
  }
  workgroupBarrier();
#endif
#endif
#if ALONE
#for e in 0..OWN
#if SHUTS
  var key${e} = select(0u, key_of(score${e}), has${e} && kept[min(e${e}, ${EXPERTS - 1}u) / ${GROUP_SIZE}u] == 1u);
#else
  var key${e} = select(0u, key_of(score${e}), has${e});
#endif
#endfor
#for i in 0..CHOSEN
  // The largest key that is left, and the first expert that has it.
  var most${i} = key0;
#for e in 1..OWN
  most${i} = max(most${i}, key${e});
#endfor
  most${i} = subgroupMax(most${i});
  var first${i} = 0xffffffffu;
#for e in 0..OWN
  first${i} = min(first${i}, select(0xffffffffu, e${e}, key${e} == most${i}));
#endfor
  let id${i} = min(subgroupMin(first${i}), ${EXPERTS - 1}u);
#for e in 0..OWN
  key${e} = select(key${e}, 0u, e${e} == id${i});
#endfor
  if (t == ${i % THREADS}u) {
    out[to + ${i}u] = f32(id${i});
  }
#endfor
#else
  for (var i = 0u; i < ${CHOSEN}u; i++) {
    var best = 0xffffffffu;
    var best_score = 0.0;
    for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
      if (taken[e] == 0u && goes_before(scores[e], e, best_score, best)) {
        best = e;
        best_score = scores[e];
      }
    }
    best_ids[t] = best;
    best_scores[t] = best_score;
    workgroupBarrier();
    for (var width = ${THREADS / 2}u; width > 0u; width /= 2u) {
      if (t < width && goes_before(best_scores[t + width], best_ids[t + width], best_scores[t], best_ids[t])) {
        best_scores[t] = best_scores[t + width];
        best_ids[t] = best_ids[t + width];
      }
      workgroupBarrier();
    }
    let id = min(best_ids[0], ${EXPERTS - 1}u);
    if (t == 0u) {
      taken[id] = 1u;
      out[to + i] = f32(id);
#if WEIGHS
      chosen[i] = id;
#endif
    }
    workgroupBarrier();
  }
#endif
#endif
#if WEIGHS
#if !(CHOOSES)
  let from_ids = group.y * ${IDS_STRIDE}u + ${IDS_OFFSET}u;
#elif !(ALONE)
  workgroupBarrier();
#endif
#for i in 0..CHOSEN
#if CHOOSES && !(ALONE)
  let id${i} = chosen[${i}];
#elif !(CHOOSES)
  let id${i} = min(u32(max(ids[from_ids + ${i}u], 0.0)), ${EXPERTS - 1}u);
#endif
#if SCORE == 0
  var w${i} = exp(x[from_x + id${i}] - largest) / all;
#elif SCORE == 1
  var w${i} = logistic(x[from_x + id${i}]);
#else
  var w${i} = x[from_x + id${i}];
#endif
#endfor
#if SCORE == 2
  var largest = w0;
#for i in 0..CHOSEN
  largest = max(largest, w${i});
#endfor
  var all = 0.0;
#for i in 0..CHOSEN
  w${i} = exp(w${i} - largest);
  all += w${i};
#endfor
#for i in 0..CHOSEN
  w${i} /= all;
#endfor
#elif SCORE == 3
  // The share of those within the band below the best; the second's without the first.
#for i in 0..2
  var near${i} = 0.0;
  for (var e = t; e < ${EXPERTS}u; e += ${THREADS}u) {
    let l = x[from_x + e];
    let within = (w${i} - l) / max(abs(l), w${i}) <= bitcast<f32>(${BAND_BITS}u);
    if (within && (${i}u == 0u || e != id0)) {
      near${i} += exp(l - w${i});
    }
  }
#if ALONE
  let all${i} = subgroup_sum(vec4f(near${i}, 0.0, 0.0, 0.0)).x;
#else
  let all${i} = workgroup_sum(vec4f(near${i}, 0.0, 0.0, 0.0), t).x;
#endif
#endfor
  w0 = 1.0 / all0;
  w1 = 1.0 / all1;
#endif
  var factor = bitcast<f32>(${SCALE_BITS}u);
#if NORMALISE
  var total = bitcast<f32>(${NORM_EPS_BITS}u);
#for i in 0..CHOSEN
  total += w${i};
#endfor
  factor /= max(total, bitcast<f32>(${NORM_FLOOR_BITS}u));
#endif
  let to_weights = group.y * ${WEIGHTS_STRIDE}u + ${WEIGHTS_OFFSET}u;
#for i in 0..CHOSEN
  if (t == ${i % THREADS}u) {
#if EACH
    weights_out[to_weights + ${i}u] = w${i} * factor * each[id${i}];
#else
    weights_out[to_weights + ${i}u] = w${i} * factor;
#endif
  }
#endfor
#endif
}
