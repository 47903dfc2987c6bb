// Y = X W' for many tokens with float activations: float weights, or quantised ones that are not to be multiplied in 8
// bits. A workgroup makes TM tokens x TN rows of W, k in steps of KV vec4s (at most a unit), which pass through workgroup
// memory as floats while the next ones wait in registers. Thread t has the columns t % LN + j LN and the tokens
// t / LN + i LM. With SPLITS > 1 each workgroup along z takes a part of k and stores its sums SPLIT_STRIDE apart
// (gemm_sum.wgsl adds them). Sums go along k one product after the other, whatever the tile; TREE: within a unit, and units are added
// as the products of single tokens do (docs/kernels.md: one order of sums), which takes more registers.
// Workgroups: x over rows of W, y over tokens, z over splits.
//
// Template values (gemm_shape.cpp, batch_builder.cpp): RM, RN tokens and rows of a thread; UNROLLED 1: a step is written out, not a loop; ROWS of W; WIDTH values of x and
// UNITS_K units of 64 that cover them; X_VEC 1: x can be read in vectors of four; FORM, SCALES see weights.wgsl; BIAS 1:
// bias[row] is added; COUNT the word of `step` with the number of tokens. A token's row of x, out begins at float
// token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(2) var<storage, read> scales : array<u32>;
#endif
#if X_VEC
@group(0) @binding(3) var<storage, read> x : array<vec4f>;
#else
@group(0) @binding(3) var<storage, read> x : array<f32>;
#endif
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#if BIAS
@group(0) @binding(6) var<storage, read> bias : array<f32>;
#endif
#include "weights.wgsl"
// LN threads lie along the rows, LM along the tokens. Float weights wait in registers as they are stored, VECS_W vectors
// of four in each load; bf16 in 13 bits in pieces, ITEMS of all rows in a step's blocks, with the words behind them; others are
// decoded when they are loaded. LOADS_W, LOADS_X loads of a thread in a step.
#define LN TN / RN
#define LM TM / RM
#define THREADS LN * LM
#define DECODED (QUANTISED) && FORM != 9
#if FORM == 9
#define ITEMS TN * KV / 8 * 3
#define LOADS_W (ITEMS + THREADS - 1) / THREADS
#elif DECODED
#define LOADS_W TN * KV / THREADS
#else
#define VECS_W 16 / (PIECES)
#define LOADS_W TN * KV / VECS_W / THREADS
#endif
#define LOADS_X TM * KV / THREADS
// Tokens lie two further apart than there are: KV vectors of two tokens, as eight threads store them, fill the banks.
#define PITCH TM + 2
#define VECS_K UNITS_K * 16
// Whole units, so that tiles with other steps sum alike.
#define VECS_EACH (UNITS_K + SPLITS - 1) / SPLITS * 16
#if UNROLLED
#define REPEATS KV
#else
#define REPEATS 1
#endif
#define LAST_ROW (ROWS + 63) / 64 * 64 - 1

var<workgroup> tile_w : array<vec4f, ${TN * KV}>;  // [vector of the step][row]
var<workgroup> tile_x : array<vec4f, ${PITCH * KV}>;  // [vector of the step][token], PITCH apart

#if DECODED
#include "weight_at.wgsl"
#endif
// Values 4q .. 4q+3 of a token's activations, zero after the last one.
fn x_at(token : u32, q : u32) -> vec4f {
#if X_VEC
#if WIDTH < UNITS_K * 64
  if (q >= ${WIDTH / 4}u) {
    return vec4f(0.0);
  }
#endif
  return x[token * ${X_STRIDE / 4}u + ${X_OFFSET / 4}u + q];
#else
  var v = vec4f(0.0);
#for e in 0..4
  if (4u * q + ${e}u < ${WIDTH}u) {
    v[${e}] = x[token * ${X_STRIDE}u + ${X_OFFSET}u + 4u * q + ${e}u];
  }
#endfor
  return v;
#endif
}
#include "plus_products.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let tokens = step[${COUNT}u];
  let row0 = group.x * ${TN}u;
  let token0 = group.y * ${TM}u;
  let column = t % ${LN}u;
  let lane = t / ${LN}u;
#if SPLITS > 1
  let first = group.z * ${VECS_EACH}u;
  let end = min(first + ${VECS_EACH}u, ${VECS_K}u);
#else
  let first = 0u;
  let end = ${VECS_K}u;
#endif
#for i in 0..RM
#for j in 0..RN
  var sum${i}_${j} = 0.0;
#endfor
#endfor
#if TREE
#define BRANCHES VECS_EACH / 16
#include "branch_levels.wgsl"
#endif
  // Where this thread's share of a step lies, by load n: rw, pw row and place in the step of weights; tx, vx token and
  // vector of activations.
#for n in 0..LOADS_W
#if FORM == 9
  // Where there are more threads than items, the last one is loaded again.
  let iw${n} = min(t + ${n * THREADS}u, ${ITEMS - 1}u);
#else
  let iw${n} = t + ${n * THREADS}u;
#endif
  let rw${n} = min(row0 + iw${n} % ${TN}u, ${LAST_ROW}u);
  let pw${n} = iw${n} / ${TN}u;
#endfor
#for n in 0..LOADS_X
  let tx${n} = min(token0 + (t + ${n * THREADS}u) / ${KV}u, tokens - 1u);
  let vx${n} = (t + ${n * THREADS}u) % ${KV}u;
#endfor
#for n in 0..LOADS_W
#if DECODED
  var w${n} = vec4f(0.0);
#else
  var w${n} = vec4u(0u);
#endif
#if FORM == 9
  var h${n} = 0u;  // the word behind
#endif
#endfor
#for n in 0..LOADS_X
  var x${n} = vec4f(0.0);
#endfor
  // The step that the registers hold; where a split has none, the last one of all, which nobody multiplies.
  var next = min(first, ${VECS_K - KV}u);
#for inside in 0..2
#if inside
  for (var at = first; at < end; at += ${KV}u) {
    workgroupBarrier();
#for n in 0..LOADS_W
#if DECODED
    tile_w[t + ${n * THREADS}u] = w${n};
#elif FORM == 9
    if (t + ${n * THREADS}u < ${ITEMS}u) {
      let p = pw${n} % 3u;
      let first = pw${n} / 3u * ${8 * TN}u + iw${n} % ${TN}u;
      let between = two_between(w${n}, h${n}, p);
      tile_w[first + p * ${2 * TN}u] = stored_four(w${n}.x, w${n}.y);
      tile_w[first + p * ${2 * TN}u + ${TN}u] = stored_four(w${n}.z, w${n}.w);
      if (p == 0u) {
        tile_w[first + ${6 * TN}u].x = between.x;
        tile_w[first + ${6 * TN}u].y = between.y;
      } else if (p == 1u) {
        tile_w[first + ${6 * TN}u].z = between.x;
        tile_w[first + ${6 * TN}u].w = between.y;
      } else {
        tile_w[first + ${7 * TN}u] = vec4f(between, stored_two(h${n}));
      }
    }
#else
#for e in 0..VECS_W
    tile_w[(pw${n} * ${VECS_W}u + ${e}u) * ${TN}u + iw${n} % ${TN}u] = unpack_piece(w${n}, ${e}u);
#endfor
#endif
#endfor
#for n in 0..LOADS_X
    tile_x[vx${n} * ${PITCH}u + (t + ${n * THREADS}u) / ${KV}u] = x${n};
#endfor
    workgroupBarrier();
    // The next step is on its way meanwhile; after the last one that is read again.
    next = min(at + ${KV}u, ${VECS_K - KV}u);
#endif
#for n in 0..LOADS_W
#if DECODED
    w${n} = weight_at(rw${n}, next + pw${n});
#elif FORM == 9
    w${n} = codes[code_index(rw${n}, 0u) + (next / 8u * 3u + pw${n}) * 64u];
    h${n} = scales[scale_index(rw${n}, 0u) + (next / 8u + pw${n} / 3u) * 64u];
#else
    w${n} = codes[code_index(rw${n}, 0u) + (next / ${VECS_W}u + pw${n}) * 64u];
#endif
#endfor
#for n in 0..LOADS_X
    x${n} = x_at(tx${n}, next + vx${n});
#endfor
#endfor
#if TREE
    if (at % 16u == 0u) {
#for i in 0..RM
#for j in 0..RN
      sum${i}_${j} = 1.2e-38;  // as dot.wgsl begins
#endfor
#endfor
    }
#endif
#for part in 0..REPEATS
    for (var v = ${part * KV / REPEATS}u; v < ${(part + 1) * KV / REPEATS}u; v++) {
#for j in 0..RN
      let w_${j} = tile_w[v * ${TN}u + column + ${j * LN}u];
#endfor
#for i in 0..RM
      {
        let x_i = tile_x[v * ${PITCH}u + lane + ${i * LM}u];
#for j in 0..RN
        sum${i}_${j} = plus_products(sum${i}_${j}, w_${j}, x_i);
#endfor
      }
#endfor
    }
#endfor
#if TREE
    if (at % 16u == ${16 - KV}u) {
      let done = (at - first) / 16u;
#include "branch_sums.wgsl"
    }
#endif
  }
#if TREE
  let steps = (max(end, first) - first) / 16u;
#include "waiting_sums.wgsl"
#endif
#for i in 0..RM
  {
    let token = token0 + lane + ${i * LM}u;
    if (token < tokens) {
#if SPLITS > 1
      let to = group.z * ${SPLIT_STRIDE}u + token * ${OUT_STRIDE}u + ${OUT_OFFSET}u;
#else
      let to = token * ${OUT_STRIDE}u + ${OUT_OFFSET}u;
#endif
#for j in 0..RN
      {
        let row = row0 + column + ${j * LN}u;
        if (row < ${ROWS}u) {
#if FORM == 9
          let result = sum${i}_${j} * row_factor(row);
#else
          let result = sum${i}_${j};
#endif
#if BIAS
          out[to + row] = result + bias[row];
#else
          out[to + row] = result;
#endif
        }
      }
#endfor
    }
  }
#endfor
}
