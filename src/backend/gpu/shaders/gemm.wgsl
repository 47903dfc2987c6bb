// Y = X W' for many tokens, X in blocks of 8 bits as quantise.wgsl leaves them, W in quantised units (weights.wgsl). A
// workgroup makes TM tokens x TN rows of W; it goes through k in steps of UK units, which pass through workgroup memory
// while the next ones wait in registers. Codes that are plain nibbles stay nibbles until they are multiplied. Thread t has the columns
// t % LN + j LN and the tokens t / LN + i LM, so that a subgroup reads few tokens and neighbouring rows.
// UNROLLED writes the blocks of a step out, else they are a loop. With SPLITS > 1 each workgroup along z takes a part of k
// and stores its sums SPLIT_STRIDE apart (gemm_sum.wgsl adds them).
// TREE: adds units as the products of single tokens do (docs/kernels.md: one order of sums), which takes more registers; the steps of
// a part are a power of two then. TREE 0: one after the other.
// WIDE 1: eight blocks of x share their scale (quantise_vec.wgsl), and W has scales of 256 values, too (SCALES 3 to 5). Then a sum is one of codes, in
// units of that scale, which saves a multiplication for each block; when the scale changes, the sums so far are multiplied by its change.
// GROUPED: W are the matrices of EXPERTS under each other, from row FIRST on, and a workgroup's rows of X are those of a tile of
// expert_tiles.wgsl; row r of X is token r / CHOSEN's (OWN 0), or its own (OWN 1), and its results go to place r % CHOSEN.
// Workgroups: x over rows of W, y over tokens or tiles, z over splits.
//
// Template values (gemm_shape.cpp, batch_builder.cpp):
//   TM 16 to 64 tokens, TN 32 to 128 rows of a workgroup; RM, RN tokens and rows of a thread; UK 1 or 2 units of 64 values
//   ROWS of W, UNITS_K units of a row; FORM, SCALES see weights.wgsl; BIAS 1: bias[row] is added
//   COUNT the word of `step` with the number of tokens; token i's row of `out` begins at float i * OUT_STRIDE + OUT_OFFSET
// Here k is the sum's index, a unit 64 of it, a block 32 and a piece of x 16; x8, xs: see quantise.wgsl.
// Letters: w codes, h their upper bits, s scales, m minima of W; x codes, b block scales, q code sums of X; n a load of a thread.
#if !GROUPED
@group(0) @binding(0) var<storage, read> step : array<u32>;
#endif
// In loops as if they were written: else a compiler moves their loads down to where they are used, and they are not under way
// while a step is multiplied.
#if UNROLLED
@group(0) @binding(1) var<storage, read> codes : array<vec4u>;
@group(0) @binding(2) var<storage, read> scales : array<u32>;
#else
@group(0) @binding(1) var<storage, read_write> codes : array<vec4u>;
@group(0) @binding(2) var<storage, read_write> scales : array<u32>;
#endif
@group(0) @binding(3) var<storage, read> x8 : array<vec4u>;
@group(0) @binding(4) var<storage, read> xs : array<vec2f>;
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#if BIAS
@group(0) @binding(6) var<storage, read> bias : array<f32>;
#endif
#if GROUPED
@group(0) @binding(7) var<storage, read> order : array<u32>;
@group(0) @binding(8) var<storage, read> tiles : array<vec4u>;
var<workgroup> own_tile : vec4u;
#endif
#include "weights.wgsl"
// LN threads lie along the rows, LM along the tokens; GROUPS scales of a unit; SUMS 1: minima hold for groups of 16, so code
// sums are made here, per piece; LOADS_W, _S, _X, _B loads of a thread in a step.
#define LN TN / RN
#define LM TM / RM
#define THREADS LN * LM
#define GROUPS 2 + 2 * (GROUPS_16)
#define SUMS (GROUPS_16) && (HAS_MIN)
#define PIECES_X UK * 4
// Pieces of a unit as the tile holds them: codes of which more than a shift and a mask makes bytes become bytes once, before they are
// shared (an H200, Llama 3.2 1B in Q6_K: 16.7 ms for 512 tokens where each thread made its own, 16.2 so).
#define MADE FORM >= 6
#define STORED (MADE) * 4 + !(MADE) * (PIECES)
// Words of upper bits that belong to a piece.
#define HIGH_EACH (HIGH_WORDS) / (PIECES)
#define BLOCKS_X UK * 2
#if UNROLLED
#define REPEATS BLOCKS_X
#elif TREE
#define REPEATS UK
#else
#define REPEATS 1
#endif
#define UNIT_REPEATS REPEATS / UK
// A token's pieces lie this far apart: the padding spreads a subgroup's stores over the banks.
#define PITCH TM + 2 / UK
#define LOADS_W (TN * UK * PIECES + THREADS - 1) / THREADS
#define LOADS_S (TN * UK + THREADS - 1) / THREADS
#define LOADS_X (TM * PIECES_X + THREADS - 1) / THREADS
#define LOADS_B (TM * BLOCKS_X + THREADS - 1) / THREADS
#define STEPS (UNITS_K + UK - 1) / UK
#define STEPS_EACH (STEPS + SPLITS - 1) / SPLITS
#define TAIL UNITS_K % UK != 0
#define BRANCHES STEPS_EACH
// (scale * sum of codes) of a block of x is needed: with a minimum of the whole block, and where codes stand 6 above their levels.
#define RAISED (FORM == 8) && TREE
#define BLOCK_SUMS (HAS_MIN) && !(SUMS) || RAISED
#define LAST_ROW (ROWS + 63) / 64 * 64 - 1
#default WIDE 0
#define STEPS_OF_A_SCALE 4 / UK
// A step's sums have kMagicFloat times their scales in them, taken away behind the step: one operation less for each block. The sums are
// rounded to about a code times the scale by that, a tenth of what rounding x to codes does to a block.
#define BIASED (WIDE) && SCALES == 3

var<workgroup> tile_w : array<vec4u, ${TN * UK * (STORED)}>;  // [unit and piece][row]
var<workgroup> tile_s : array<f32, ${TN * UK * GROUPS}>;  // scales [unit][group][row]
var<workgroup> tile_x : array<vec4u, ${PIECES_X * PITCH}>;  // [piece][token], PITCH apart
#if WIDE
// The scale that sums are in units of, each read and written by one thread only, to spare it a register (an H200, 8B's gates and ups: 1,272 us for
// 512 tokens, 1,315 with a register; and with sums multiplied by the last scale in front of the branch that stores them 1,396).
var<workgroup> tile_was : array<f32, ${BLOCKS_X * TM}>;
#endif
var<workgroup> tile_b : array<f32, ${BLOCKS_X * TM}>;  // scales of x [block][token]
#if HAS_MIN
var<workgroup> tile_m : array<f32, ${TN * UK * GROUPS}>;  // minima [unit][group][row]
#endif
#if SUMS
var<workgroup> tile_q : array<f32, ${PIECES_X * PITCH}>;  // sums of codes [piece][token], PITCH apart
#elif BLOCK_SUMS
var<workgroup> tile_q : array<f32, ${BLOCKS_X * TM}>;  // scale * sum of codes [block][token]
#endif

// Four dots more in a sum that began at kMagic (weights.wgsl).
fn dots(sum : i32, w : vec4u, x : vec4u) -> i32 {
  return sum + dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}
fn float_of(sum : i32) -> f32 {
  return bitcast<f32>(sum) - kMagicFloat;
}
#if RAISED
// 6 above the levels, as dot.wgsl takes them: as unsigned bytes, so that nothing is carried.
fn raised(levels : vec4u) -> vec4u {
  return ((levels ^ vec4u(0x80808080u)) + vec4u(0x06060606u)) ^ vec4u(0x80808080u);
}
#endif
#if SUMS
fn sum_codes(x : vec4u) -> f32 {
  let one = vec4u(0x01010101u);
  return float_of(dots(kMagic, one, x));
}
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let row0 = group.x * ${TN}u;
#if GROUPED
  if (t == 0u) {
    own_tile = tiles[group.y];
  }
  let tile = workgroupUniformLoad(&own_tile);  // expert, first row in order, rows
  if (tile.z == 0u) {
    return;
  }
  let base = ${FIRST}u + tile.x * ${ROWS}u;
#else
  let token0 = group.y * ${TM}u;
#endif
  let column = t % ${LN}u;
  let lane = t / ${LN}u;
#if SPLITS > 1
  let first = group.z * ${STEPS_EACH}u;
  let end = min(first + ${STEPS_EACH}u, ${STEPS}u);
#else
  let first = 0u;
  let end = ${STEPS}u;
#endif
#for i in 0..RM
#for j in 0..RN
  var sum${i}_${j} = 0.0;
#if TREE && UK == 2
  var before${i}_${j} = 0.0;
#endif
#endfor
#endfor
#if TREE
#include "branch_levels.wgsl"
#endif
  // Where this thread's share of a step lies, by load n: rw, pw row and piece of codes; rs, us row and unit of scales;
  // px, tx, fx piece, token and row of x; pb, tb, fb block, token and row of its scales.
#for n in 0..LOADS_W
#if GROUPED
  let rw${n} = base + min(row0 + (t + ${n * THREADS}u) % ${TN}u, ${ROWS - 1}u);
#else
  let rw${n} = min(row0 + (t + ${n * THREADS}u) % ${TN}u, ${LAST_ROW}u);
#endif
#if (n + 1) * THREADS <= TN * UK * PIECES
  let pw${n} = (t + ${n * THREADS}u) / ${TN}u;
#else
  let pw${n} = min((t + ${n * THREADS}u) / ${TN}u, ${UK * PIECES - 1}u);
#endif
#if !(TAIL)
  let at_w${n} = code_index(rw${n}, 0u) + pw${n} * 64u;
#endif
#endfor
#for n in 0..LOADS_S
#if GROUPED
  let rs${n} = base + min(row0 + (t + ${n * THREADS}u) % ${TN}u, ${ROWS - 1}u);
#else
  let rs${n} = min(row0 + (t + ${n * THREADS}u) % ${TN}u, ${LAST_ROW}u);
#endif
  let us${n} = (t + ${n * THREADS}u) / ${TN}u;
#endfor
#for n in 0..LOADS_X
  let px${n} = (t + ${n * THREADS}u) % ${PIECES_X}u;
  let tx${n} = (t + ${n * THREADS}u) / ${PIECES_X}u;
#if GROUPED && OWN
  let fx${n} = order[tile.y + min(tx${n}, tile.z - 1u)];
#elif GROUPED
  let fx${n} = order[tile.y + min(tx${n}, tile.z - 1u)] / ${CHOSEN}u;
#else
  let fx${n} = token0 + min(tx${n}, ${TM - 1}u);
#endif
#endfor
#for n in 0..LOADS_B
  let pb${n} = (t + ${n * THREADS}u) % ${BLOCKS_X}u;
  let tb${n} = (t + ${n * THREADS}u) / ${BLOCKS_X}u;
#if GROUPED && OWN
  let fb${n} = order[tile.y + min(tb${n}, tile.z - 1u)];
#elif GROUPED
  let fb${n} = order[tile.y + min(tb${n}, tile.z - 1u)] / ${CHOSEN}u;
#else
  let fb${n} = token0 + min(tb${n}, ${TM - 1}u);
#endif
#endfor
#for n in 0..LOADS_W
  var w${n} = vec4u(0u);
#for k in 0..HIGH_EACH
  var h${n}_${k} = 0u;
#endfor
#endfor
#for n in 0..LOADS_S
  var s${n} = vec4u(0u);
#endfor
#for n in 0..LOADS_X
  var x${n} = vec4u(0u);
#endfor
#for n in 0..LOADS_B
  var b${n} = vec2f(0.0);
#endfor
#if WIDE
#for n in 0..LOADS_B
#if (n + 1) * THREADS <= TM * BLOCKS_X
  {
#else
  if (t + ${n * THREADS}u < ${TM * BLOCKS_X}u) {
#endif
    tile_was[pb${n} * ${TM}u + tb${n}] = 1.0;
  }
#endfor
#endif
  // The step that the registers hold; where a split has none, the last one of all, which nobody multiplies.
  var next = min(first, ${STEPS - 1}u);
#for inside in 0..2
#if inside
  for (var at = first; at < end; at++) {
    workgroupBarrier();
#for n in 0..LOADS_W
#if (n + 1) * THREADS <= TN * UK * PIECES
    {
#else
    if (t + ${n * THREADS}u < ${TN * UK * PIECES}u) {
#endif
#if MADE
      let to = (t + ${n * THREADS}u) / ${TN}u * ${2 * TN}u + (t + ${n * THREADS}u) % ${TN}u;
#if HIGH_WORDS
      tile_w[to] = signed_low(w${n}, h${n}_0);
      tile_w[to + ${TN}u] = signed_high(w${n}, h${n}_${HIGH_EACH - 1});
#elif TREE
      tile_w[to] = raised(low_levels(w${n}));
      tile_w[to + ${TN}u] = raised(high_levels(w${n}));
#else
      tile_w[to] = low_levels(w${n});
      tile_w[to + ${TN}u] = high_levels(w${n});
#endif
#else
      tile_w[t + ${n * THREADS}u] = w${n};
#endif
    }
#endfor
#for n in 0..LOADS_S
#if (n + 1) * THREADS <= TN * UK
    {
#else
    if (t + ${n * THREADS}u < ${TN * UK}u) {
#endif
      let to = us${n} * ${GROUPS * TN}u + (t + ${n * THREADS}u) % ${TN}u;
#if TAIL
      let there = f32(at * ${UK}u + us${n} < ${UNITS_K}u);
#endif
#for g in 0..GROUPS
      var scale${g} = group_scale(
#for word in 0..OWN_WORDS
        s${n}[${word}],
#endfor
#for word in 0..HIGH_WORDS
        0u,
#endfor
        ${g}u);
#if TAIL
      scale${g} *= there;
#endif
#if FORM == 8
      tile_s[to + ${g * TN}u] = scale${g}.x;
#else
      tile_s[to + ${g * TN}u] = scale${g}.x * kCodeFactor;
#endif
#if HAS_MIN
      tile_m[to + ${g * TN}u] = scale${g}.y;
#endif
#endfor
    }
#endfor
#for n in 0..LOADS_X
#if (n + 1) * THREADS <= TM * PIECES_X
    {
#else
    if (t + ${n * THREADS}u < ${TM * PIECES_X}u) {
#endif
      tile_x[px${n} * ${PITCH}u + tx${n}] = x${n};
#if SUMS
      tile_q[px${n} * ${PITCH}u + tx${n}] = sum_codes(x${n});
#endif
    }
#endfor
#for n in 0..LOADS_B
#if (n + 1) * THREADS <= TM * BLOCKS_X
    {
#else
    if (t + ${n * THREADS}u < ${TM * BLOCKS_X}u) {
#endif
#if WIDE
      let inverse = 1.0 / b${n}.x;
      tile_b[pb${n} * ${TM}u + tb${n}] = tile_was[pb${n} * ${TM}u + tb${n}] * inverse;
      tile_was[pb${n} * ${TM}u + tb${n}] = b${n}.x;
#if BLOCK_SUMS
      tile_q[pb${n} * ${TM}u + tb${n}] = b${n}.y * inverse;
#endif
#else
      tile_b[pb${n} * ${TM}u + tb${n}] = b${n}.x;
#if BLOCK_SUMS
      tile_q[pb${n} * ${TM}u + tb${n}] = b${n}.y;
#endif
#endif
    }
#endfor
    workgroupBarrier();
    // The next step is on its way meanwhile; after the last one that is read again.
    next = min(at + 1u, ${STEPS - 1}u);
#endif
#for n in 0..LOADS_W
#if TAIL
    // Beyond the last unit, that unit is read again; its scales are zero then.
    w${n} = codes[code_index(rw${n}, min(next * ${UK}u + pw${n} / ${PIECES}u, ${UNITS_K - 1}u)) + pw${n} % ${PIECES}u * 64u];
#else
    w${n} = codes[at_w${n} + next * ${UK * PIECES * 64}u];
#endif
#if HIGH_WORDS
    let high${n} = scale_index(rw${n}, min(next * ${UK}u + pw${n} / ${PIECES}u, ${UNITS_K - 1}u)) + ${OWN_WORDS * 64}u;
#for k in 0..HIGH_EACH
    h${n}_${k} = scales[high${n} + (pw${n} % ${PIECES}u * ${HIGH_EACH}u + ${k}u) * 64u];
#endfor
#endif
#endfor
#for n in 0..LOADS_S
    {
      let from_s = scale_index(rs${n}, min(next * ${UK}u + us${n}, ${UNITS_K - 1}u));
#for word in 0..OWN_WORDS
      s${n}[${word}] = own_scale(scales[from_s + ${word * 64}u], min(next * ${UK}u + us${n}, ${UNITS_K - 1}u));
#endfor
    }
#endfor
#for n in 0..LOADS_X
#if TAIL
    x${n} = x8[fx${n} * ${UNITS_K * 4}u + min(next * ${PIECES_X}u + px${n}, ${UNITS_K * 4 - 1}u)];
#else
    x${n} = x8[fx${n} * ${UNITS_K * 4}u + next * ${PIECES_X}u + px${n}];
#endif
#endfor
#for n in 0..LOADS_B
#if TAIL
    b${n} = xs[fb${n} * ${UNITS_K * 2}u + min(next * ${BLOCKS_X}u + pb${n}, ${UNITS_K * 2 - 1}u)];
#else
    b${n} = xs[fb${n} * ${UNITS_K * 2}u + next * ${BLOCKS_X}u + pb${n}];
#endif
#endfor
#endfor
#if WIDE
    if (at % ${STEPS_OF_A_SCALE}u == 0u) {
#for i in 0..RM
      {
        let change = tile_b[lane + ${i * LM}u];
#for j in 0..RN
        sum${i}_${j} *= change;
#endfor
      }
#endfor
    }
#endif
// Block b of the step: lo, hi the first and last 16 codes of a row; sa, sb their scales and ma, mb their minima (only a where
// the block has one); xa, xb, qa, qb the same of a token.
#for part in 0..REPEATS
#if TREE && part % UNIT_REPEATS == 0
#for i in 0..RM
#for j in 0..RN
    sum${i}_${j} = 1.2e-38;  // as dot.wgsl begins
#endfor
#endfor
#endif
    for (var b = ${part * BLOCKS_X / REPEATS}u; b < ${(part + 1) * BLOCKS_X / REPEATS}u; b++) {
#for j in 0..RN
#if FORM == 3 || MADE
      let lo${j} = tile_w[b * ${2 * TN}u + column + ${j * LN}u];
      let hi${j} = tile_w[b * ${2 * TN}u + column + ${TN + j * LN}u];
#else
      let both${j} = tile_w[b * ${TN}u + column + ${j * LN}u];
#if FORM == 4
      let lo${j} = (both${j} << vec4u(4u)) & vec4u(0xf0f0f0f0u);
      let hi${j} = both${j} & vec4u(0xf0f0f0f0u);
#else
      let lo${j} = both${j} & vec4u(0x0f0f0f0fu);
      let hi${j} = (both${j} >> vec4u(4u)) & vec4u(0x0f0f0f0fu);
#endif
#endif
#if GROUPS_16
      let sa${j} = tile_s[b * ${2 * TN}u + column + ${j * LN}u];
      let sb${j} = tile_s[b * ${2 * TN}u + column + ${TN + j * LN}u];
#if HAS_MIN
      let ma${j} = tile_m[b * ${2 * TN}u + column + ${j * LN}u];
      let mb${j} = tile_m[b * ${2 * TN}u + column + ${TN + j * LN}u];
#endif
#else
      let sa${j} = tile_s[b * ${TN}u + column + ${j * LN}u];
#if BITS_IN_SCALE
      let taken${j} = sa${j} * -kMagicFloat;
#endif
#if HAS_MIN
      let ma${j} = tile_m[b * ${TN}u + column + ${j * LN}u];
#endif
#endif
#endfor
#for i in 0..RM
      {
        let xa = tile_x[b * ${2 * (PITCH)}u + lane + ${i * LM}u];
        let xb = tile_x[b * ${2 * (PITCH)}u + lane + ${PITCH + i * LM}u];
#if !(WIDE)
        let xscale = tile_b[b * ${TM}u + lane + ${i * LM}u];
#endif
#if SUMS
        let qa = tile_q[b * ${2 * (PITCH)}u + lane + ${i * LM}u];
        let qb = tile_q[b * ${2 * (PITCH)}u + lane + ${PITCH + i * LM}u];
#elif BLOCK_SUMS
        let q = tile_q[b * ${TM}u + lane + ${i * LM}u];
#endif
#for j in 0..RN
#if WIDE && (GROUPS_16)
        sum${i}_${j} = fma(sa${j}, float_of(dots(kMagic, lo${j}, xa)), sum${i}_${j});
        sum${i}_${j} = fma(sb${j}, float_of(dots(kMagic, hi${j}, xb)), sum${i}_${j});
#if HAS_MIN
        sum${i}_${j} = fma(ma${j}, qa, fma(mb${j}, qb, sum${i}_${j}));
#endif
#elif WIDE
        sum${i}_${j} = fma(sa${j}, bitcast<f32>(dots(dots(kMagic, lo${j}, xa), hi${j}, xb)), sum${i}_${j});
        sum${i}_${j} = fma(ma${j}, q, sum${i}_${j});
#else
#if GROUPS_16
        var part${j} = fma(sa${j}, float_of(dots(kMagic, lo${j}, xa)), sb${j} * float_of(dots(kMagic, hi${j}, xb)));
#if HAS_MIN
        part${j} = fma(ma${j}, qa, fma(mb${j}, qb, part${j}));
#endif
#elif BITS_IN_SCALE
        let part${j} = fma(sa${j}, bitcast<f32>(dots(dots(kMagic, lo${j}, xa), hi${j}, xb)), taken${j});
#else
        let part${j} = sa${j} * float_of(dots(dots(kMagic, lo${j}, xa), hi${j}, xb));
#endif
#if RAISED
        sum${i}_${j} = fma(-6.0 * sa${j}, q, sum${i}_${j});
#endif
        sum${i}_${j} = fma(part${j}, xscale, sum${i}_${j});
#if HAS_MIN && !(GROUPS_16)
        sum${i}_${j} = fma(ma${j}, q, sum${i}_${j});
#endif
#endif
#endfor
      }
#endfor
    }
#if TREE && (part + 1) % UNIT_REPEATS == 0
#if TAIL
    if (at * ${UK}u + ${part / UNIT_REPEATS}u >= ${UNITS_K}u) {
#for i in 0..RM
#for j in 0..RN
      sum${i}_${j} = 0.0;
#endfor
#endfor
    }
#endif
#if part + 1 < REPEATS
#for i in 0..RM
#for j in 0..RN
    before${i}_${j} = sum${i}_${j};
#endfor
#endfor
#elif UK == 2
#for i in 0..RM
#for j in 0..RN
    sum${i}_${j} = before${i}_${j} + sum${i}_${j};
#endfor
#endfor
#endif
#endif
#endfor
#if BIASED
#for j in 0..RN
    {
      var bias = 0.0;
#for g in 0..GROUPS * UK
      bias += tile_s[${g * TN}u + column + ${j * LN}u];
#endfor
      bias *= kMagicFloat;
#for i in 0..RM
      sum${i}_${j} -= bias;
#endfor
    }
#endfor
#endif
#if TREE
    let done = at - first;
#include "branch_sums.wgsl"
#endif
  }
#if TREE
  let steps = max(end, first) - first;
#include "waiting_sums.wgsl"
#endif
#if !GROUPED
  let tokens = step[${COUNT}u];
#endif
#for i in 0..RM
  {
#if GROUPED
    let at = lane + ${i * LM}u;
    if (at < tile.z) {
      let number = order[tile.y + at];
      let to = number / ${CHOSEN}u * ${OUT_STRIDE}u + ${OUT_OFFSET}u + number % ${CHOSEN}u * ${ROWS}u;
#if OWN
      let token = number;
#else
      let token = number / ${CHOSEN}u;
#endif
#else
    let token = token0 + lane + ${i * LM}u;
    if (token < tokens) {
#if SPLITS > 1
      let to = group.z * ${SPLIT_STRIDE}u + token * ${OUT_STRIDE}u + ${OUT_OFFSET}u;
#else
      let to = token * ${OUT_STRIDE}u + ${OUT_OFFSET}u;
#endif
#endif
#if WIDE
      let unit = xs[token * ${UNITS_K * 2}u + end * ${BLOCKS_X}u - 1u].x;
#endif
#for j in 0..RN
      {
        let row = row0 + column + ${j * LN}u;
#if WIDE
        let y = unit * sum${i}_${j};
#else
        let y = sum${i}_${j};
#endif
#if ROWS % TN == 0
        {
#else
        if (row < ${ROWS}u) {
#endif
#if BIAS && GROUPED
          out[to + row] = y + bias[tile.x * ${ROWS}u + row];
#elif BIAS
          out[to + row] = y + bias[row];
#else
          out[to + row] = y;
#endif
        }
      }
#endfor
    }
  }
#endfor
}
