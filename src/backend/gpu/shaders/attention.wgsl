// softmax(q k' * scale) v over a token's sequence or window, from the cache that holds the step's own keys and values
// already. One workgroup for a token and head; the sequence in tiles of THREADS positions, a position a thread for the
// scores, a dimension a thread for the values, softmax online. Workgroups: x over heads, y over tokens.
// Source: Vaswani et al. (2017); Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
//
// Template values (op_kernels.cpp, shader_values.cpp): HEADS, KV_HEADS heads of DIM values; CAPACITY, KV_HALF, PAGE_TABLE, PAGE_ROW see kv.wgsl;
// VALUE_DIM the first dims of a row of values, which count;
// WINDOW newest positions that are seen (0: all), or CHUNKED of the WINDOW positions from its last multiple on; SCALE_BITS, SOFTCAP_BITS bits of a float; SOFTCAP 1: scores are capped; ALIBI 1: see alibi.wgsl;
// EMIT_SCORES 1: scores are stored; SLOTS, POSITIONS words of `step` where the tokens' slots and positions begin.
// q, out: token i's row begins at float i * STRIDE + OFFSET, as HEADS x DIM, and x VALUE_DIM. scores: [token][head][position], step[2]
// positions each (the longest sequence of the step).
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> q : array<f32>;
#if KV_HALF
@group(0) @binding(2) var<storage, read> keys : array<u32>;
@group(0) @binding(3) var<storage, read> values : array<u32>;
#else
@group(0) @binding(2) var<storage, read> keys : array<f32>;
@group(0) @binding(3) var<storage, read> values : array<f32>;
#endif
@group(0) @binding(4) var<storage, read_write> out : array<f32>;
#if EMIT_SCORES
@group(0) @binding(5) var<storage, read_write> scores : array<f32>;
#endif
#if SINKS
@group(0) @binding(6) var<storage, read> sinks : array<f32>;  // a score for each head, of no position
#endif
#include "kv.wgsl"
#if ALIBI
#include "alibi.wgsl"
#endif
#include "reduce.wgsl"
#define DIMS_PER_THREAD (VALUE_DIM + THREADS - 1) / THREADS

var<workgroup> query : array<f32, ${DIM}>;  // this head of q
var<workgroup> shares : array<f32, ${THREADS}>;  // exp(score - maximum) of each position of the tile

// The score of the cache row that begins at word `row`; value_at: its value d.
fn score_of(row : u32) -> f32 {
  var sum = 0.0;
#if KV_HALF
  for (var w = 0u; w < ${KV_WORDS}u; w++) {
    let pair = unpack2x16float(keys[row + w]);
    sum += pair.x * query[2u * w];
    sum += pair.y * query[2u * w + 1u];
  }
#else
  for (var d = 0u; d < ${DIM}u; d++) {
    sum += keys[row + d] * query[d];
  }
#endif
  sum *= bitcast<f32>(${SCALE_BITS}u);
#if SOFTCAP
  // clamp() would make a number of NaN.
  let capped = bitcast<f32>(${SOFTCAP_BITS}u) * tanh(clamp(sum / bitcast<f32>(${SOFTCAP_BITS}u), -15.0, 15.0));
  sum = select(capped, sum, (bitcast<u32>(sum) & 0x7fffffffu) > 0x7f800000u);
#endif
  return sum;
}

fn value_at(row : u32, d : u32) -> f32 {
#if KV_HALF
  return unpack2x16float(values[row + (d >> 1u)])[d & 1u];
#else
  return values[row + d];
#endif
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let head = group.x;
  let kv_head = head / ${HEADS / KV_HEADS}u;
  let slot = step[${SLOTS}u + token];
  let position = step[${POSITIONS}u + token];
  for (var d = t; d < ${DIM}u; d += ${THREADS}u) {
    query[d] = q[token * ${Q_STRIDE}u + ${Q_OFFSET}u + head * ${DIM}u + d];
  }
  workgroupBarrier();
#if WINDOW && CHUNKED
  let first = position - position % ${WINDOW}u;
#elif WINDOW
  let first = select(0u, position + 1u - ${WINDOW}u, position + 1u > ${WINDOW}u);
#else
  let first = 0u;
#endif
  // Running maximum of the scores and sum of the shares, both rescaled by `fade` when the maximum grows;
  // sum<i>: the result's dimension t + i * THREADS.
#if SINKS
  var most = sinks[head];
  var total = 1.0;
#else
  var most = -3.0e38;
  var total = 0.0;
#endif
#for i in 0..DIMS_PER_THREAD
  var sum${i} = 0.0;
#endfor
  for (var base = first; base <= position; base += ${THREADS}u) {
    let at = base + t;
    var score = -3.0e38;
    if (at <= position) {
      score = score_of(kv_row(slot, kv_head, at));
#if ALIBI
      score += alibi(head, at, position);
#endif
#if EMIT_SCORES
      scores[(token * ${HEADS}u + head) * step[2] + at] = score;
#endif
    }
    let now = max(most, workgroup_max(score, t));
    let share = select(0.0, exp(score - now), at <= position);
    shares[t] = share;
    let fade = exp(most - now);
    total = total * fade + workgroup_sum(vec4f(share, 0.0, 0.0, 0.0), t).x;
    most = now;
    let count = min(${THREADS}u, position + 1u - base);
#for i in 0..DIMS_PER_THREAD
    sum${i} *= fade;
    if (t + ${i * THREADS}u < ${VALUE_DIM}u) {
      for (var j = 0u; j < count; j++) {
        sum${i} += shares[j] * value_at(kv_row(slot, kv_head, base + j), t + ${i * THREADS}u);
      }
    }
#endfor
    workgroupBarrier();
  }
  let to = token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + head * ${VALUE_DIM}u;
#for i in 0..DIMS_PER_THREAD
  if (t + ${i * THREADS}u < ${VALUE_DIM}u) {
    out[to + t + ${i * THREADS}u] = sum${i} / total;
  }
#endfor
}
