// Y = X W' (+ bias) for a few rows of X, COLUMNS at a time, so that a weight is read once for all of them. A workgroup
// takes R * SETS rows of W; thread t has the rows t % R of each set and the units from t / R * UNITS on.
// A column's sums are made in the same order whatever the others hold.
//   EPI 0: results are stored; the sets of a workgroup lie R rows apart
//   EPI 1: half of the sets are of gate and half of up, ROWS after them: activation(gate) * up is stored in 8-bit blocks
//          (out8, outs; and in `out` with EMIT_ACT)
// Workgroups: x over R * SETS rows (EPI 1: half of that), y over COLUMNS rows of X.
//
// Template values (batch_few.cpp): R, LANES, UNITS as in gemv.wgsl; SETS 1, 2 or 4; COLUMNS 2 to 8; ROWS of W (EPI 1: of gate,
// and as many of up after them); FORM, SCALES, UNITS_K see weights.wgsl; ACT, X_VEC, WIDTH, X_STRIDE, X_OFFSET see given_x.wgsl;
// BIAS 1: bias[row] is added; COUNT the word of `step` with the number of X's rows; OUT_UNITS units of 64 in a row of out8.
// Row i of `out` begins at float i * OUT_STRIDE + OUT_OFFSET.
@group(0) @binding(0) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(1) var<storage, read> scales : array<u32>;
#endif
#if BIAS
@group(0) @binding(2) var<storage, read> bias : array<f32>;
#endif
@group(0) @binding(5) var<storage, read> step : array<u32>;
#if EPI == 0 || EMIT_ACT
@group(0) @binding(6) var<storage, read_write> out : array<f32>;
#endif
#if EPI == 1
@group(0) @binding(7) var<storage, read_write> out8 : array<u32>;
@group(0) @binding(8) var<storage, read_write> outs : array<vec2f>;
#endif
// COVERED 1: every thread's units exist, so that none is masked. SETS_EACH sets of a matrix lie R rows apart.
#define THREADS R * LANES
#define COVERED LANES * UNITS == UNITS_K
#define SETS_EACH SETS / (1 + EPI)
#define SET_STEP R
#define SET_ROWS ROWS
#define ROWS_HERE R * SETS_EACH
// As branch_levels.wgsl takes them: a thread's sums are of COLUMNS x SETS, and each unit is a branch.
#define RM COLUMNS
#define RN SETS
#define BRANCHES UNITS
#include "weights.wgsl"
#include "given_x.wgsl"
#include "dot.wgsl"
#if QUANTISED
#include "next_unit.wgsl"
#endif
#if EPI == 1
#include "activation.wgsl"
#include "quantise_vec.wgsl"
var<workgroup> acts : array<f32, ${COLUMNS * ROWS_HERE}>;  // [column][row]
#endif

var<workgroup> column_parts : array<f32, ${COLUMNS * SETS * THREADS}>;  // [column][set][lane][row]

// The sum over the lanes of one row of a set, neighbours first (docs/kernels.md: one order of sums).
fn lanes_sum(column_and_set : u32, row : u32) -> f32 {
  let at = column_and_set * ${THREADS}u + row;
#for i in 0..LANES
  let part_${i} = column_parts[at + ${i * R}u];
#sum part, i, LANES
#endfor
  return part;
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let row = group.x * ${ROWS_HERE}u + t % ${R}u;
  let lane = t / ${R}u;
#if QUANTISED
#define AT_ONCE 1
#endif
#include "unit_loads.wgsl"
  let count = step[${COUNT}u];
  let first = group.y * ${COLUMNS}u;
#if QUANTISED
  // Unit by unit, each while the next one is on its way. Written out, the code of a layer's products would not fit the cache
  // for instructions: on an H100 they took twice as long in their places as one of them again and again.
#include "branch_levels.wgsl"
#for c in 0..COLUMNS
#for n in 0..SETS
  var sum${c}_${n} = 0.0;
#endfor
#endfor
#for n in 0..SETS
#for p in 0..PIECES
  var v${n}_${p} = w${n}_0_${p};
#endfor
#for s in 0..SCALE_WORDS
  var z${n}_${s} = s${n}_0_${s};
#endfor
#endfor
  next_row = row;
  next_unit = lane * ${UNITS}u + 1u;
  for (var done = 0u; done < ${UNITS}u; done++) {
    let unit = min(lane * ${UNITS}u + done, ${UNITS_K - 1}u);
    if (done < ${UNITS - 1}u) {
      load_next();
    }
#if FORM == 9
    // What takes many instructions to read is read once for all columns.
#for c in 0..COLUMNS
#for n in 0..SETS
    sum${c}_${n} = 1.2e-38;  // as dot.wgsl begins
#endfor
#endfor
#for j in 0..16
#define B j / 8
#define V j % 8
#define P 3 * B + (V < 6) * (V / 2) + (V == 7) * 2
    {
#for n in 0..SETS
      let w_${n} = block_vector(v${n}_${P}, v${n}_${3 * B + 1}, z${n}_${B}, ${V}u);
#endfor
#for c in 0..COLUMNS
      {
        token = min(first + ${c}u, count - 1u);
        let x = x_at(unit, ${j}u);
#for n in 0..SETS
        sum${c}_${n} = plus_products(sum${c}_${n}, w_${n}, x);
#endfor
      }
#endfor
    }
#endfor
#if !(COVERED)
#for c in 0..COLUMNS
#for n in 0..SETS
    sum${c}_${n} = select(0.0, sum${c}_${n}, lane * ${UNITS}u + done < ${UNITS_K}u);
#endfor
#endfor
#endif
#else
#for c in 0..COLUMNS
    token = min(first + ${c}u, count - 1u);
#for n in 0..SETS
    sum${c}_${n} = dot_unit(
#for p in 0..PIECES
        v${n}_${p},
#endfor
#for s in 0..SCALE_WORDS
        z${n}_${s},
#endfor
        unit);
#if !(COVERED)
    sum${c}_${n} = select(0.0, sum${c}_${n}, lane * ${UNITS}u + done < ${UNITS_K}u);
#endif
#endfor
#endfor
#endif
#include "branch_sums.wgsl"
#for n in 0..SETS
#for p in 0..PIECES
    v${n}_${p} = ahead${n}_${p};
#endfor
#for s in 0..SCALE_WORDS
    z${n}_${s} = ahead_scales${n}_${s};
#endfor
#endfor
  }
  let steps = ${UNITS}u;
#include "waiting_sums.wgsl"
#for c in 0..COLUMNS
#for n in 0..SETS
  column_parts[${(c * SETS + n) * THREADS}u + t] = sum${c}_${n};
#endfor
#endfor
#else
  // A unit of floats is so much code that two columns are written out, all units of each.
  for (var c = 0u; c < ${COLUMNS}u; c += 2u) {
#for u in 0..UNITS
#for e in 0..2
    token = min(first + c + ${e}u, count - 1u);
#for n in 0..SETS
    let made${n}_${e}_${u} = dot_unit(
#for p in 0..PIECES
        w${n}_${u}_${p},
#endfor
        unit${u});
#if COVERED
    let d${n}_${e}_${u} = made${n}_${e}_${u};
#else
    let d${n}_${e}_${u} = select(0.0, made${n}_${e}_${u}, lane * ${UNITS}u + ${u}u < ${UNITS_K}u);
#endif
#sum d${n}_${e}, u, UNITS
#endfor
#endfor
#endfor
#for e in 0..2
#for n in 0..SETS
    column_parts[(c * ${SETS}u + ${e * SETS + n}u) * ${THREADS}u + t] = d${n}_${e};
#endfor
#endfor
  }
#endif
  workgroupBarrier();
#if EPI == 0
  for (var i = t; i < ${COLUMNS * SETS * R}u; i += ${THREADS}u) {
    let at = i / ${R}u;
    let column = first + at / ${SETS}u;
    let to = group.x * ${ROWS_HERE}u + at % ${SETS}u * ${R}u + i % ${R}u;
    if (column < count && to < ${ROWS}u) {
      var total = lanes_sum(at, i % ${R}u);
#if FORM == 9
      total *= row_factor(to);
#endif
#if BIAS
      total += bias[to];
#endif
      out[column * ${OUT_STRIDE}u + ${OUT_OFFSET}u + to] = total;
    }
  }
#else
  for (var i = t; i < ${COLUMNS * ROWS_HERE}u; i += ${THREADS}u) {
    let c = i / ${ROWS_HERE}u;
    let to = group.x * ${ROWS_HERE}u + i % ${ROWS_HERE}u;
    let at = c * ${SETS}u + i % ${ROWS_HERE}u / ${R}u;
    var act = 0.0;
    if (to < ${ROWS}u) {
      var gate = lanes_sum(at, i % ${R}u);
      var up = lanes_sum(at + ${SETS_EACH}u, i % ${R}u);
#if BIAS
      gate += bias[to];
      up += bias[to + ${ROWS}u];
#endif
      act = activate(gate) * up;
    }
    acts[i] = act;
#if EMIT_ACT
    if (first + c < count && to < ${ROWS}u) {
      out[(first + c) * ${OUT_STRIDE}u + ${OUT_OFFSET}u + to] = act;
    }
#endif
  }
  workgroupBarrier();
  // Eight neighbouring threads quantise a block of 32 results together.
#for round in 0..(COLUMNS * ROWS_HERE / 4 + THREADS - 1) / THREADS
  {
    let i = t + ${round * THREADS}u;
    let at = min(i, ${COLUMNS * ROWS_HERE / 4 - 1}u) * 4u;
    let made = quantise_vec(vec4f(acts[at], acts[at + 1u], acts[at + 2u], acts[at + 3u]), t);
    let column = first + i / ${ROWS_HERE / 4}u;
    if (i < ${COLUMNS * ROWS_HERE / 4}u && column < count) {
      let word = group.x * ${ROWS_HERE / 4}u + i % ${ROWS_HERE / 4}u;
      out8[column * ${OUT_UNITS * 16}u + word] = made.word;
      if ((i & 7u) == 0u) {
        outs[column * ${OUT_UNITS * 2}u + word / 8u] = vec2f(made.scale, made.scale * f32(made.sum));
      }
    }
  }
#endfor
#endif
}
