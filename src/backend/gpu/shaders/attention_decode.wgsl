// Attention of one new token: q and k norm, rotation, KV append, and a part of softmax(q k' scale) v. A workgroup takes one
// KV head with the G query heads that share it, and one split of the sequence (splits.wgsl); combine_prologue.wgsl
// puts the parts together. A position's score is made by LP threads, a quad of dimensions of the values by one of
// QUADS threads, in PG groups of positions. Workgroups: x over splits, y over KV heads.
// Source: Dao et al., "Flash-Decoding for long-context inference" (2023).
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> qkv : array<f32>;
@group(0) @binding(2) var<storage, read> angles : array<vec2f>;
#if KV_HALF
@group(0) @binding(3) var<storage, read_write> keys : array<vec4u>;
@group(0) @binding(4) var<storage, read_write> values : array<vec2u>;
#else
@group(0) @binding(3) var<storage, read_write> keys : array<vec4f>;
@group(0) @binding(4) var<storage, read_write> values : array<vec4f>;
#endif
@group(0) @binding(5) var<storage, read_write> parts : array<vec4f>;
@group(0) @binding(6) var<storage, read_write> marks : array<vec2f>;
#if QK_NORM
@group(0) @binding(7) var<storage, read> qk_weights : array<f32>;
#endif
#if EMIT
@group(0) @binding(8) var<storage, read_write> looked : array<f32>;
#endif
#if EMIT_SCORES
@group(0) @binding(9) var<storage, read_write> scores : array<f32>;
#endif
#define G HEADS / KV_HEADS
#define QUADS DIM / 4
#define THREADS QUADS * PG
#define AT_ONCE THREADS / LP
#define PASSES (CHUNK + AT_ONCE - 1) / AT_ONCE
#define V_LOADS CHUNK / PG
#if KV_HALF
#define K_VECS DIM / 8
#else
#define K_VECS DIM / 4
#endif
#define K_LOADS K_VECS / LP
#define SUBGROUPS_HERE THREADS / SUBGROUP_SIZE
#define QUAD_ROUNDS (QUADS + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE
#include "rope_angle.wgsl"
#include "splits.wgsl"

var<workgroup> sq : array<vec4f, ${G * QUADS}>;       // queries, times the scale
var<workgroup> sk : array<vec4f, ${QUADS}>;           // the new key and value, rounded as the cache has them
var<workgroup> sv : array<vec4f, ${QUADS}>;
var<workgroup> ss : array<f32, ${G * CHUNK}>;         // scores, then shares
var<workgroup> running : array<vec2f, ${G}>;          // maximum and sum of shares so far
var<workgroup> fades : array<f32, ${G}>;
var<workgroup> sums : array<vec4f, ${HEADS_AT_ONCE * THREADS}>;

fn row_of(slot : u32, kv_head : u32, position : u32) -> u32 {
  return (slot * ${KV_HEADS}u + kv_head) * ${CAPACITY}u + position % ${CAPACITY}u;
}
fn as_cached(v : vec4f) -> vec4f {
#if KV_HALF
  return vec4f(unpack2x16float(pack2x16float(v.xy)), unpack2x16float(pack2x16float(v.zw)));
#else
  return v;
#endif
}
#if KV_HALF
fn low_half(w : vec4u) -> vec4f { return vec4f(unpack2x16float(w.x), unpack2x16float(w.y)); }
fn high_half(w : vec4u) -> vec4f { return vec4f(unpack2x16float(w.z), unpack2x16float(w.w)); }
#endif
// The weight of a head's norm at a dimension; `of_key` 1 for the key's.
fn norm_weight(d : u32, of_key : u32) -> f32 {
#if QK_NORM
  return qk_weights[of_key * ${DIM}u + d];
#else
  return 1.0;
#endif
}

// One head's rotated vector from the projections, by the threads of one subgroup.
fn prepare_head(h : u32, kv_head : u32, position : u32, lane : u32, is_owner : bool) {
  let is_key = h == ${G}u;
  let of_key = select(0u, 1u, is_key);
  let head = select(kv_head * ${G}u + h, kv_head, is_key);
  let at = select(${Q_OFFSET}u, ${K_OFFSET}u, is_key) + head * ${DIM}u;
  var square = 0.0;
#for e in 0..QUAD_ROUNDS
  let d${e} = (lane + ${e * SUBGROUP_SIZE}u) * 4u;
  var x${e} = vec4f(0.0);
  if (d${e} < ${DIM}u) {
    x${e} = vec4f(qkv[at + d${e}], qkv[at + d${e} + 1u], qkv[at + d${e} + 2u], qkv[at + d${e} + 3u]);
  }
  square += dot(x${e}, x${e});
#endfor
#if QK_NORM
#for k in 0..8
#if (1 << k) < SUBGROUP_SIZE
  square += subgroupShuffleXor(square, ${1 << k}u);
#endif
#endfor
  let factor = inverseSqrt(square / ${DIM}.0 + bitcast<f32>(${EPS_BITS}u));
#else
  let factor = 1.0;
#endif
#for e in 0..QUAD_ROUNDS
  if (d${e} < ${DIM}u) {
    var turned = vec4f(0.0);
#for c in 0..4
    {
      let d = d${e} + ${c}u;
      let own = x${e}[${c}] * norm_weight(d, of_key) * factor;
      turned[${c}] = own;
#if EMIT && QK_NORM
      if (is_owner) {
        looked[select(${NORM_LOOK}u, ${NORM_LOOK + HEADS * DIM}u, is_key) + head * ${DIM}u + d] = own;
      }
#endif
      if (d < ${2 * PAIRS}u) {
        let p = rope_partner(d);
        let other = qkv[at + p] * norm_weight(p, of_key) * factor;
        let a = rope_angle(position, rope_pair(d));
        turned[${c}] = select(own * a.x + other * a.y, own * a.x - other * a.y, rope_is_first(d));
      }
#if EMIT
      if (is_owner) {
        looked[select(0u, ${HEADS * DIM}u, is_key) + head * ${DIM}u + d] = turned[${c}];
      }
#endif
    }
#endfor
    if (is_key) {
      sk[d${e} / 4u] = as_cached(turned);
    } else {
      sq[h * ${QUADS}u + d${e} / 4u] = turned * bitcast<f32>(${SCALE_BITS}u);
    }
  }
#endfor
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let kv_head = group.y;
  let slot = step[${SLOTS}u];
  let position = step[${POSITIONS}u];
  let range = splits_of(position);
  if (group.x >= range.count) {
    return;
  }
  let first = range.begin + group.x * range.each;
  let end = min(first + range.each, range.end);
  let is_owner = end == range.end;
  let lane = t % ${SUBGROUP_SIZE}u;
  let subgroup = t / ${SUBGROUP_SIZE}u;
  let part = t % ${LP}u;
  let quad = t % ${QUADS}u;
  let pg = t / ${QUADS}u;

  for (var h = subgroup; h <= ${G}u; h += ${SUBGROUPS_HERE}u) {
    prepare_head(h, kv_head, position, lane, is_owner);
  }
  if (t < ${QUADS}u) {
    let at = ${V_OFFSET}u + kv_head * ${DIM}u + 4u * t;
    sv[t] = as_cached(vec4f(qkv[at], qkv[at + 1u], qkv[at + 2u], qkv[at + 3u]));
  }
  if (t < ${G}u) {
    running[t] = vec2f(-3.0e38, 0.0);
  }
#for h in 0..G
  var sum${h} = vec4f(0.0);
#endfor
  workgroupBarrier();
  if (is_owner) {
    let row = row_of(slot, kv_head, position);
#if KV_HALF
    if (t < ${DIM / 8}u) {
      let a = sk[2u * t];
      let b = sk[2u * t + 1u];
      keys[row * ${K_VECS}u + t] = vec4u(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
    }
    if (t < ${QUADS}u) {
      values[row * ${QUADS}u + t] = vec2u(pack2x16float(sv[t].xy), pack2x16float(sv[t].zw));
    }
#else
    if (t < ${QUADS}u) {
      keys[row * ${QUADS}u + t] = sk[t];
      values[row * ${QUADS}u + t] = sv[t];
    }
#endif
  }

  for (var base = first; base < end; base += ${CHUNK}u) {
    let count = min(${CHUNK}u, end - base);
    // All loads of the chunk at once.
#for i in 0..PASSES
    let p${i} = ${i * AT_ONCE}u + t / ${LP}u;
    let kr${i} = row_of(slot, kv_head, min(base + p${i}, end - 1u)) * ${K_VECS}u + part;
#for l in 0..K_LOADS
    let k${i}_${l} = keys[kr${i} + ${l * LP}u];
#endfor
#endfor
#for j in 0..V_LOADS
    let v${j} = values[row_of(slot, kv_head, min(base + ${j * PG}u + pg, end - 1u)) * ${QUADS}u + quad];
#endfor
#for i in 0..PASSES
    {
      let fresh = base + p${i} == position;
#for h in 0..G
      var s${h} = 0.0;
#endfor
#for l in 0..K_LOADS
      {
        let vec = part + ${l * LP}u;
#if KV_HALF
        var a = low_half(k${i}_${l});
        var b = high_half(k${i}_${l});
        if (fresh) {
          a = sk[2u * vec];
          b = sk[2u * vec + 1u];
        }
#for h in 0..G
        s${h} += dot(a, sq[${h * QUADS}u + 2u * vec]) + dot(b, sq[${h * QUADS}u + 2u * vec + 1u]);
#endfor
#else
        var a = k${i}_${l};
        if (fresh) {
          a = sk[vec];
        }
#for h in 0..G
        s${h} += dot(a, sq[${h * QUADS}u + vec]);
#endfor
#endif
      }
#endfor
#for h in 0..G
#for k in 0..8
#if (1 << k) < LP
      s${h} += subgroupShuffleXor(s${h}, ${1 << k}u);
#endif
#endfor
#if SOFTCAP
      s${h} = bitcast<f32>(${SOFTCAP_BITS}u) * tanh(clamp(s${h} / bitcast<f32>(${SOFTCAP_BITS}u), -15.0, 15.0));
#endif
#endfor
#if CHUNK % AT_ONCE == 0
      if (part == 0u) {
#else
      if (part == 0u && p${i} < ${CHUNK}u) {
#endif
#for h in 0..G
        ss[${h * CHUNK}u + p${i}] = select(-3.0e38, s${h}, p${i} < count);
#if EMIT_SCORES
        if (p${i} < count) {
          scores[(kv_head * ${G}u + ${h}u) * step[2] + base + p${i}] = s${h};
        }
#endif
#endfor
      }
    }
#endfor
    workgroupBarrier();
    for (var h = subgroup; h < ${G}u; h += ${SUBGROUPS_HERE}u) {
      var most = -3.0e38;
      for (var i = lane; i < ${CHUNK}u; i += ${SUBGROUP_SIZE}u) {
        most = max(most, ss[h * ${CHUNK}u + i]);
      }
#for k in 0..8
#if (1 << k) < SUBGROUP_SIZE
      most = max(most, subgroupShuffleXor(most, ${1 << k}u));
#endif
#endfor
      let before = running[h];
      most = max(most, before.x);
      var total = 0.0;
      for (var i = lane; i < ${CHUNK}u; i += ${SUBGROUP_SIZE}u) {
        let share = select(0.0, exp(ss[h * ${CHUNK}u + i] - most), i < count);
        ss[h * ${CHUNK}u + i] = share;
        total += share;
      }
#for k in 0..8
#if (1 << k) < SUBGROUP_SIZE
      total += subgroupShuffleXor(total, ${1 << k}u);
#endif
#endfor
      if (lane == 0u) {
        let fade = exp(before.x - most);
        fades[h] = fade;
        running[h] = vec2f(most, before.y * fade + total);
      }
    }
    workgroupBarrier();
#for h in 0..G
    sum${h} *= fades[${h}];
#endfor
#for j in 0..V_LOADS
    {
      let at = ${j * PG}u + pg;
#if KV_HALF
      var v = vec4f(unpack2x16float(v${j}.x), unpack2x16float(v${j}.y));
#else
      var v = v${j};
#endif
      if (base + at == position) {
        v = sv[quad];
      }
#for h in 0..G
      sum${h} += ss[${h * CHUNK}u + at] * v;
#endfor
    }
#endfor
    workgroupBarrier();
  }

  // The groups' sums together, some heads at a time.
#for b in 0..(G + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE
#for h in b * HEADS_AT_ONCE..min(G, b * HEADS_AT_ONCE + HEADS_AT_ONCE)
  sums[${(h - b * HEADS_AT_ONCE) * THREADS}u + t] = sum${h};
#endfor
  workgroupBarrier();
  for (var i = t; i < ${(min(G, b * HEADS_AT_ONCE + HEADS_AT_ONCE) - b * HEADS_AT_ONCE) * QUADS}u; i += ${THREADS}u) {
    let h = i / ${QUADS}u;
    let q = i % ${QUADS}u;
    var total = sums[h * ${THREADS}u + q];
#for g in 1..PG
    total += sums[h * ${THREADS}u + ${g * QUADS}u + q];
#endfor
    let head = kv_head * ${G}u + ${b * HEADS_AT_ONCE}u + h;
    parts[(head * ${MOST_SPLITS}u + group.x) * ${QUADS}u + q] = total;
  }
  workgroupBarrier();
#endfor
  if (t < ${G}u) {
    marks[(kv_head * ${G}u + t) * ${MOST_SPLITS}u + group.x] = running[t];
  }
}
