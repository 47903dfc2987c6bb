// Attention of one new token of each sequence: q and k norm, rotation, KV append, and a part of softmax(q k' scale) v. A workgroup takes
// G query heads that share a KV head (HEADS_EACH, or all that do), and every WORKGROUPS-th split of the sequence (splits.wgsl); combined.wgsl
// puts the parts together. A position's score is made by LP threads, a quad of dimensions of the values by one of
// QUADS threads, in PG groups of positions. Workgroups: x WORKGROUPS, y over groups of G heads, z over tokens.
// Source: Dao et al., "Flash-Decoding for long-context inference" (2023).
//
// Template values (decode_attention.cpp):
//   LP threads that share a position's score: 1 to 16, a power of two; PG groups of positions for the values: 1 to 32
//   CHUNK positions at a time; HEADS_AT_ONCE heads whose sums are added at a time, as workgroup memory allows
//   HEADS, KV_HEADS heads of DIM values; CAPACITY, KV_HALF, PAGE_TABLE, PAGE_ROW see kv.wgsl; MOST_SPLITS, WINDOW see splits.wgsl
//   PAIRS that turn (0: no rotation), HIGH_ROWS, INTERLEAVED see rope_angle.wgsl; QK_NORM 1: q and k have norms
//   SCALE_BITS, SOFTCAP_BITS, EPS_BITS bits of a float; SOFTCAP 1: scores are capped; ALIBI 1: see alibi.wgsl; SLOTS, POSITIONS words of `step`
//   Q_OFFSET, K_OFFSET, V_OFFSET floats of qkv where the heads of each begin; EMIT_ROPE, EMIT_NORM 1: stored for taps
//   MANY 1: for several tokens, QKV_STRIDE floats apart in qkv, else for one; ATTEND 0 (x 1): only appends, APPEND 0: only attends, where
//   several of a sequence are appended before any attends
// Buffers: qkv the token's projections; keys, values the layer's cache, 8 (f16) or 4 (f32) keys and 4 values an element;
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
@group(0) @binding(4) var<storage, read_write> values : array<vec2u>;
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
// G query heads of a workgroup, SHARES workgroups of a KV head; AT_ONCE positions scored at a time, PASSES of them a chunk; V_LOADS positions of a chunk
// whose values a thread takes; K_VECS elements of a key, K_LOADS of them a thread; QUAD_ROUNDS quads of a head a thread
// of a team.
#default HEADS_EACH HEADS / KV_HEADS
#default APPEND 1
#default ATTEND 1
#define G HEADS_EACH
#define SHARES HEADS / KV_HEADS / G
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
#include "team.wgsl"
#include "plus_products.wgsl"
#define TEAMS THREADS / TEAM
#define QUAD_ROUNDS (QUADS + TEAM - 1) / TEAM
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
var<workgroup> ss : array<f32, ${G * CHUNK}>;         // [h][position of the chunk]: scores, then shares
var<workgroup> running : array<vec2f, ${G}>;          // maximum and sum of shares so far
var<workgroup> fades : array<f32, ${G}>;              // factor of the sums so far, since the maximum grew
var<workgroup> sums : array<vec4f, ${HEADS_AT_ONCE * THREADS}>;  // [h][pg][quad]

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

// One head's rotated vector from the projections, by the threads of one team: query head h of the G from first_head on, or the key
// (h == G; beyond: nothing is left), of the token whose row of qkv begins at from_x. is_owner: this workgroup has the newest position, and stores what is emitted. All loads come first:
// for quad d<e>, x its values and w their norm weights, p its partner quad with y and u the same, high and low the angles.
fn prepare_head(turn_of : u32, first_head : u32, kv_head : u32, position : u32, t : u32, is_owner : bool, from_x : u32) {
  let lane = t % ${TEAM}u;
#if TOGETHER
  let h = min(turn_of, ${G}u);
#else
  let h = turn_of;
#endif
  let is_key = h == ${G}u;
  let head = select(first_head + h, kv_head, is_key);
  let at = from_x + select(${Q_OFFSET / 4}u, ${K_OFFSET / 4}u, is_key) + head * ${QUADS}u;
  let weights_at = select(0u, ${QUADS}u, is_key);
  var square = 0.0;
#for e in 0..QUAD_ROUNDS
  let quad${e} = lane + ${e * TEAM}u;
#if TOGETHER
  let has${e} = quad${e} < ${QUADS}u && turn_of <= ${G}u;
#else
  let has${e} = quad${e} < ${QUADS}u;
#endif
  let d${e} = min(quad${e}, ${QUADS - 1}u);
  let x${e} = qkv[at + d${e}];
#if QK_NORM
  let w${e} = qk_weights[weights_at + d${e}];
#endif
#if QUAD_ROPE
  let turns${e} = d${e} < ${PAIRS / 2}u;
  let is_first${e} = d${e} < ${PAIRS / 4}u;
  let p${e} = select(d${e}, select(d${e} - ${PAIRS / 4}u, d${e} + ${PAIRS / 4}u, is_first${e}), turns${e});
  let y${e} = qkv[at + p${e}];
#if QK_NORM
  let u${e} = qk_weights[weights_at + p${e}];
#endif
  let pair${e} = select(0u, min(d${e}, p${e}) * 2u, turns${e});
  let high${e}a = angles[(position >> 8u) * ${PAIRS / 2}u + pair${e}];
  let high${e}b = angles[(position >> 8u) * ${PAIRS / 2}u + pair${e} + 1u];
  let low${e}a = angles[(${HIGH_ROWS}u + (position & 255u)) * ${PAIRS / 2}u + pair${e}];
  let low${e}b = angles[(${HIGH_ROWS}u + (position & 255u)) * ${PAIRS / 2}u + pair${e} + 1u];
#endif
  square += select(0.0, four_products(x${e}, x${e}), has${e});
#endfor
#if QK_NORM
  let factor = inverseSqrt(team_sum(square, t) / ${DIM}.0 + bitcast<f32>(${EPS_BITS}u));
#endif
#for e in 0..QUAD_ROUNDS
  if (has${e}) {
#if QK_NORM
    let own = x${e} * w${e} * factor;
#else
    let own = x${e};
#endif
    var turned = own;
#if QUAD_ROPE
    if (turns${e}) {
#if QK_NORM
      let other = y${e} * u${e} * factor;
#else
      let other = y${e};
#endif
      turned = turn(own, other, high${e}a, high${e}b, low${e}a, low${e}b, is_first${e});
    }
#else
#for c in 0..4
    {
      let d = d${e} * 4u + ${c}u;
      if (d < ${2 * PAIRS}u) {
        let p = rope_partner(d);
        var other = qkv[at + p / 4u][p % 4u];
#if QK_NORM
        other *= qk_weights[weights_at + p / 4u][p % 4u] * factor;
#endif
        let a = rope_angle(position, rope_pair(d));
        turned[${c}] = fma(own[${c}], a.x, select(other * a.y, -(other * a.y), rope_is_first(d)));
      }
    }
#endfor
#endif
#if EMIT_ROPE || EMIT_NORM
    if (is_owner) {
      let to = select(0u, ${HEADS * QUADS}u, is_key) + head * ${QUADS}u + d${e};
#if EMIT_ROPE
      looked[to] = turned;
#endif
#if EMIT_NORM
      looked[${(HEADS + KV_HEADS) * QUADS}u + to] = own;
#endif
    }
#endif
    if (is_key) {
      sk[d${e}] = as_cached(turned);
    } else {
      sq[h * ${QUADS}u + d${e}] = turned * bitcast<f32>(${SCALE_BITS}u);
    }
  }
#endfor
}

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
  let lane = t % ${TEAM}u;
  let team = t / ${TEAM}u;
  // For scores: the thread's share of a key. For values: its quad of dimensions and its group of positions.
  let part = t % ${LP}u;
  let quad = t % ${QUADS}u;
  let pg = t / ${QUADS}u;

  // The first chunk's keys and values are on their way while the heads are prepared, the next one's while this one is used, the next
  // split's after the last one.
#for i in 0..PASSES
  // p: position in the chunk; kr: the thread's first element of its key; k, v: loaded keys and values.
  let p${i} = ${i * AT_ONCE}u + t / ${LP}u;
  let kr${i} = cache_row(slot, kv_head, min(first + p${i}, end - 1u)) * ${K_VECS}u + part;
#for l in 0..K_LOADS
  var k${i}_${l} = keys[kr${i} + ${l * LP}u];
#endfor
#endfor
#for j in 0..V_LOADS
  var v${j} = values[cache_row(slot, kv_head, min(first + ${j * PG}u + pg, end - 1u)) * ${QUADS}u + quad];
#endfor

#if TOGETHER
  for (var h = 0u; h <= ${G}u; h += ${TEAMS}u) {
    prepare_head(h + team, first_head, kv_head, position, t, is_owner, from_x);
  }
#else
  for (var h = team; h <= ${G}u; h += ${TEAMS}u) {
    prepare_head(h, first_head, kv_head, position, t, is_owner, from_x);
  }
#endif
  if (t < ${QUADS}u) {
    sv[t] = as_cached(qkv[from_x + ${V_OFFSET / 4}u + kv_head * ${QUADS}u + t]);
  }
  workgroupBarrier();
#if APPEND
  if (is_owner && group.y % ${SHARES}u == 0u) {
    let row = cache_row(slot, kv_head, position);
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
#endif
  if (${ATTEND}u == 0u) {
    return;
  }

#if SEVERAL
  for (var split = group.x; split < range.count; split += ${WORKGROUPS}u) {
  let later = first + ${WORKGROUPS}u * range.each;
  let later_end = select(end, min(later + range.each, range.end), later < range.end);
#else
  let split = group.x;
#endif
  if (t < ${G}u) {
    running[t] = vec2f(-3.0e38, 0.0);
  }
#for h in 0..G
  var sum${h} = vec4f(0.0);
#endfor
  for (var base = first; base < end; base += ${CHUNK}u) {
    let count = min(${CHUNK}u, end - base);
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
        s${h} = plus_products(plus_products(s${h}, a, sq[${h * QUADS}u + 2u * vec]), b, sq[${h * QUADS}u + 2u * vec + 1u]);
#endfor
#else
        var a = k${i}_${l};
        if (fresh) {
          a = sk[vec];
        }
#for h in 0..G
        s${h} = plus_products(s${h}, a, sq[${h * QUADS}u + vec]);
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
      // clamp() would make a number of NaN.
      let capped${h} = bitcast<f32>(${SOFTCAP_BITS}u) * tanh(clamp(s${h} / bitcast<f32>(${SOFTCAP_BITS}u), -15.0, 15.0));
      s${h} = select(capped${h}, s${h}, (bitcast<u32>(s${h}) & 0x7fffffffu) > 0x7f800000u);
#endif
#if ALIBI
      s${h} += alibi(first_head + ${h}u, min(base + p${i}, position), position);
#endif
#endfor
#if CHUNK % AT_ONCE == 0
      if (part == 0u) {
#else
      if (part == 0u && p${i} < ${CHUNK}u) {
#endif
#for h in 0..G
        ss[${h * CHUNK}u + p${i}] = select(-3.0e38, s${h}, p${i} < count);
#endfor
      }
    }
#endfor
#if SEVERAL
    let goes_on = base + ${CHUNK}u < end;
    let next = select(later, base + ${CHUNK}u, goes_on);
    let last = select(later_end, end, goes_on) - 1u;
#else
    let next = base + ${CHUNK}u;
    let last = end - 1u;
#endif
#for i in 0..PASSES
    let nk${i} = cache_row(slot, kv_head, min(next + p${i}, last)) * ${K_VECS}u + part;
#for l in 0..K_LOADS
    k${i}_${l} = keys[nk${i} + ${l * LP}u];
#endfor
#endfor
    workgroupBarrier();
    // lanes: the first that is none, where the team has a head.
#if TOGETHER
    for (var first_head = 0u; first_head < ${G}u; first_head += ${TEAMS}u) {
      let h = min(first_head + team, ${G - 1}u);
      let lanes = select(0u, ${CHUNK}u, first_head + team < ${G}u);
#else
    for (var h = team; h < ${G}u; h += ${TEAMS}u) {
      let lanes = ${CHUNK}u;
#endif
      var most = -3.0e38;
      for (var i = lane; i < lanes; i += ${TEAM}u) {
        most = max(most, ss[h * ${CHUNK}u + i]);
      }
      let before = running[h];
      most = max(team_max(most, t), before.x);
      var total = 0.0;
      for (var i = lane; i < lanes; i += ${TEAM}u) {
        let share = select(0.0, exp(ss[h * ${CHUNK}u + i] - most), i < count);
        ss[h * ${CHUNK}u + i] = share;
        total += share;
      }
      total = team_sum(total, t);
      if (lane == 0u && lanes > 0u) {
        let fade = exp(before.x - most);
        fades[h] = fade;
        running[h] = vec2f(most, fma(before.y, fade, total));
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
      v${j} = values[cache_row(slot, kv_head, min(next + ${j * PG}u + pg, last)) * ${QUADS}u + quad];
      // Beyond the end the share is 0, but 0 times what a row holds that was never written may be NaN.
      if (base + at >= position) {
        v = sv[quad];
      }
#for h in 0..G
      sum${h} = fma(vec4f(ss[${h * CHUNK}u + at]), v, sum${h});
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
    let head = token * ${HEADS}u + first_head + ${b * HEADS_AT_ONCE}u + h;
    let mean = total / running[${b * HEADS_AT_ONCE}u + h].y;
    let to = (head * ${MOST_SPLITS}u + split) * ${QUADS}u + q;
#if KV_HALF
    parts[to] = vec2u(pack2x16float(mean.xy), pack2x16float(mean.zw));
#else
    parts[to] = mean;
#endif
  }
  workgroupBarrier();
#endfor
  if (t < ${G}u) {
    marks[(token * ${HEADS}u + first_head + t) * ${MOST_SPLITS}u + split] = running[t];
  }
#if SEVERAL
  first = later;
  end = later_end;
  }
#endif
}
