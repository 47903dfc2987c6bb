// Attention of one new token of each sequence: q and k norm, rotation, KV append, and a part of softmax(q k' scale) v. A workgroup takes
// G = HEADS_EACH query heads that share a KV head, and every WORKGROUPS-th split of the sequence (splits.wgsl); combined.wgsl
// puts the parts together. Positions are dealt out to PG rows of LP threads, each of which has the same dimensions of a key, a value and the sums;
// a row has a softmax of its own, and the rows' are put together in the end, so that only then a thread waits for others of its workgroup.
// Workgroups: x WORKGROUPS, y over groups of G heads, z over tokens.
// Source: Dao et al., "Flash-Decoding for long-context inference" (2023).
//
// Template values (decode_attention.cpp):
//   LP threads of a row: 1 to 32, a power of two; PG rows; ROUNDS positions of a row at a time; AT_ONCE heads whose
//   rows are put together at a time, a part of G
//   HEADS, KV_HEADS heads of DIM values; CAPACITY, KV_HALF, PAGE_TABLE, PAGE_ROW see kv.wgsl; MOST_SPLITS, WINDOW see splits.wgsl
//   PAIRS that turn (0: no rotation), HIGH_ROWS, INTERLEAVED see rope_angle.wgsl; QK_NORM 1: q and k have norms
//   SCALE_BITS, SOFTCAP_BITS, EPS_BITS bits of a float; SOFTCAP 1: scores are capped; ALIBI 1: see alibi.wgsl; SLOTS, POSITIONS words of `step`
//   Q_OFFSET, K_OFFSET, V_OFFSET floats of qkv where the heads of each begin; EMIT_ROPE, EMIT_NORM 1: stored for taps
//   MANY 1: for several tokens, QKV_STRIDE floats apart in qkv, else for one; ATTEND 0 (x 1): only appends, APPEND 0: only attends, where
//   several of a sequence are appended before any attends
// Buffers: qkv the token's projections; keys, values the layer's cache, 8 (f16) or 4 (f32) values an element;
// qk_weights DIM of q's norm, then DIM of k's; parts, marks see combined.wgsl; looked [q_rope][k_rope][q_norm][k_norm].
//
// Where pairs are half a head apart and whole quads turn alike, a quad's partners and angles are quads too.
#define QUAD_ROPE !INTERLEAVED && PAIRS % 4 == 0
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> qkv : array<vec4f>;
#if QUAD_ROPE
@group(0) @binding(2) var<storage, read> angles : array<vec4f>;
#else
@group(0) @binding(2) var<storage, read> angles : array<vec2f>;
#endif
#if KV_HALF
@group(0) @binding(3) var<storage, read_write> keys : array<vec4u>;
@group(0) @binding(4) var<storage, read_write> values : array<vec4u>;
@group(0) @binding(5) var<storage, read_write> parts : array<vec2u>;
#else
@group(0) @binding(3) var<storage, read_write> keys : array<vec4f>;
@group(0) @binding(4) var<storage, read_write> values : array<vec4f>;
@group(0) @binding(5) var<storage, read_write> parts : array<vec4f>;
#endif
@group(0) @binding(6) var<storage, read_write> marks : array<vec2f>;
#if QK_NORM
@group(0) @binding(7) var<storage, read> qk_weights : array<vec4f>;
#endif
#if EMIT_ROPE || EMIT_NORM
@group(0) @binding(8) var<storage, read_write> looked : array<vec4f>;  // q_rope, k_rope, q_norm, k_norm
#endif
// G query heads of a workgroup, SHARES workgroups of a KV head; ROUNDS positions of a row at a time; K_VECS elements of a key, K_LOADS of them a
// thread, EACH quads of an element; QUAD_ROUNDS quads of a head a thread of a team.
#default APPEND 1
#default ATTEND 1
#define G HEADS_EACH
#define SHARES HEADS / KV_HEADS / G
#define QUADS DIM / 4
#define THREADS LP * PG
#if KV_HALF
#define K_VECS DIM / 8
#define EACH 2
#else
#define K_VECS DIM / 4
#define EACH 1
#endif
#define K_LOADS K_VECS / LP
// No more threads to a team than a head has quads, so that fewer heads wait for a second turn.
#define WIDEST_TEAM 8 << ((QUADS > 8) + (QUADS > 16) + (QUADS > 32) + (QUADS > 64))
#include "team.wgsl"
#include "plus_products.wgsl"
#define TEAMS THREADS / TEAM
#define QUAD_ROUNDS (QUADS + TEAM - 1) / TEAM
#define HEAD_ROUNDS (G + TEAMS) / TEAMS
#define V_ROUNDS (QUADS + THREADS - 1) / THREADS
#default WORKGROUPS MOST_SPLITS
#define SEVERAL WORKGROUPS < MOST_SPLITS
#if !QUAD_ROPE
#include "rope_angle.wgsl"
#endif
#include "splits.wgsl"
#include "kv.wgsl"
#if ALIBI
#include "alibi.wgsl"
#endif

var<workgroup> sq : array<vec4f, ${G * QUADS}>;       // queries [h][quad], times the scale
var<workgroup> sk : array<vec4f, ${QUADS}>;           // the new key and value, rounded as the cache has them
var<workgroup> sv : array<vec4f, ${QUADS}>;
var<workgroup> row_softmax : array<vec2f, ${PG * AT_ONCE}>;       // [row][h of AT_ONCE]: maximum, sum of shares
var<workgroup> row_sums : array<vec4f, ${PG * AT_ONCE * QUADS}>;  // [row][h of AT_ONCE][quad]
// Scores that threads of a row add up where subgroups cannot.
#define BY_MEMORY TOGETHER && LP > 1
#if BY_MEMORY
var<workgroup> lane_scores : array<f32, ${ROUNDS * G * THREADS}>;
#endif

// Rounded to what the cache can hold.
fn as_cached(v : vec4f) -> vec4f {
#if KV_HALF
  return vec4f(unpack2x16float(pack2x16float(v.xy)), unpack2x16float(pack2x16float(v.zw)));
#else
  return v;
#endif
}
#if KV_HALF
fn low_half(w : vec4u) -> vec4f { return vec4f(unpack2x16float(w.x), unpack2x16float(w.y)); }  // of eight f16 the first four
fn high_half(w : vec4u) -> vec4f { return vec4f(unpack2x16float(w.z), unpack2x16float(w.w)); }  // and the last four
fn as_halves(a : vec4f, b : vec4f) -> vec4u {
  return vec4u(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}
#endif
#if QUAD_ROPE
// A quad `own` rotated with its partner quad `other`; each argument high.., low.. has (cos, sin) of two pairs, for the two
// parts of the position (rope_angle.wgsl). is_first: own is the first half of its pairs.
fn turn(own : vec4f, other : vec4f, high01 : vec4f, high23 : vec4f, low01 : vec4f, low23 : vec4f, is_first : bool) -> vec4f {
  let hc = vec4f(high01.x, high01.z, high23.x, high23.z);
  let hs = vec4f(high01.y, high01.w, high23.y, high23.w);
  let lc = vec4f(low01.x, low01.z, low23.x, low23.z);
  let ls = vec4f(low01.y, low01.w, low23.y, low23.w);
  let c = fma(hc, lc, -(hs * ls));
  let s = fma(hs, lc, hc * ls);
  return fma(own, c, other * select(s, -s, is_first));
}
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let first_head = group.y * ${G}u;
  let kv_head = group.y / ${SHARES}u;
#if MANY
  let token = group.z;
  let from_x = token * ${QKV_STRIDE / 4}u;
#else
  let token = 0u;
  let from_x = 0u;
#endif
  let team = t / ${TEAM}u;
#if ALONE_ROW
  // The page of this split while splits are pages: known with the position, not after it.
  let likely_page = step[${ALONE_ROW}u + min(group.x, ${PAGE_ROW - 1}u)];
#endif
  let slot = step[${SLOTS}u + token];
  let position = step[${POSITIONS}u + token];
  let range = splits_of(position);
  if (group.x >= range.count) {
    return;
  }
#if ATTEND
  let is_owner = (range.count - 1u) % ${WORKGROUPS}u == group.x;
#else
  let is_owner = true;
#endif
#if SEVERAL
  var first = range.begin + group.x * range.each;
  var end = min(first + range.each, range.end);
#else
  let first = range.begin + group.x * range.each;
  let end = min(first + range.each, range.end);
#endif
  let part = t % ${LP}u;
  let row = t / ${LP}u;

  // Whatever is read is under way before any of it is used: first keys and values (k, v), of which the next ones are while these are used, and
  // the next split's after the last ones.
#for r in 0..ROUNDS
  let at_first${r} = min(first + row + ${r * PG}u, end - 1u);
#if ALONE_ROW
  var page${r} = likely_page;
  if (at_first${r} / ${CAPACITY}u != group.x) {
    page${r} = block_of(slot, at_first${r});
  }
  let from${r} = row_in(page${r}, kv_head, at_first${r}) * ${K_VECS}u + part;
#else
  let from${r} = cache_row(slot, kv_head, at_first${r}) * ${K_VECS}u + part;
#endif
#for l in 0..K_LOADS
  var k${r}_${l} = keys[from${r} + ${l * LP}u];
#endfor
#for l in 0..K_LOADS
  var v${r}_${l} = values[from${r} + ${l * LP}u];
#endfor
#endfor
  // A team prepares query heads of the G from first_head on, and the key (turn G; beyond: nothing is left): of head n and quad d<e>, x its values and w their norm weights, p its partner quad with y and u the same, high and low the angles.
#for e in 0..QUAD_ROUNDS
  let quad${e} = t % ${TEAM}u + ${e * TEAM}u;
  let d${e} = min(quad${e}, ${QUADS - 1}u);
#if QUAD_ROPE
  let turns${e} = d${e} < ${PAIRS / 2}u;
  let is_first${e} = d${e} < ${PAIRS / 4}u;
  let p${e} = select(d${e}, select(d${e} - ${PAIRS / 4}u, d${e} + ${PAIRS / 4}u, is_first${e}), turns${e});
#endif
#endfor
#for n in 0..HEAD_ROUNDS
  let turn${n} = team + ${n * TEAMS}u;
  let is_key${n} = turn${n} >= ${G}u;
  let head${n} = select(first_head + turn${n}, kv_head, is_key${n});
  let at${n} = from_x + select(${Q_OFFSET / 4}u, ${K_OFFSET / 4}u, is_key${n}) + head${n} * ${QUADS}u;
#if QK_NORM
  let weights_at${n} = select(0u, ${QUADS}u, is_key${n});
#endif
#for e in 0..QUAD_ROUNDS
  let x${n}_${e} = qkv[at${n} + d${e}];
#if QUAD_ROPE
  let y${n}_${e} = qkv[at${n} + p${e}];
#endif
#if QK_NORM
  let w${n}_${e} = qk_weights[weights_at${n} + d${e}];
#if QUAD_ROPE
  let u${n}_${e} = qk_weights[weights_at${n} + p${e}];
#endif
#endif
#endfor
#endfor
#for i in 0..V_ROUNDS
  let new_v${i} = qkv[from_x + ${V_OFFSET / 4}u + kv_head * ${QUADS}u + min(t + ${i * THREADS}u, ${QUADS - 1}u)];
#endfor
#if QUAD_ROPE
#for e in 0..QUAD_ROUNDS
  let pair${e} = select(0u, min(d${e}, p${e}) * 2u, turns${e});
  let high${e}a = angles[(position >> 8u) * ${PAIRS / 2}u + pair${e}];
  let high${e}b = angles[(position >> 8u) * ${PAIRS / 2}u + pair${e} + 1u];
  let low${e}a = angles[(${HIGH_ROWS}u + (position & 255u)) * ${PAIRS / 2}u + pair${e}];
  let low${e}b = angles[(${HIGH_ROWS}u + (position & 255u)) * ${PAIRS / 2}u + pair${e} + 1u];
#endfor
#endif
#for n in 0..HEAD_ROUNDS
#if QK_NORM
  var square${n} = 0.0;
#for e in 0..QUAD_ROUNDS
  square${n} += select(0.0, four_products(x${n}_${e}, x${n}_${e}), quad${e} < ${QUADS}u);
#endfor
  let factor${n} = inverseSqrt(team_sum(square${n}, t) / ${DIM}.0 + bitcast<f32>(${EPS_BITS}u));
#endif
#for e in 0..QUAD_ROUNDS
  if (turn${n} <= ${G}u && quad${e} < ${QUADS}u) {
#if QK_NORM
    let own = x${n}_${e} * w${n}_${e} * factor${n};
#else
    let own = x${n}_${e};
#endif
    var turned = own;
#if QUAD_ROPE
    if (turns${e}) {
#if QK_NORM
      let other = y${n}_${e} * u${n}_${e} * factor${n};
#else
      let other = y${n}_${e};
#endif
      turned = turn(own, other, high${e}a, high${e}b, low${e}a, low${e}b, is_first${e});
    }
#else
#for c in 0..4
    {
      let d = d${e} * 4u + ${c}u;
      if (d < ${2 * PAIRS}u) {
        let p = rope_partner(d);
        var other = qkv[at${n} + p / 4u][p % 4u];
#if QK_NORM
        other *= qk_weights[weights_at${n} + p / 4u][p % 4u] * factor${n};
#endif
        let a = rope_angle(position, rope_pair(d));
        turned[${c}] = fma(own[${c}], a.x, select(other * a.y, -(other * a.y), rope_is_first(d)));
      }
    }
#endfor
#endif
#if EMIT_ROPE || EMIT_NORM
    if (is_owner) {
      let to = select(0u, ${HEADS * QUADS}u, is_key${n}) + head${n} * ${QUADS}u + d${e};
#if EMIT_ROPE
      looked[to] = turned;
#endif
#if EMIT_NORM
      looked[${(HEADS + KV_HEADS) * QUADS}u + to] = own;
#endif
    }
#endif
    if (is_key${n}) {
      sk[d${e}] = as_cached(turned);
    } else {
      sq[turn${n} * ${QUADS}u + d${e}] = turned * bitcast<f32>(${SCALE_BITS}u);
    }
  }
#endfor
#endfor
#for i in 0..V_ROUNDS
  if (t + ${i * THREADS}u < ${QUADS}u) {
    sv[t + ${i * THREADS}u] = as_cached(new_v${i});
  }
#endfor
  workgroupBarrier();
#if APPEND
  if (is_owner && group.y % ${SHARES}u == 0u) {
    let to = cache_row(slot, kv_head, position) * ${K_VECS}u;
    for (var i = t; i < ${K_VECS}u; i += ${THREADS}u) {
#if KV_HALF
      keys[to + i] = as_halves(sk[2u * i], sk[2u * i + 1u]);
      values[to + i] = as_halves(sv[2u * i], sv[2u * i + 1u]);
#else
      keys[to + i] = sk[i];
      values[to + i] = sv[i];
#endif
    }
  }
#endif
  if (${ATTEND}u == 0u) {
    return;
  }
  // The thread's dimensions of the queries.
#for h in 0..G
#for l in 0..K_LOADS
#for e in 0..EACH
  let q${h}_${l}_${e} = sq[${h * QUADS}u + (part + ${l * LP}u) * ${EACH}u + ${e}u];
#endfor
#endfor
#endfor

#if SEVERAL
  for (var split = group.x; split < range.count; split += ${WORKGROUPS}u) {
  let later = first + ${WORKGROUPS}u * range.each;
  let later_end = select(end, min(later + range.each, range.end), later < range.end);
#else
  let split = group.x;
#endif
#for h in 0..G
  var most${h} = -3.0e38;
  var total${h} = 0.0;
#for l in 0..K_LOADS
#for e in 0..EACH
  var sum${h}_${l}_${e} = vec4f(0.0);
#endfor
#endfor
#endfor
  for (var base = first; base < end; base += ${ROUNDS * PG}u) {
#for r in 0..ROUNDS
#for h in 0..G
    var s${r}_${h} = 0.0;
#endfor
#endfor
#for r in 0..ROUNDS
    let p${r} = base + row + ${r * PG}u;
    // Beyond the end a share is 0, but 0 times what a row holds that was never written may be NaN.
    let fresh${r} = p${r} >= position;
    let seen${r} = p${r} < end;
#for l in 0..K_LOADS
    {
      let at_quad = (part + ${l * LP}u) * ${EACH}u;
#if KV_HALF
      let a = select(low_half(k${r}_${l}), sk[at_quad], fresh${r});
      let b = select(high_half(k${r}_${l}), sk[at_quad + 1u], fresh${r});
#for h in 0..G
#if l
      s${r}_${h} = plus_products(plus_products(s${r}_${h}, a, q${h}_${l}_0), b, q${h}_${l}_1);
#else
      s${r}_${h} = plus_products(four_products(a, q${h}_${l}_0), b, q${h}_${l}_1);
#endif
#endfor
#else
      let a = select(k${r}_${l}, sk[at_quad], fresh${r});
#for h in 0..G
#if l
      s${r}_${h} = plus_products(s${r}_${h}, a, q${h}_${l}_0);
#else
      s${r}_${h} = four_products(a, q${h}_${l}_0);
#endif
#endfor
#endif
    }
#endfor
#endfor
#if BY_MEMORY
    workgroupBarrier();  // all have read those of the round before
#for r in 0..ROUNDS
#for h in 0..G
    lane_scores[${(r * G + h) * THREADS}u + t] = s${r}_${h};
#endfor
#endfor
    workgroupBarrier();
#for r in 0..ROUNDS
#for h in 0..G
    s${r}_${h} = lane_scores[${(r * G + h) * THREADS}u + row * ${LP}u];
#for k in 1..LP
    s${r}_${h} += lane_scores[${(r * G + h) * THREADS + k}u + row * ${LP}u];
#endfor
#endfor
#endfor
#else
#for k in 0..8
#if (1 << k) < LP
#for r in 0..ROUNDS
#for h in 0..G
    s${r}_${h} += subgroupShuffleXor(s${r}_${h}, ${1 << k}u);
#endfor
#endfor
#endif
#endfor
#endif
#for r in 0..ROUNDS
#for h in 0..G
#if SOFTCAP
    {
      // clamp() would make a number of NaN.
      let capped = bitcast<f32>(${SOFTCAP_BITS}u) * tanh(clamp(s${r}_${h} / bitcast<f32>(${SOFTCAP_BITS}u), -15.0, 15.0));
      s${r}_${h} = select(capped, s${r}_${h}, (bitcast<u32>(s${r}_${h}) & 0x7fffffffu) > 0x7f800000u);
    }
#endif
#if ALIBI
    s${r}_${h} += alibi(first_head + ${h}u, min(p${r}, position), position);
#endif
    s${r}_${h} = select(-3.0e38, s${r}_${h}, seen${r});
#endfor
#endfor
    // The values are at hand as floats, and the next keys and values under way.
#for r in 0..ROUNDS
#for l in 0..K_LOADS
#if KV_HALF
    let u${r}_${l}_0 = select(low_half(v${r}_${l}), sv[(part + ${l * LP}u) * 2u], fresh${r});
    let u${r}_${l}_1 = select(high_half(v${r}_${l}), sv[(part + ${l * LP}u) * 2u + 1u], fresh${r});
#else
    let u${r}_${l}_0 = select(v${r}_${l}, sv[part + ${l * LP}u], fresh${r});
#endif
#endfor
#endfor
#if SEVERAL
    let goes_on = base + ${ROUNDS * PG}u < end;
    let next = select(later, base + ${ROUNDS * PG}u, goes_on);
    let last = select(later_end, end, goes_on) - 1u;
#else
    let next = base + ${ROUNDS * PG}u;
    let last = end - 1u;
#endif
#for r in 0..ROUNDS
    let next${r} = cache_row(slot, kv_head, min(next + row + ${r * PG}u, last)) * ${K_VECS}u + part;
#for l in 0..K_LOADS
    k${r}_${l} = keys[next${r} + ${l * LP}u];
#endfor
#for l in 0..K_LOADS
    v${r}_${l} = values[next${r} + ${l * LP}u];
#endfor
#endfor
#for h in 0..G
    {
      var most = most${h};
#for r in 0..ROUNDS
      most = max(most, s${r}_${h});
#endfor
      let fade = exp(most${h} - most);
      most${h} = most;
#for r in 0..ROUNDS
      let share${r} = select(0.0, exp(s${r}_${h} - most), seen${r});
#endfor
      total${h} = fma(total${h}, fade, share0);
#for r in 1..ROUNDS
      total${h} += share${r};
#endfor
#for l in 0..K_LOADS
#for e in 0..EACH
      sum${h}_${l}_${e} *= fade;
#for r in 0..ROUNDS
      sum${h}_${l}_${e} = fma(vec4f(share${r}), u${r}_${l}_${e}, sum${h}_${l}_${e});
#endfor
#endfor
#endfor
    }
#endfor
  }

  // The rows' sums together, AT_ONCE heads at a time.
#for c in 0..G / AT_ONCE
#if c
  workgroupBarrier();  // all have read those of the heads before
#endif
#for h in c * AT_ONCE..(c + 1) * AT_ONCE
  if (part == 0u) {
    row_softmax[row * ${AT_ONCE}u + ${h - c * AT_ONCE}u] = vec2f(most${h}, total${h});
  }
#for l in 0..K_LOADS
#for e in 0..EACH
  row_sums[(row * ${AT_ONCE}u + ${h - c * AT_ONCE}u) * ${QUADS}u + (part + ${l * LP}u) * ${EACH}u + ${e}u] = sum${h}_${l}_${e};
#endfor
#endfor
#endfor
  workgroupBarrier();
  for (var i = t; i < ${AT_ONCE * QUADS}u; i += ${THREADS}u) {
    let h = i / ${QUADS}u;
    let q = i % ${QUADS}u;
    var most = -3.0e38;
#for g in 0..PG
    let own${g} = row_softmax[${g * AT_ONCE}u + h];
    most = max(most, own${g}.x);
#endfor
    var shares = 0.0;
    var total = vec4f(0.0);
#for g in 0..PG
    {
      let fade = exp(own${g}.x - most);
      shares = fma(own${g}.y, fade, shares);
      total = fma(row_sums[${g * AT_ONCE * QUADS}u + i], vec4f(fade), total);
    }
#endfor
    let head = token * ${HEADS}u + first_head + ${c * AT_ONCE}u + h;
    let mean = total / shares;
    let to = (head * ${MOST_SPLITS}u + split) * ${QUADS}u + q;
#if KV_HALF
    parts[to] = vec2u(pack2x16float(mean.xy), pack2x16float(mean.zw));
#else
    parts[to] = mean;
#endif
    if (q == 0u) {
      marks[head * ${MOST_SPLITS}u + split] = vec2f(most, shares);
    }
  }
#endfor
#if SEVERAL
  workgroupBarrier();  // all have read the rows' sums
  first = later;
  end = later_end;
  }
#endif
}
