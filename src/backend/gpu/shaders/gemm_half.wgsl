enable f16;
#if COOP == 1
enable wgpu_cooperative_matrix;
#endif
// Y = X W' for many tokens on tensor cores: X in halves as halves.wgsl leaves them, W quantised or in half precision
// (weights.wgsl), decoded to halves in workgroup memory; sums in floats. A workgroup makes TM tokens x TN rows of W, and goes
// through k in steps of KB blocks of 32. Two steps wait in two sets of registers while one is multiplied: without that, memory's
// latency takes half of the time. GM x GN subgroups share the tile. A thread decodes one block of one row in a step.
// With SPLITS > 1 each workgroup along z takes a part of k and stores its sums SPLIT_STRIDE apart (gemm_sum.wgsl adds them).
// Workgroups: x over rows of W, y over tokens, z over splits. Subgroups have 32 threads, in order.
//
// Template values (half_shape.cpp, batch_halves.cpp):
//   TM, TN, GM, GN, KB: THREADS = 32 GM GN = KB TN; ROWS of W, UNITS_K units of a row; FORM 1 to 9, SCALES see weights.wgsl
//   BIAS 1: bias[row] is added; COUNT the word of `step` with the number of tokens; HALF_TOKENS tokens that x16 has room for
//   token i's row of `out` begins at float i * OUT_STRIDE + OUT_OFFSET; COOP see coop.wgsl
// Letters: w codes, s scales, h upper bits of W; x of X; a number behind them is the set of registers.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(2) var<storage, read> scales : array<u32>;
#endif
@group(0) @binding(3) var<storage, read> x16 : array<vec4<f16>>;
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#if BIAS
@group(0) @binding(6) var<storage, read> bias : array<f32>;
#endif
#include "weights.wgsl"
// FM, FN tiles of 16 that a subgroup has along tokens and rows; BLOCK_PIECES of 16 bytes and BLOCK_HIGH words of upper bits that a
// block of a row has; PITCH vec4s between rows of workgroup memory: 16 bytes more than a row, which spreads loads over the banks.
#define FM TM / 16 / GM
#define FN TN / 16 / GN
#define THREADS GM * GN * 32
#define BLOCK_PIECES (PIECES) / 2
#define BLOCK_HIGH (HIGH_WORDS) / 2
#define PITCH KB * 8 + 2
#define LOADS_X TM * KB * 8 / THREADS
#define STEPS UNITS_K * 2 / KB
// Even, so that a set of registers always has the same half of a unit where KB is 1.
#define STEPS_EACH ((STEPS + SPLITS - 1) / SPLITS + 1) / 2 * 2
// Groups of values with a scale of their own that a block has.
#define GROUPS_EACH 1 + (GROUPS_16)
#define LAST_ROW (ROWS + 63) / 64 * 64 - 1
// Results go straight to `out` where a whole tile does and its rows begin at 16 bytes.
#define STRAIGHT OUT_STRIDE % 4 == 0 && OUT_OFFSET % 4 == 0 && BIAS == 0

var<workgroup> tile_w : array<vec4<f16>, ${TN * PITCH}>;
var<workgroup> tile_x : array<vec4<f16>, ${TM * PITCH}>;
var<workgroup> staged : array<f32, ${GM * GN * 256}>;
#include "coop.wgsl"
// Tiles of tile_x and of tile_w, which has W's rows as columns; places count vec4s.
#if COOP == 1
fn coop_load_a(at : u32) -> CoopA {
  return coopLoadT<CoopA>(&tile_x[at], ${PITCH}u);
}
fn coop_load_b(at : u32) -> CoopB {
  return coopLoad<CoopB>(&tile_w[at], ${PITCH}u);
}
fn coop_store_out(c : CoopC, at : u32) {
  coopStoreT(c, &out[at], ${OUT_STRIDE}u);
}
#else
fn coop_load_a(at : u32) -> CoopA {
  return at;
}
fn coop_load_b(at : u32) -> CoopB {
  return at;
}
fn coop_mma(a : CoopA, b : CoopB, c : CoopC) -> CoopC {
  var sums = c;
  for (var i = 0u; i < 8u; i++) {
    for (var v = 0u; v < 4u; v++) {
      sums[i] += dot(vec4f(tile_x[a + coop_row(i) * ${PITCH}u + v]), vec4f(tile_w[b + coop_column() * ${PITCH}u + v]));
    }
  }
  return sums;
}
fn coop_store_out(c : CoopC, at : u32) {
  var sums = c;
  for (var i = 0u; i < 8u; i++) {
    out[at + coop_row(i) * ${OUT_STRIDE}u + coop_column()] = sums[i];
  }
}
#endif

fn halves(a : u32, b : u32) -> vec4<f16> {
  return vec4<f16>(vec4f(unpack2x16float(a), unpack2x16float(b)));
}
// 0x6400 are the bits of 1024 as a half, and its last ten bits count: a code put there is 1024 more than itself.
#if FORM == 4
fn nibbles(w : u32) -> vec4<f16> {
  return halves((w & 0x000f000fu) ^ 0x64086408u, ((w >> 8u) & 0x000f000fu) ^ 0x64086408u) - vec4<f16>(1032.0h);
}
#elif FORM == 5
fn nibbles(w : u32) -> vec4<f16> {
  return halves((w & 0x000f000fu) | 0x64006400u, ((w >> 8u) & 0x000f000fu) | 0x64006400u) - vec4<f16>(1024.0h);
}
#elif FORM == 9
// In the order in which halves.wgsl has four activations.
fn four(v : vec4f, factor : f32) -> vec4<f16> {
  return vec4<f16>(v.xzyw * factor);
}
#elif FORM >= 3
fn signed_bytes(w : u32) -> vec4<f16> {
  let u = w ^ 0x80808080u;
  return halves((u & 0x00ff00ffu) | 0x64006400u, ((u >> 8u) & 0x00ff00ffu) | 0x64006400u) - vec4<f16>(1152.0h);
}
#elif FORM == 2
fn four(a : u32, b : u32) -> vec4<f16> {
  return vec4<f16>(bitcast<vec4f>(vec4u(a << 16u, b << 16u, a & 0xffff0000u, b & 0xffff0000u)) * 32.0);
}
#else
fn four(a : u32, b : u32) -> vec4<f16> {
  return halves((a & 0xffffu) | (b << 16u), (a >> 16u) | (b & 0xffff0000u)) * 32.0h;
}
#endif

// The values of a tile in `staged` that are within Y; it begins at that token and row.
fn put_edge(own : u32, lane : u32, token0 : u32, column0 : u32, tokens : u32, base : u32) {
  for (var e = lane; e < 256u; e += 32u) {
    let token = token0 + e / 16u;
    let column = column0 + e % 16u;
    if (token < tokens && column < ${ROWS}u) {
#if BIAS
      out[base + token * ${OUT_STRIDE}u + column] = staged[own + e] + bias[column];
#else
      out[base + token * ${OUT_STRIDE}u + column] = staged[own + e];
#endif
    }
  }
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  coop_begin(t);
  let row0 = group.x * ${TN}u;
  let token0 = group.y * ${TM}u;
#if SPLITS > 1
  let first = group.z * ${STEPS_EACH}u;
  let end = min(first + ${STEPS_EACH}u, ${STEPS}u);
#else
  let first = 0u;
  let end = ${STEPS}u;
#endif
  // What this thread loads and where it puts it.
  let block = t / ${TN}u;
  let row = min(row0 + t % ${TN}u, ${LAST_ROW}u);
  let from_w = code_index(row, 0u) + block * ${BLOCK_PIECES * 64}u;
  let from_x = token0 * 8u + t;
  let to_w = (t % ${TN}u) * ${PITCH}u + block * 8u;
  let to_x = (t / 8u) * ${PITCH}u + t % 8u;
#if FORM == 9
  let factor = row_factor(row) * 32.0;
#endif
  // The subgroup's part of the tile.
  let part_m = (t / 32u) % ${GM}u * ${FM * 16}u;
  let part_n = (t / 32u) / ${GM}u * ${FN * 16}u;
#if COOP
#for i in 0..FM
#for j in 0..FN
  var c${i}_${j} = coop_zero();
#endfor
#endfor
#else
  var c : array<CoopC, ${FM * FN}>;  // in loops: written out, a software adapter would compile for half a minute
#endif
#for set in 0..2
#for n in 0..BLOCK_PIECES
  var w${set}_${n} : vec4u;
#endfor
#for n in 0..OWN_WORDS
  var s${set}_${n} : u32;
#endfor
#for n in 0..BLOCK_HIGH
  var h${set}_${n} : u32;
#endfor
#for n in 0..LOADS_X
  var x${set}_${n} : vec4<f16>;
#endfor
#endfor
  // Once to fill the registers, then in a loop. Beyond the end the last step is loaded again, for nothing.
#for looped in 0..2
#if looped
  for (var at = first + 2u; at < end + 2u; at += 2u) {
#else
  {
    let at = first;
#endif
#for set in 0..2
#if looped
#if set == 1 && STEPS % 2 == 1
    if (at + 1u >= end + 2u) {
      break;
    }
#endif
#if FORM == 9
#for v in 0..8
#define P (v < 6) * (v / 2) + (v == 7) * 2
    tile_w[to_w + ${v}u] = four(block_vector(w${set}_${P}, w${set}_1, h${set}_0, ${v}u), factor);
#endfor
#elif FORM >= 3
#for g in 0..GROUPS_EACH
    {
#if KB == 1
      let number = ${GROUPS_EACH * set + g}u;
#else
      let number = ${GROUPS_EACH}u * block + ${g}u;
#endif
      let scale = group_scale(
#for n in 0..OWN_WORDS
        s${set}_${n},
#endfor
#for n in 0..HIGH_WORDS
        0u,
#endfor
        number) * 32.0;
#if HIGH_WORDS
      let factor = f16(scale.x * kCodeFactor);
#else
      let factor = f16(scale.x);
#endif
#for i in 0..8 / GROUPS_EACH
#define V g * 4 + i
#if FORM == 4 || FORM == 5
      let v${i} = nibbles(w${set}_0[${V % 4}] >> ${V / 4 * 4}u) * factor;
#elif FORM == 3
      let v${i} = signed_bytes(w${set}_${V / 4}[${V % 4}]) * factor;
#elif FORM == 8 && V < 4
      let v${i} = signed_bytes(low_levels(w${set}_0)[${V % 4}]) * factor;
#elif FORM == 8
      let v${i} = signed_bytes(high_levels(w${set}_0)[${V % 4}]) * factor;
#elif V < 4
      let v${i} = signed_bytes(signed_low(w${set}_0, h${set}_0)[${V % 4}]) * factor;
#else
      let v${i} = signed_bytes(signed_high(w${set}_0, h${set}_${BLOCK_HIGH - 1})[${V % 4}]) * factor;
#endif
#if HAS_MIN
      tile_w[to_w + ${V}u] = v${i} + f16(scale.y);
#else
      tile_w[to_w + ${V}u] = v${i};
#endif
#endfor
    }
#endfor
#else
#for n in 0..4
    tile_w[to_w + ${2 * n}u] = four(w${set}_${n}.x, w${set}_${n}.y);
    tile_w[to_w + ${2 * n + 1}u] = four(w${set}_${n}.z, w${set}_${n}.w);
#endfor
#endif
#for n in 0..LOADS_X
    tile_x[to_x + ${n * THREADS % (TM * 8) / 8 * (PITCH) + n * THREADS / (TM * 8) * 8}u] = x${set}_${n};
#endfor
    workgroupBarrier();
#endif
    {
      let next = min(at + ${set}u, ${STEPS - 1}u);
#for n in 0..BLOCK_PIECES
      w${set}_${n} = codes[from_w + next * ${KB * (BLOCK_PIECES) * 64}u + ${n * 64}u];
#endfor
#if FORM >= 3
      let unit = next * ${KB}u / 2u;
      let from_s = scale_index(row, unit);
#for n in 0..OWN_WORDS
      s${set}_${n} = own_scale(scales[from_s + ${n * 64}u], unit);
#endfor
#for n in 0..BLOCK_HIGH
#if KB == 1
      h${set}_${n} = scales[from_s + ${(OWN_WORDS + set * BLOCK_HIGH + n) * 64}u];
#else
      h${set}_${n} = scales[from_s + block * ${BLOCK_HIGH * 64}u + ${(OWN_WORDS + n) * 64}u];
#endif
#endfor
#endif
#for n in 0..LOADS_X
      x${set}_${n} = x16[from_x + next * ${KB * HALF_TOKENS * 8}u + ${n * THREADS % (TM * 8) + n * THREADS / (TM * 8) * HALF_TOKENS * 8}u];
#endfor
    }
#if looped && !COOP
    for (var k = 0u; k < ${8 * KB}u; k += 4u) {
      for (var n = 0u; n < ${FM * FN}u; n++) {
        let a = coop_load_a((part_m + n / ${FN}u * 16u) * ${PITCH}u + k);
        let b = coop_load_b((part_n + n % ${FN}u * 16u) * ${PITCH}u + k);
        c[n] = coop_mma(a, b, c[n]);
      }
    }
    workgroupBarrier();
#elif looped
#for k in 0..2*KB
    {
#for i in 0..FM
      let a${i} = coop_load_a((part_m + ${16 * i}u) * ${PITCH}u + ${4 * k}u);
#endfor
#for j in 0..FN
      {
        let b = coop_load_b((part_n + ${16 * j}u) * ${PITCH}u + ${4 * k}u);
#for i in 0..FM
        c${i}_${j} = coop_mma(a${i}, b, c${i}_${j});
#endfor
      }
#endfor
    }
#endfor
    workgroupBarrier();
#endif
#endfor
  }
#endfor
  let tokens = step[${COUNT}u];
#if SPLITS > 1
  let base = ${OUT_OFFSET}u + group.z * ${SPLIT_STRIDE}u;
#else
  let base = ${OUT_OFFSET}u;
#endif
#if STRAIGHT
  if (token0 + ${TM}u <= tokens && row0 + ${TN}u <= ${ROWS}u) {
#if COOP
#for i in 0..FM
#for j in 0..FN
    coop_store_out(c${i}_${j}, base + (token0 + part_m + ${16 * i}u) * ${OUT_STRIDE}u + row0 + part_n + ${16 * j}u);
#endfor
#endfor
#else
    for (var n = 0u; n < ${FM * FN}u; n++) {
      coop_store_out(c[n], base + (token0 + part_m + n / ${FN}u * 16u) * ${OUT_STRIDE}u + row0 + part_n + n % ${FN}u * 16u);
    }
#endif
    return;
  }
#endif
  // Elements cannot be reached, and stores not be masked: tile by tile through workgroup memory.
  let own = t / 32u * 256u;
#if COOP
#for i in 0..FM
#for j in 0..FN
  coop_store(c${i}_${j}, own);
  workgroupBarrier();
  put_edge(own, t & 31u, token0 + part_m + ${16 * i}u, row0 + part_n + ${16 * j}u, tokens, base);
  workgroupBarrier();
#endfor
#endfor
#else
  for (var n = 0u; n < ${FM * FN}u; n++) {
    coop_store(c[n], own);
    workgroupBarrier();
    put_edge(own, t & 31u, token0 + part_m + n / ${FN}u * 16u, row0 + part_n + n % ${FN}u * 16u, tokens, base);
    workgroupBarrier();
  }
#endif
}
