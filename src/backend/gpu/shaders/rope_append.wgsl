// The steps between the q, k, v products and attention: norms of q's and k's heads (NORM), the turn by the position, and
// the cache. TPH threads take a head of a token, HPW heads a workgroup; heads are those of q, then of k, then of v. q goes
// to q_out, k and v only into the cache; EMIT also stores normed q and k, and turned k.
// Workgroups: x over heads, y over tokens. Sources: see norm.wgsl, rope.wgsl.
//
// Template values (batch_fused.cpp): TPH 32 to 128; HPW, 1 if NORM; HEADS of q, KV_HEADS of k and of v, DIM values each;
// PAIRS, HIGH_ROWS, INTERLEAVED see rope_angle.wgsl; CAPACITY, KV_HALF, PAGE_TABLE, PAGE_ROW see kv.wgsl; SLOTS, POSITIONS words of `step` where
// the tokens' slots and positions begin. Token i's row of a buffer begins at float i * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> qkv : array<f32>;
@group(0) @binding(2) var<storage, read> angles : array<vec2f>;
@group(0) @binding(3) var<storage, read_write> q_out : array<f32>;
#if KV_HALF
@group(0) @binding(4) var<storage, read_write> keys : array<u32>;
@group(0) @binding(5) var<storage, read_write> values : array<u32>;
#else
@group(0) @binding(4) var<storage, read_write> keys : array<vec2f>;
@group(0) @binding(5) var<storage, read_write> values : array<vec2f>;
#endif
#if NORM
@group(0) @binding(6) var<storage, read> q_weight : array<f32>;
@group(0) @binding(7) var<storage, read> k_weight : array<f32>;
#if EMIT
@group(0) @binding(8) var<storage, read_write> q_normed : array<f32>;
@group(0) @binding(9) var<storage, read_write> k_normed : array<f32>;
#endif
#endif
#if EMIT
@group(0) @binding(10) var<storage, read_write> k_out : array<f32>;
#endif
#include "rope_angle.wgsl"
#include "kv.wgsl"
// EACH values of a head that a thread takes; TOTAL heads of a token.
#define THREADS TPH * HPW
#define EACH (DIM + TPH - 1) / TPH
#define TOTAL HEADS + 2 * KV_HEADS
#if NORM
#include "reduce.wgsl"
#endif

var<workgroup> head_values : array<f32, ${HPW * DIM}>;  // [head of the workgroup][DIM]

// Value d of the head at `at` of head_values, rotated.
fn turned(at : u32, d : u32, position : u32) -> f32 {
  let own = head_values[at + d];
  if (d >= ${2 * PAIRS}u) {
    return own;
  }
  let a = rope_angle(position, rope_pair(d));
  let other = head_values[at + rope_partner(d)];
  return select(own * a.x + other * a.y, own * a.x - other * a.y, rope_is_first(d));
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let head = group.x * ${HPW}u + t / ${TPH}u;
  let lane = t % ${TPH}u;
  let at = t / ${TPH}u * ${DIM}u;
  let is_q = head < ${HEADS}u;
  let is_k = !is_q && head < ${HEADS + KV_HEADS}u;
  let kv_head = (head - ${HEADS}u) % ${KV_HEADS}u;
  var from_x = token * ${QKV_STRIDE}u;
  if (is_q) {
    from_x += ${Q_OFFSET}u + head * ${DIM}u;
  } else if (is_k) {
    from_x += ${K_OFFSET}u + kv_head * ${DIM}u;
  } else {
    from_x += ${V_OFFSET}u + kv_head * ${DIM}u;
  }
#if NORM
  var squares = 0.0;
#endif
#for e in 0..EACH
  var x${e} = 0.0;
  if (lane + ${e * TPH}u < ${DIM}u && head < ${TOTAL}u) {
    x${e} = qkv[from_x + lane + ${e * TPH}u];
  }
#if NORM
  squares += x${e} * x${e};
#endif
#endfor
#if NORM
  let factor = 1.0 / sqrt(workgroup_sum(vec4f(squares, 0.0, 0.0, 0.0), t).x / ${DIM}.0 + bitcast<f32>(${EPS_BITS}u));
#endif
#for e in 0..EACH
  if (lane + ${e * TPH}u < ${DIM}u) {
#if NORM
    if (is_q) {
      x${e} = x${e} * factor * q_weight[lane + ${e * TPH}u];
#if EMIT
      q_normed[token * ${QN_STRIDE}u + ${QN_OFFSET}u + head * ${DIM}u + lane + ${e * TPH}u] = x${e};
#endif
    } else if (is_k) {
      x${e} = x${e} * factor * k_weight[lane + ${e * TPH}u];
#if EMIT
      k_normed[token * ${KN_STRIDE}u + ${KN_OFFSET}u + kv_head * ${DIM}u + lane + ${e * TPH}u] = x${e};
#endif
    }
#endif
    head_values[at + lane + ${e * TPH}u] = x${e};
  }
#endfor
  workgroupBarrier();
  if (head >= ${TOTAL}u) {
    return;
  }
  let position = step[${POSITIONS}u + token];
  let row = cache_row(step[${SLOTS}u + token], kv_head, position) * ${DIM / 2}u;
  for (var w = lane; w < ${DIM / 2}u; w += ${TPH}u) {
    var pair = vec2f(head_values[at + 2u * w], head_values[at + 2u * w + 1u]);
    if (is_q || is_k) {
      pair = vec2f(turned(at, 2u * w, position), turned(at, 2u * w + 1u, position));
    }
    if (is_q) {
      let to = token * ${Q_OUT_STRIDE}u + ${Q_OUT_OFFSET}u + head * ${DIM}u + 2u * w;
      q_out[to] = pair.x;
      q_out[to + 1u] = pair.y;
    } else if (is_k) {
#if KV_HALF
      keys[row + w] = pack2x16float(pair);
#else
      keys[row + w] = pair;
#endif
#if EMIT
      let to = token * ${K_OUT_STRIDE}u + ${K_OUT_OFFSET}u + kv_head * ${DIM}u + 2u * w;
      k_out[to] = pair.x;
      k_out[to + 1u] = pair.y;
#endif
    } else {
#if KV_HALF
      values[row + w] = pack2x16float(pair);
#else
      values[row + w] = pair;
#endif
    }
  }
}
