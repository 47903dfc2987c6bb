// Y = X W' for many tokens with float activations: float weights, or quantised ones that are not to be multiplied in 8
// bits. A workgroup makes TM tokens x TN rows of W, k in steps of KV vec4s (at most a unit), which pass through workgroup
// memory as floats. Thread t has the columns t % LN + j LN and the tokens t / LN + i LM.
// Workgroups: x over rows of W, y over tokens.
//
// Template values (batch_builder.cpp, kFloat... in gemm_shape.h): RM, RN tokens and rows of a thread; ROWS of W; WIDTH
// values of x and UNITS_K units of 64 that cover them; X_VEC 1: x can be read in vectors of four; FORM, SCALES see
// weights.wgsl; BIAS 1: bias[row] is added; COUNT the word of `step` with the number of tokens. A token's row of x, out
// begins at float token * STRIDE + OFFSET.
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
// LN threads lie along the rows, LM along the tokens; LOADS_W, LOADS_X vectors of a step that a thread loads.
#define LN TN / RN
#define LM TM / RM
#define THREADS LN * LM
#define LOADS_W TN * KV / THREADS
#define LOADS_X TM * KV / THREADS
#define LAST_ROW (ROWS + 63) / 64 * 64 - 1

var<workgroup> tile_w : array<vec4f, ${TN * KV}>;  // [vector of the step][row]
// [vector of the step][token], one more than there are tokens: neighbouring threads store into neighbouring banks.
var<workgroup> tile_x : array<vec4f, ${(TM + 1) * KV}>;

#include "weight_at.wgsl"
// Values 4q .. 4q+3 of a token's activations, zero after the last one.
fn x_at(token : u32, q : u32) -> vec4f {
#if X_VEC
  if (q >= ${WIDTH / 4}u) {
    return vec4f(0.0);
  }
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

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let tokens = step[${COUNT}u];
  let row0 = group.x * ${TN}u;
  let token0 = group.y * ${TM}u;
  let column = t % ${LN}u;
  let lane = t / ${LN}u;
#for i in 0..RM
#for j in 0..RN
  var sum${i}_${j} = 0.0;
#endfor
#endfor
  for (var at = 0u; at < ${UNITS_K * 16}u; at += ${KV}u) {
    workgroupBarrier();
#for n in 0..LOADS_W
    tile_w[t + ${n * THREADS}u] = weight_at(min(row0 + (t + ${n * THREADS}u) % ${TN}u, ${LAST_ROW}u), at + (t + ${n * THREADS}u) / ${TN}u);
#endfor
#for n in 0..LOADS_X
    {
      let v = (t + ${n * THREADS}u) % ${KV}u;
      let token = (t + ${n * THREADS}u) / ${KV}u;
      tile_x[v * ${TM + 1}u + token] = x_at(min(token0 + token, tokens - 1u), at + v);
    }
#endfor
    workgroupBarrier();
    for (var v = 0u; v < ${KV}u; v++) {
#for j in 0..RN
      let w${j} = tile_w[v * ${TN}u + column + ${j * LN}u];
#endfor
#for i in 0..RM
      {
        let x_i = tile_x[v * ${TM + 1}u + lane + ${i * LM}u];
#for j in 0..RN
        sum${i}_${j} += dot(w${j}, x_i);
#endfor
      }
#endfor
    }
  }
#for i in 0..RM
  {
    let token = token0 + lane + ${i * LM}u;
    if (token < tokens) {
#for j in 0..RN
      {
        let row = row0 + column + ${j * LN}u;
        if (row < ${ROWS}u) {
#if BIAS
          out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = sum${i}_${j} + bias[row];
#else
          out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = sum${i}_${j};
#endif
        }
      }
#endfor
    }
  }
#endfor
}
