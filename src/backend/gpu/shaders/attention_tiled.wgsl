// softmax(q k' * scale) v for BQ tokens of a head at a time, over tiles of 4 LANES positions, softmax online; the tokens of a
// workgroup may belong to several sequences, whose runs are gone through one after the other.
//   Scores: thread t has the rows t / LANES * RQ + r and the positions 4 (t % LANES) + e; q lies in workgroup memory, k
//   passes through it in chunks of KC columns of VW values (UNROLLED: written out, else a loop).
//   Sums: thread t has the columns t % CT + i CT and the rows t / CT * RV + r; v is read where it lies, a row of it by
//   neighbouring threads, VP positions ahead of those that are added.
// Workgroups: x over heads, y over tokens, the last ones (with the longest sequences) first. PARTED 1: and z over parts of the
// positions (prompt_parts.wgsl), whose results attention_combine.wgsl puts together: parts and marks, as combined.wgsl has them.
// Source: Dao, "FlashAttention-2" (2023); Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
//
// Template values of the cut (attention_shape.cpp): BQ tokens of a workgroup, RQ of a thread; LANES threads of a token's
// row of scores; KC columns of k in workgroup memory (1 to 8); CT threads that share a row of sums. COUNT: the word of
// `step` with the number of tokens. The other values and all buffers are those of attention.wgsl.
// A row is a token of the workgroup, a column a vector of VW of a head's DIM values.
#if DIM % 4 == 0
#define VW 4
#else
#define VW 2
#endif
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> q : array<f32>;
#if KV_HALF && VW == 4
@group(0) @binding(2) var<storage, read> keys : array<vec2u>;
@group(0) @binding(3) var<storage, read> values : array<vec2u>;
#elif KV_HALF
@group(0) @binding(2) var<storage, read> keys : array<u32>;
@group(0) @binding(3) var<storage, read> values : array<u32>;
#else
@group(0) @binding(2) var<storage, read> keys : array<vec${VW}f>;
@group(0) @binding(3) var<storage, read> values : array<vec${VW}f>;
#endif
#default PARTED 0
#if PARTED && KV_HALF
@group(0) @binding(4) var<storage, read_write> parts : array<vec2u>;
#elif PARTED
@group(0) @binding(4) var<storage, read_write> parts : array<vec4f>;
#else
@group(0) @binding(4) var<storage, read_write> out : array<f32>;
#endif
#if PARTED
@group(0) @binding(7) var<storage, read_write> marks : array<vec2f>;
#endif
#if EMIT_SCORES
@group(0) @binding(5) var<storage, read_write> scores : array<f32>;
#endif
#if SINKS
@group(0) @binding(6) var<storage, read> sinks : array<f32>;
#endif
// BP positions of a tile; NC columns of a head, CHUNKS of them for k; RV rows and COLUMNS columns of sums of a thread;
// LOADS_K vectors of a chunk of k that a thread loads; VP rows of v that wait in registers: as many as hide the memory's
// latency behind the sums of as many others, and fewer where each takes several registers.
#define THREADS LANES * BQ / RQ
#define BP 4 * LANES
#define NC DIM / VW
#define CHUNKS NC / KC
#define RV BQ * CT / THREADS
#define COLUMNS (NC + CT - 1) / CT
#define LOADS_K (KC * BP + THREADS - 1) / THREADS
#if COLUMNS == 1 && KV_HALF
#define VP 16
#elif COLUMNS == 1
#define VP 8
#else
#define VP 4
#endif
// One more than there are positions: the stores of a chunk spread over the banks.
#define PITCH BP + 1
#if UNROLLED
#define REPEATS KC
#else
#define REPEATS 1
#endif
#define SHUFFLES SUBGROUPS && SUBGROUP_SIZE % LANES == 0 && (THREADS) % SUBGROUP_SIZE == 0

alias Vec = vec${VW}f;
var<workgroup> tile_q : array<Vec, ${BQ * NC}>;  // [row][column]
var<workgroup> tile_k : array<Vec, ${KC * (PITCH)}>;  // [column of the chunk][position e of lane at e * LANES + lane]
var<workgroup> tile_p : array<vec4f, ${BQ * LANES}>;  // shares [row][lane], four positions each
var<workgroup> tile_fade : array<f32, ${BQ}>;  // by row: factor of the sums so far, since the maximum grew
var<workgroup> tile_total : array<f32, ${BQ}>;  // by row: sum of its shares
#if !(SHUFFLES)
var<workgroup> tile_row : array<f32, ${BQ * LANES}>;
#endif

#if KV_HALF && VW == 4
fn floats(w : vec2u) -> Vec { return vec4f(unpack2x16float(w.x), unpack2x16float(w.y)); }
#elif KV_HALF
fn floats(w : u32) -> Vec { return unpack2x16float(w); }
#else
fn floats(w : Vec) -> Vec { return w; }
#endif
#include "attention_seen.wgsl"
#if PARTED
#include "prompt_parts.wgsl"
#endif
// The first column of a position.
fn vector_at(slot : u32, kv_head : u32, head_row : u32, position : u32) -> u32 {
  return row_at(slot, kv_head, head_row, position) * ${NC}u;
}

// Over the LANES threads of each row, whose number all of them have.
#if SHUFFLES
fn row_max(value : f32, row : u32, lane : u32) -> f32 {
  var v = value;
#for k in 0..8
#if (1 << k) < LANES
  v = max(v, subgroupShuffleXor(v, ${1 << k}u));
#endif
#endfor
  return v;
}
fn row_sum(value : f32, row : u32, lane : u32) -> f32 {
  var v = value;
#for k in 0..8
#if (1 << k) < LANES
  v += subgroupShuffleXor(v, ${1 << k}u);
#endif
#endfor
  return v;
}
#else
fn row_max(value : f32, row : u32, lane : u32) -> f32 {
  workgroupBarrier();
  tile_row[row * ${LANES}u + lane] = value;
  workgroupBarrier();
  var v = value;
  for (var i = 0u; i < ${LANES}u; i++) {
    v = max(v, tile_row[row * ${LANES}u + i]);
  }
  return v;
}
fn row_sum(value : f32, row : u32, lane : u32) -> f32 {
  workgroupBarrier();
  tile_row[row * ${LANES}u + lane] = value;
  workgroupBarrier();
  var v = 0.0;
  for (var i = 0u; i < ${LANES}u; i++) {
    v += tile_row[row * ${LANES}u + i];
  }
  return v;
}
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let tokens = step[${COUNT}u];
  let token0 = ((tokens + ${BQ - 1}u) / ${BQ}u - 1u - group.y) * ${BQ}u;
  let rows = min(${BQ}u, tokens - token0);
  let head = group.x;
  let kv_head = head / ${HEADS / KV_HEADS}u;
  let lane = t % ${LANES}u;
  let row0 = t / ${LANES}u * ${RQ}u;
  let column = t % ${CT}u;
  let sum_row0 = t / ${CT}u * ${RV}u;
  for (var i = t; i < ${BQ * NC}u; i += ${THREADS}u) {
    let from_q = min(token0 + i / ${NC}u, tokens - 1u) * ${Q_STRIDE}u + ${Q_OFFSET}u + head * ${DIM}u + i % ${NC}u * ${VW}u;
#if VW == 4
    tile_q[i] = vec4f(q[from_q], q[from_q + 1u], q[from_q + 2u], q[from_q + 3u]);
#else
    tile_q[i] = vec2f(q[from_q], q[from_q + 1u]);
#endif
  }
#for r in 0..RQ
  let position${r} = step[${POSITIONS}u + min(token0 + row0 + ${r}u, tokens - 1u)];
#if SINKS
  var most${r} = sinks[head];
  var total${r} = select(0.0, 1.0, lane == 0u);
#else
  var most${r} = -3.0e38;
  var total${r} = 0.0;
#endif
#endfor
#for i in 0..COLUMNS
#for r in 0..RV
  var sum${i}_${r} = Vec(0.0);
#endfor
#endfor
#for n in 0..LOADS_K
  // Column and position of the thread's n-th load of a chunk.
  let kc${n} = (t + ${n * THREADS}u) % ${KC}u;
  let kp${n} = (t + ${n * THREADS}u) / ${KC}u;
#endfor

#for i in 0..COLUMNS
#if (i + 1) * CT <= NC
  let c${i} = column + ${i * CT}u;
#else
  let c${i} = min(column + ${i * CT}u, ${NC - 1}u);
#endif
#endfor

  var begin = 0u;
  while (begin < rows) {
    // The run of tokens [begin, end) of one sequence; its positions follow each other.
    let slot = step[${SLOTS}u + token0 + begin];
    let end = run_end(token0, begin, rows);
#if PARTED
    // Of the run's positions those of the workgroup's part; after the last one, a run that has none here begins.
    let sees = first_of(step[${POSITIONS}u + token0 + begin]);
    let newest = step[${POSITIONS}u + token0 + end - 1u];
#if WINDOW
    let part = part_of(sees) + (group.z + ${MOST_SPLITS}u - part_of(sees) % ${MOST_SPLITS}u) % ${MOST_SPLITS}u;
#else
    let part = group.z;
#endif
    let first = max(sees, part_begin(part));
    let last = select(newest, min(newest, part_begin(part + 1u) - 1u), part < part_of(newest));
#else
    let first = first_of(step[${POSITIONS}u + token0 + begin]);
    let last = step[${POSITIONS}u + token0 + end - 1u];
#endif
    let head_row = (slot * ${KV_HEADS}u + kv_head) * ${CAPACITY}u;
#for r in 0..RQ
    // Whether the thread's row r is in the run, and the first and last position that it sees.
    let mine${r} = row0 + ${r}u >= begin && row0 + ${r}u < end;
    let from${r} = first_of(position${r});
    let to${r} = min(position${r}, last);
#endfor
#for n in 0..LOADS_K
    var k${n} = keys[vector_at(slot, kv_head, head_row, min(first + kp${n}, last)) + kc${n}];
#endfor
    for (var base_at = first; base_at <= last; base_at += ${BP}u) {
#for e in 0..VP
      let vrow${e} = vector_at(slot, kv_head, head_row, min(base_at + ${e}u, last));
#for i in 0..COLUMNS
      var v${i}_${e} = values[vrow${e} + c${i}];
#endfor
#endfor
#for r in 0..RQ
      var s${r} = vec4f(0.0);
#endfor
      for (var chunk = 0u; chunk < ${CHUNKS}u; chunk++) {
        workgroupBarrier();
#for n in 0..LOADS_K
#if (n + 1) * THREADS <= KC * BP
        {
#else
        if (t + ${n * THREADS}u < ${KC * BP}u) {
#endif
          tile_k[kc${n} * ${PITCH}u + kp${n} % 4u * ${LANES}u + kp${n} / 4u] = floats(k${n});
        }
#endfor
        workgroupBarrier();
        // The next chunk, or the first one of the next positions, is on its way meanwhile.
        let is_last = chunk == ${CHUNKS - 1}u;
        let next_chunk = select(chunk + 1u, 0u, is_last);
        let next_base = select(base_at, base_at + ${BP}u, is_last);
#for n in 0..LOADS_K
        k${n} = keys[vector_at(slot, kv_head, head_row, min(next_base + kp${n}, last)) + next_chunk * ${KC}u + kc${n}];
#endfor
#for part in 0..REPEATS
        for (var c = ${part * KC / REPEATS}u; c < ${(part + 1) * KC / REPEATS}u; c++) {
#for e in 0..4
          let key${e} = tile_k[c * ${PITCH}u + lane + ${e * LANES}u];
#endfor
#for r in 0..RQ
          {
            let query = tile_q[(row0 + ${r}u) * ${NC}u + chunk * ${KC}u + c];
#for e in 0..4
#for d in 0..VW
            s${r}[${e}] = fma(query[${d}], key${e}[${d}], s${r}[${e}]);
#endfor
#endfor
          }
#endfor
        }
#endfor
      }
#for r in 0..RQ
      {
        let at = vec4u(base_at + 4u * lane) + vec4u(0u, 1u, 2u, 3u);
        let seen = (at >= vec4u(from${r})) & (at <= vec4u(to${r})) & vec4<bool>(mine${r});
        let scaled = s${r} * bitcast<f32>(${SCALE_BITS}u);
        var score = vec4f(score_of(scaled.x), score_of(scaled.y), score_of(scaled.z), score_of(scaled.w));
#if ALIBI
#for e in 0..4
        score[${e}] += alibi(head, min(at[${e}], position${r}), position${r});
#endfor
#endif
#if EMIT_SCORES
#for e in 0..4
        if (seen[${e}]) {
          scores[((token0 + row0 + ${r}u) * ${HEADS}u + head) * step[2] + at[${e}]] = score[${e}];
        }
#endfor
#endif
        let shown = select(vec4f(-3.0e38), score, seen);
        let now = max(most${r}, row_max(max(max(shown.x, shown.y), max(shown.z, shown.w)), row0 + ${r}u, lane));
        let share = select(vec4f(0.0), exp(shown - now), seen);
        let fade = exp(most${r} - now);
        total${r} = total${r} * fade + (share.x + share.y + share.z + share.w);
        most${r} = now;
        tile_p[(row0 + ${r}u) * ${LANES}u + lane] = share;
        if (lane == 0u) {
          tile_fade[row0 + ${r}u] = fade;
        }
      }
#endfor
      workgroupBarrier();
#for r in 0..RV
      {
        let fade = tile_fade[sum_row0 + ${r}u];
#for i in 0..COLUMNS
        sum${i}_${r} *= fade;
#endfor
      }
#endfor
      // After the last position come shares of zero; what they multiply must be numbers.
      let seen_here = min(${BP}u, last + 1u - base_at);
      for (var j = 0u; j < seen_here; j += ${VP}u) {
#for e in 0..VP
#for i in 0..COLUMNS
        let f${i}_${e} = floats(v${i}_${e});
#endfor
#endfor
#for e in 0..VP
        let next${e} = vector_at(slot, kv_head, head_row, min(base_at + j + ${VP + e}u, last));
#for i in 0..COLUMNS
        v${i}_${e} = values[next${e} + c${i}];
#endfor
#endfor
#for r in 0..RV
#for four in 0..VP / 4
        let p${r}_${four} = tile_p[(sum_row0 + ${r}u) * ${LANES}u + j / 4u + ${four}u];
#for i in 0..COLUMNS
#for e in 0..4
        sum${i}_${r} = fma(Vec(p${r}_${four}[${e}]), f${i}_${4 * four + e}, sum${i}_${r});
#endfor
#endfor
#endfor
#endfor
      }
    }
    begin = end;
  }
#for r in 0..RQ
  {
    let all = row_sum(total${r}, row0 + ${r}u, lane);
    if (lane == 0u) {
      tile_total[row0 + ${r}u] = all;
#if PARTED
      if (row0 + ${r}u < rows) {
        marks[((token0 + row0 + ${r}u) * ${HEADS}u + head) * ${MOST_SPLITS}u + group.z] = vec2f(most${r}, all);
      }
#endif
    }
  }
#endfor
  workgroupBarrier();
#for r in 0..RV
  if (sum_row0 + ${r}u < rows) {
    let total = tile_total[sum_row0 + ${r}u];
#if PARTED
    // Nobody reads what a row has of a part in which it sees nothing.
    let to = (((token0 + sum_row0 + ${r}u) * ${HEADS}u + head) * ${MOST_SPLITS}u + group.z) * ${NC}u;
    if (total > 0.0) {
#for i in 0..COLUMNS
#if (i + 1) * CT <= NC
      {
#else
      if (column + ${i * CT}u < ${NC}u) {
#endif
        let mean = sum${i}_${r} / total;
#if KV_HALF
        parts[to + column + ${i * CT}u] = vec2u(pack2x16float(mean.xy), pack2x16float(mean.zw));
#else
        parts[to + column + ${i * CT}u] = mean;
#endif
      }
#endfor
    }
#else
    let to = (token0 + sum_row0 + ${r}u) * ${OUT_STRIDE}u + ${OUT_OFFSET}u + head * ${DIM}u;
#for i in 0..COLUMNS
#if (i + 1) * CT <= NC
    {
#else
    if (column + ${i * CT}u < ${NC}u) {
#endif
#for e in 0..VW
      out[to + (column + ${i * CT}u) * ${VW}u + ${e}u] = sum${i}_${r}[${e}] / total;
#endfor
    }
#endfor
#endif
  }
#endfor
}
