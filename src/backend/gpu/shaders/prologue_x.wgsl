// The activation row that a prologue leaves in workgroup memory, floats (ACT 0) or quantised (ACT 1), and how it gets there:
// thread by thread as vec4 number v of the row. Every thread of the workgroup calls put_x, v % THREADS being its number.
//   sx8 [unit][piece of 16 codes], sxs [unit][block of 32]: (scale, scale * sum of codes), sx [unit][vector of four]
// Units have 64 values; UNITS_K of them cover the row. HAS_MIN: see weights.wgsl.
#if ACT == 1
// By shuffles, eight threads being of one subgroup, or through workgroup memory.
#define PUTS_ALONE SUBGROUPS && SUBGROUP_SIZE >= 8
var<workgroup> sxs : array<vec2f, ${UNITS_K * 2}>;
#if PUTS_ALONE
#include "quantise_block.wgsl"
var<workgroup> sx8 : array<vec4u, ${UNITS_K * 4}>;
fn x8_at(unit : u32, piece : u32) -> vec4u { return sx8[unit * 4u + piece]; }
#else
#include "quantise_vec.wgsl"
var<workgroup> sx8 : array<u32, ${UNITS_K * 16}>;
fn x8_at(unit : u32, piece : u32) -> vec4u {
  let at = unit * 16u + piece * 4u;
  return vec4u(sx8[at], sx8[at + 1u], sx8[at + 2u], sx8[at + 3u]);
}
#endif
fn xs_at(unit : u32, block : u32) -> vec2f { return sxs[unit * 2u + block]; }
fn put_x(v : u32, x : vec4f) {
#if PUTS_ALONE
  var most = largest(x);
  most = max(most, subgroupShuffleXor(most, 1u));
  most = max(most, subgroupShuffleXor(most, 2u));
  most = max(most, subgroupShuffleXor(most, 4u));
  let scale = most / 127.0;
  let codes = codes_of(x, select(0.0, 127.0 / most, most > 0.0));
#if HAS_MIN
  var sum = codes.x + codes.y + codes.z + codes.w;
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  sum += subgroupShuffleXor(sum, 4u);
#else
  let sum = 0;  // only minima are multiplied with it
#endif
  let word = pack4xI8(codes);
  let word1 = subgroupShuffleXor(word, 1u);
  let word2 = subgroupShuffleXor(word, 2u);
  let word3 = subgroupShuffleXor(word, 3u);
  if (v < ${UNITS_K * 16}u && (v & 3u) == 0u) {
    sx8[v >> 2u] = vec4u(word, word1, word2, word3);
    if ((v & 7u) == 0u) {
      sxs[v >> 3u] = vec2f(scale, scale * f32(sum));
    }
  }
#else
  let made = quantise_vec(x, v % ${THREADS}u);
  if (v < ${UNITS_K * 16}u) {
    sx8[v] = made.word;
    if ((v & 7u) == 0u) {
      sxs[v >> 3u] = vec2f(made.scale, made.scale * f32(made.sum));
    }
  }
#endif
}
#else
var<workgroup> sx : array<vec4f, ${UNITS_K * 16}>;
fn x_at(unit : u32, j : u32) -> vec4f { return sx[unit * 16u + j]; }
fn put_x(v : u32, x : vec4f) {
  if (v < ${UNITS_K * 16}u) {
    sx[v] = x;
  }
}
#endif
