// y = W x (+ bias) for one activation row at a time. A workgroup takes R rows of W; thread t has row t % R and the units
// from t / R * UNITS on, whose loads are issued at the start, before what the kernel does to the activations:
//   PRO 0: reads them as they are (ACT 1: quantised before, ACT 0: floats)
//   PRO 1: residual + [norm of] branch, then norm (norm_prologue.wgsl)
//   PRO 2: puts the parts of a split attention together (combine_prologue.wgsl)
// and what it does with the results:
//   EPI 0: stores them
//   EPI 1: rows are gate and up: stores activation(gate) * up as floats or (QUANTISE_OUT) quantised
// Workgroups: x over R rows, y over activation rows (PRO 0 only).
//
// Template values (gemv_shape.cpp, decode_products.cpp, batch_builder.cpp):
//   R rows of a workgroup: 1 to 64, a power of two; LANES threads of a row; UNITS units of 64 values of a thread, of
//   which it loads AT_ONCE at a time, the first before anything else
//   ROWS of W (EPI 1: of gate, and as many of up after them), UNITS_K units of a row; FORM, SCALES see weights.wgsl
//   BIAS 1: bias[row] is added; X_VEC, WIDTH, STRIDE, OFFSET of x: see given_x.wgsl
//   QUANTISE_OUT 1: results go to out8, outs as xs and x8 have them (batch_quantise.wgsl), OUT_UNITS units a row
//   EMIT_PARTS, EMIT_ACT 1: gate and up, or the results as floats, are stored too
//   STREAM pieces of a unit that a thread takes at a time in place of AT_ONCE units (stream_loads.wgsl); 0: units
//   HANDS_OVER 1 (EPI 0, one activation row): results go to joined.wgsl instead of out; TAKES_OVER 1: the branch comes from there,
//   and with AHEAD 1 (AT_ONCE 1) a thread's next unit is loaded as soon as it is there
// Row i of out begins at float i * STRIDE + OFFSET.
#default TAKES_OVER 0
#default STREAM 0
#if TAKES_OVER
// Nobody writes these, but a compiler that knew it would load them where they are multiplied, when what is handed over is there
// already (H100, Llama's output with gates and ups: 13.5 us so, 12.8 with loads that stay before what they are to overlap with).
@group(0) @binding(0) var<storage, read_write> codes : array<vec4u>;
#else
@group(0) @binding(0) var<storage, read> codes : array<vec4u>;
#endif
#if FORM >= 3
@group(0) @binding(1) var<storage, read> scales : array<u32>;
#endif
#if BIAS
@group(0) @binding(2) var<storage, read> bias : array<f32>;
#endif
#default HANDS_OVER 0
#if EPI == 0
#if !HANDS_OVER
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#endif
#elif QUANTISE_OUT
@group(0) @binding(5) var<storage, read_write> out8 : array<vec4u>;
@group(0) @binding(6) var<storage, read_write> outs : array<vec2f>;
#else
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#endif
#if EMIT_PARTS
@group(0) @binding(7) var<storage, read_write> gate_out : array<f32>;
@group(0) @binding(8) var<storage, read_write> up_out : array<f32>;
#endif
#if EMIT_ACT
@group(0) @binding(9) var<storage, read_write> act_out : array<f32>;
#endif
// COVERED 1: every thread's units exist, so that none is masked. SETS 2: gate and up, n below.
#define THREADS R * LANES
#define COVERED LANES * UNITS == UNITS_K
#define SETS 1 + (EPI == 1)
#define SET_ROWS ROWS
#include "weights.wgsl"
#if PRO == 1
#include "norm_prologue.wgsl"
#elif PRO == 2
#include "combine_prologue.wgsl"
#endif
#if EPI == 1
#include "activation.wgsl"
#endif

#if PRO == 0
#include "given_x.wgsl"
#endif
#include "dot.wgsl"
#include "row_sum.wgsl"
#default AHEAD 0
#if AHEAD
#include "next_unit.wgsl"
#endif

#define IN_SUBGROUP SUBGROUPS && SUBGROUP_SIZE >= 32 && THREADS % SUBGROUP_SIZE == 0
#if EPI == 1 && QUANTISE_OUT
#include "quantise_block.wgsl"
#if !(IN_SUBGROUP)
var<workgroup> acts : array<f32, ${R}>;  // the workgroup's results
#endif
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let row = group.x * ${R}u + t % ${R}u;
  let lane = t / ${R}u;
#if FORM == 9
  let factor = row_factor(row);
#endif
#if STREAM
#include "stream_loads.wgsl"
#else
#include "unit_loads.wgsl"
#endif
#if PRO == 0
  token = group.y;
#else
#if AHEAD
  next_row = row;
  next_unit = lane * ${UNITS}u + 1u;
#endif
  prologue(t, group.x == 0u);
#endif
#if STREAM
#include "stream_products.wgsl"
#else
#include "unit_products.wgsl"
#endif
#if EPI == 1
  let both = row_sum(vec2f(sum0, sum1), t);
#elif FORM == 9
  let total = row_sum(vec2f(sum0, 0.0), t).x * factor;
#else
  let total = row_sum(vec2f(sum0, 0.0), t).x;
#endif
#if EPI == 0
  if (t < ${R}u && row < ${ROWS}u) {
#if BIAS
    let result = total + bias[row];
#else
    let result = total;
#endif
#if HANDS_OVER
    hand_over(group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row, result);
#else
    out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = result;
#endif
  }
#else
  var act = 0.0;
  if (t < ${R}u && row < ${ROWS}u) {
#if BIAS
    let gate = both.x + bias[row];
    let up = both.y + bias[row + ${ROWS}u];
#else
    let gate = both.x;
    let up = both.y;
#endif
    act = activate(gate) * up;
#if EMIT_PARTS
    gate_out[group.y * ${ROWS}u + row] = gate;
    up_out[group.y * ${ROWS}u + row] = up;
#endif
#if EMIT_ACT
    act_out[group.y * ${ROWS}u + row] = act;
#endif
#if !QUANTISE_OUT
    out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = act;
#endif
  }
#if QUANTISE_OUT && (IN_SUBGROUP)
  // A block's 32 results lie in one subgroup: t < R has row t.
  var most = largest(vec4f(act));
#for k in 0..5
  most = max(most, subgroupShuffleXor(most, ${1 << k}u));
#endfor
  let code = i32(round(act * select(0.0, 127.0 / most, most > 0.0)));
  var codes_sum = code;
  var word = (u32(code) & 255u) << (8u * (t & 3u));
#for k in 0..5
  codes_sum += subgroupShuffleXor(codes_sum, ${1 << k}u);
#if k < 2
  word |= subgroupShuffleXor(word, ${1 << k}u);
#endif
#endfor
  let word1 = subgroupShuffleXor(word, 4u);
  let word2 = subgroupShuffleXor(word, 8u);
  let word3 = subgroupShuffleXor(word, 12u);
  if (t < ${R}u && (t & 15u) == 0u) {
    let at = (group.y * ${OUT_UNITS}u * 2u) + group.x * ${R / 32}u + (t >> 5u);
    out8[2u * at + ((t >> 4u) & 1u)] = vec4u(word, word1, word2, word3);
    if ((t & 31u) == 0u) {
      outs[at] = vec2f(most / 127.0, most / 127.0 * f32(codes_sum));
    }
  }
#elif QUANTISE_OUT
  if (t < ${R}u) {
    acts[t] = act;
  }
  workgroupBarrier();
  if (t < ${R / 16}u) {
    let block = t >> 1u;
    var most = 0.0;
#for i in 0..8
    let v${i} = vec4f(acts[block * 32u + ${4 * i}u], acts[block * 32u + ${4 * i + 1}u], acts[block * 32u + ${4 * i + 2}u],
        acts[block * 32u + ${4 * i + 3}u]);
    most = max(most, largest(v${i}));
#endfor
    let scale = most / 127.0;
    let inverse = select(0.0, 127.0 / most, most > 0.0);
    var codes_sum = 0;
#for i in 0..8
    let q${i} = codes_of(v${i}, inverse);
    codes_sum += q${i}.x + q${i}.y + q${i}.z + q${i}.w;
#endfor
    let at = (group.y * ${OUT_UNITS}u * 2u) + group.x * ${R / 32}u + block;
    if ((t & 1u) == 0u) {
      out8[2u * at] = vec4u(pack4xI8(q0), pack4xI8(q1), pack4xI8(q2), pack4xI8(q3));
      outs[at] = vec2f(scale, scale * f32(codes_sum));
    } else {
      out8[2u * at + 1u] = vec4u(pack4xI8(q4), pack4xI8(q5), pack4xI8(q6), pack4xI8(q7));
    }
  }
#endif
#endif
}
