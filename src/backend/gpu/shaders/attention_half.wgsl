enable f16;
#if COOP == 1
enable wgpu_cooperative_matrix;
#endif
// softmax(q k' * scale) v on tensor cores, for BQ = 16 RT tokens of a head, with keys and values in halves. A tile of sums cannot be scaled
// row by row, as an online softmax would: so scores are made twice, first for the largest of each row, then for the shares.
// Keys and values pass through workgroup memory, 64 positions and a CHUNK of a head's dims at a time, and wait in registers before that; beyond a run's
// positions its first or last one is taken, since what else lies there can be NaN, which must not be multiplied even with zero.
// Scores: of NS subgroups four neighbours have 16 positions each, the four tiles of the first tokens or of others. Sums: every NS-th tile of 16 dims of a chunk.
// The tokens of a workgroup may belong to several sequences, whose runs are gone through one after the other.
// Workgroups: x over heads, y over tokens, the last ones (with the longest sequences) first. Subgroups have 32 threads, in order.
//
// Template values of the cut (half_attention.cpp): RT; NS, 4 or more subgroups; CHUNK dims, a multiple of 16 that DIM is one of. COOP see coop.wgsl;
// COUNT: the word of `step` with the number of tokens. The other values and all buffers are those of attention.wgsl.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> q : array<f32>;
@group(0) @binding(2) var<storage, read> keys : array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> values : array<vec4<f16>>;
@group(0) @binding(4) var<storage, read_write> out : array<f32>;
#if EMIT_SCORES
@group(0) @binding(5) var<storage, read_write> scores : array<f32>;
#endif
#if SINKS
@group(0) @binding(6) var<storage, read> sinks : array<f32>;
#endif
// Columns are vectors of four: NC of a head, KV of a chunk; pitches count them, 16 bytes more than a row.
// SETS of four subgroups, EACH of whose tiles of tokens a subgroup has; TE tiles of a chunk's dims a subgroup has.
#define BQ 16 * RT
#define BP 64
#define THREADS 32 * NS
#define CHUNKS DIM / CHUNK
#define NC DIM / 4
#define KV CHUNK / 4
#define SETS NS / 4
#define EACH RT / (SETS)
#define TE (CHUNK / 16 + NS - 1) / NS
#define LOADS (BP * KV + THREADS - 1) / THREADS
#define PITCH_Q NC + 2
#define PITCH_KV KV + 2
#define PITCH_P BP / 4 + 2

var<workgroup> tile_q : array<vec4<f16>, ${BQ * (PITCH_Q)}>;  // [token][column], scaled
var<workgroup> tile_kv : array<vec4<f16>, ${BP * (PITCH_KV)}>;  // [position][column of the chunk]
var<workgroup> tile_p : array<vec4<f16>, ${BQ * (PITCH_P)}>;  // shares [token][position]
// Tiles of scores [subgroup][tile of tokens]; what the 16 threads of each row found; tiles of sums.
var<workgroup> staged : array<f32, ${NS * (EACH) * 256}>;
var<workgroup> tile_total : array<f32, ${BQ}>;  // by token: sum of its shares
#include "coop.wgsl"
// Of tile_q and tile_p; of tile_kv as keys, a position a column, and as values, a position a row.
#if COOP == 1
fn load_q(at : u32) -> CoopA {
  return coopLoadT<CoopA>(&tile_q[at], ${PITCH_Q}u);
}
fn load_p(at : u32) -> CoopA {
  return coopLoadT<CoopA>(&tile_p[at], ${PITCH_P}u);
}
fn load_keys(at : u32) -> CoopB {
  return coopLoad<CoopB>(&tile_kv[at], ${PITCH_KV}u);
}
fn load_values(at : u32) -> CoopB {
  return coopLoadT<CoopB>(&tile_kv[at], ${PITCH_KV}u);
}
#else
// The last bit of an index says which of the two.
fn load_q(at : u32) -> CoopA {
  return 2u * at;
}
fn load_p(at : u32) -> CoopA {
  return 2u * at + 1u;
}
fn load_keys(at : u32) -> CoopB {
  return at;
}
fn load_values(at : u32) -> CoopB {
  return at;
}
fn coop_mma(a : CoopA, b : CoopB, c : CoopC) -> CoopC {
  var sums = c;
  let column = coop_column();
  for (var v = 0u; v < 4u; v++) {
    var factors : vec4f;
    if ((a & 1u) == 0u) {
      factors = vec4f(tile_kv[b + column * ${PITCH_KV}u + v]);
    } else {
      for (var e = 0u; e < 4u; e++) {
        factors[e] = f32(tile_kv[b + (4u * v + e) * ${PITCH_KV}u + column / 4u][column % 4u]);
      }
    }
    for (var i = 0u; i < 8u; i++) {
      if ((a & 1u) == 0u) {
        sums[i] += dot(vec4f(tile_q[a / 2u + coop_row(i) * ${PITCH_Q}u + v]), factors);
      } else {
        sums[i] += dot(vec4f(tile_p[a / 2u + coop_row(i) * ${PITCH_P}u + v]), factors);
      }
    }
  }
  return sums;
}
#endif
#include "attention_seen.wgsl"

// Four neighbours of a row.
fn scores_of(staged_at : u32, head : u32, at : vec4u, position : u32) -> vec4f {
  var score : vec4f;
#for e in 0..4
  score[${e}] = score_of(staged[staged_at + ${e}u]);
#if ALIBI
  score[${e}] += alibi(head, min(at[${e}], position), position);
#endif
#endfor
  return score;
}
// A subgroup's tile of sums, where those are tokens.
fn put_sums(sum : CoopC, token0 : u32, rows : u32, row0 : u32, head : u32, tile : u32, subgroup : u32, lane : u32) {
  coop_store(sum, subgroup * 256u);
  workgroupBarrier();
#for half in 0..2
  {
    let row = row0 + ${8 * half}u + lane / 4u;
    if (row < rows) {
      let to = (token0 + row) * ${OUT_STRIDE}u + ${OUT_OFFSET}u + head * ${DIM}u + tile * 16u + lane % 4u * 4u;
#for e in 0..4
      out[to + ${e}u] = staged[subgroup * 256u + ${128 * half + e}u + lane * 4u] / tile_total[row];
#endfor
    }
  }
#endfor
  workgroupBarrier();
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  coop_begin(t);
  let tokens = step[${COUNT}u];
  let token0 = ((tokens + ${BQ - 1}u) / ${BQ}u - 1u - group.y) * ${BQ}u;
  let rows = min(${BQ}u, tokens - token0);
  let head = group.x;
  let kv_head = head / ${HEADS / KV_HEADS}u;
  let subgroup = t / 32u;
  let lane = t % 32u;
  // Of each tile of scores that its subgroup makes the thread has four neighbours in two rows.
  let own = subgroup * ${EACH * 256}u;
  let position_tile = subgroup % 4u;
  let score_column = position_tile * 16u + lane % 4u * 4u;
  for (var i = t; i < ${BQ * NC}u; i += ${THREADS}u) {
    let from_q = min(token0 + i / ${NC}u, tokens - 1u) * ${Q_STRIDE}u + ${Q_OFFSET}u + head * ${DIM}u + i % ${NC}u * 4u;
    tile_q[i / ${NC}u * ${PITCH_Q}u + i % ${NC}u] = vec4<f16>(vec4f(q[from_q], q[from_q + 1u], q[from_q + 2u], q[from_q + 3u]) * bitcast<f32>(${SCALE_BITS}u));
  }
#for r in 0..2*EACH
  let row${r} = (subgroup / 4u + ${r / 2 * (SETS)}u) * 16u + ${r % 2 * 8}u + lane / 4u;
  let position${r} = step[${POSITIONS}u + min(token0 + row${r}, tokens - 1u)];
  let from${r} = first_of(position${r});
#if SINKS
  var most${r} = sinks[head];
#else
  var most${r} = -3.0e38;
#endif
  var total${r} = 0.0;
#endfor
#for n in 0..LOADS
  // Position and column of the thread's n-th load of a chunk.
  let at${n} = (t + ${n * THREADS}u) / ${KV}u;
  let column${n} = (t + ${n * THREADS}u) % ${KV}u;
  var x${n} : vec4<f16>;
#endfor
#if COOP
#for c in 0..CHUNKS
#for n in 0..TE
#for r in 0..RT
  var sum${c}_${n}_${r} = coop_zero();
#endfor
#endfor
#endfor
#else
  var sums : array<CoopC, ${CHUNKS * TE * RT}>;  // in loops: written out, a software adapter would compile for long
#endif

#for pass in 0..2
  {
  var begin = 0u;
  while (begin < rows) {
    // The run of tokens [begin, end) of one sequence; its positions follow each other.
    let slot = step[${SLOTS}u + token0 + begin];
    let end = run_end(token0, begin, rows);
    let first = first_of(step[${POSITIONS}u + token0 + begin]);
    let last = step[${POSITIONS}u + token0 + end - 1u];
    let head_row = (slot * ${KV_HEADS}u + kv_head) * ${CAPACITY}u;
#for n in 0..LOADS
    x${n} = keys[row_at(slot, kv_head, head_row, min(first + at${n}, last)) * ${NC}u + column${n}];
#endfor
    for (var base_at = first; base_at <= last; base_at += ${BP}u) {
      // Chunks of keys; in the second pass those of values follow.
#for r in 0..EACH
      var c${r} = coop_zero();
#endfor
#for stage in 0..CHUNKS * (1 + pass)
      workgroupBarrier();
#if stage == CHUNKS
      // The shares, beside the first values.
#for r in 0..2*EACH
      {
        let at = vec4u(base_at + score_column) + vec4u(0u, 1u, 2u, 3u);
        let seen = (at >= vec4u(from${r})) & (at <= vec4u(position${r})) & vec4<bool>(row${r} >= begin && row${r} < end);
        let score = scores_of(own + ${r * 128}u + lane * 4u, head, at, position${r});
#if EMIT_SCORES
#for e in 0..4
        if (seen[${e}]) {
          scores[((token0 + row${r}) * ${HEADS}u + head) * step[2] + at[${e}]] = score[${e}];
        }
#endfor
#endif
        // Rounded as they are multiplied, so that all of them are one.
        let share = vec4<f16>(select(vec4f(0.0), exp(score - most${r}), seen));
        let whole = vec4f(share);
        total${r} += whole.x + whole.y + whole.z + whole.w;
        tile_p[row${r} * ${PITCH_P}u + score_column / 4u] = share;
      }
#endfor
#endif
#for n in 0..LOADS
#if (n + 1) * THREADS <= BP * KV
      {
#else
      if (t + ${n * THREADS}u < ${BP * KV}u) {
#endif
        tile_kv[at${n} * ${PITCH_KV}u + column${n}] = x${n};
      }
#endfor
      workgroupBarrier();
      // The next chunk is on its way meanwhile.
#define NEXT stage + 1
#if NEXT == CHUNKS * (1 + pass)
#for n in 0..LOADS
      x${n} = keys[row_at(slot, kv_head, head_row, min(base_at + ${BP}u + at${n}, last)) * ${NC}u + column${n}];
#endfor
#elif NEXT < CHUNKS
#for n in 0..LOADS
      x${n} = keys[row_at(slot, kv_head, head_row, min(base_at + at${n}, last)) * ${NC}u + ${NEXT * KV}u + column${n}];
#endfor
#else
#for n in 0..LOADS
      x${n} = values[row_at(slot, kv_head, head_row, min(base_at + at${n}, last)) * ${NC}u + ${(NEXT - CHUNKS) * KV}u + column${n}];
#endfor
#endif
#if stage < CHUNKS
#if COOP
#for k in 0..CHUNK / 16
      {
        let b = load_keys(position_tile * ${16 * (PITCH_KV)}u + ${4 * k}u);
#for r in 0..EACH
        c${r} = coop_mma(load_q((subgroup / 4u + ${r * SETS}u) * ${16 * (PITCH_Q)}u + ${stage * KV + 4 * k}u), b, c${r});
#endfor
      }
#endfor
#else
      for (var k = 0u; k < ${KV}u; k += 4u) {
        let b = load_keys(position_tile * ${16 * (PITCH_KV)}u + k);
#for r in 0..EACH
        c${r} = coop_mma(load_q((subgroup / 4u + ${r * SETS}u) * ${16 * (PITCH_Q)}u + ${stage * KV}u + k), b, c${r});
#endfor
      }
#endif
#if stage == CHUNKS - 1
#for r in 0..EACH
      coop_store(c${r}, own + ${r * 256}u);
#endfor
#endif
#elif COOP
#for k in 0..BP / 16
      {
#for r in 0..RT
        let p${r} = load_p(${r * 16 * (PITCH_P) + 4 * k}u);
#endfor
#for n in 0..TE
        {
          let v = load_values(${k * 16 * (PITCH_KV)}u + 4u * min(subgroup + ${n * NS}u, ${CHUNK / 16 - 1}u));
#for r in 0..RT
          sum${stage - CHUNKS}_${n}_${r} = coop_mma(p${r}, v, sum${stage - CHUNKS}_${n}_${r});
#endfor
        }
#endfor
      }
#endfor
#else
      for (var i = 0u; i < ${4 * TE * RT}u; i++) {
        let n = i / ${4 * RT}u;
        let r = i / 4u % ${RT}u;
        let k = i % 4u;
        let v = load_values(k * ${16 * (PITCH_KV)}u + 4u * min(subgroup + n * ${NS}u, ${CHUNK / 16 - 1}u));
        let to = ${(stage - CHUNKS) * TE * RT}u + n * ${RT}u + r;
        sums[to] = coop_mma(load_p(r * ${16 * (PITCH_P)}u + 4u * k), v, sums[to]);
      }
#endif
#endfor
#if pass == 0
      workgroupBarrier();
#for r in 0..2*EACH
      {
        let at = vec4u(base_at + score_column) + vec4u(0u, 1u, 2u, 3u);
        let seen = (at >= vec4u(from${r})) & (at <= vec4u(position${r})) & vec4<bool>(row${r} >= begin && row${r} < end);
        let score = scores_of(own + ${r * 128}u + lane * 4u, head, at, position${r});
        let shown = select(vec4f(-3.0e38), score, seen);
        most${r} = max(most${r}, max(max(shown.x, shown.y), max(shown.z, shown.w)));
      }
#endfor
#endif
    }
    begin = end;
  }
  // What the 16 threads of a row found, together.
  workgroupBarrier();
#for r in 0..2*EACH
#if pass == 0
  staged[row${r} * 16u + position_tile * 4u + lane % 4u] = most${r};
#else
  staged[row${r} * 16u + position_tile * 4u + lane % 4u] = total${r};
#endif
#endfor
  workgroupBarrier();
#for r in 0..2*EACH
  total${r} = 0.0;
  for (var i = 0u; i < 16u; i++) {
#if pass == 0
    most${r} = max(most${r}, staged[row${r} * 16u + i]);
#else
    total${r} += staged[row${r} * 16u + i];
#endif
  }
#if pass == 1 && SINKS
  total${r} += exp(sinks[head] - most${r});
#endif
#if pass == 1
  if (position_tile == 0u && lane % 4u == 0u) {
    tile_total[row${r}] = total${r};
  }
#endif
#endfor
  }
#endfor
  workgroupBarrier();
#if COOP
#for c in 0..CHUNKS
#for n in 0..TE
#for r in 0..RT
  put_sums(sum${c}_${n}_${r}, token0, rows, ${r * 16}u, head, ${c * CHUNK / 16}u + min(subgroup + ${n * NS}u, ${CHUNK / 16 - 1}u), subgroup, lane);
#endfor
#endfor
#endfor
#else
  for (var i = 0u; i < ${CHUNKS * TE * RT}u; i++) {
    let c = i / ${TE * RT}u;
    let n = i / ${RT}u % ${TE}u;
    put_sums(sums[i], token0, rows, i % ${RT}u * 16u, head, c * ${CHUNK / 16}u + min(subgroup + n * ${NS}u, ${CHUNK / 16 - 1}u), subgroup, lane);
  }
#endif
}
