// The dot product of one unit (64 values) of a row with the activations. Its pieces and scale words are arguments, so that
// they live in registers and their loads can be issued long before. fma() is written out, so that a driver joins the same
// operations in every kernel (docs/kernels.md: one order of sums). Needs weights.wgsl (FORM, PIECES, SCALE_WORDS,
// GROUPS_16, HAS_MIN), ACT (0: float activations, 1: 8-bit blocks), and the functions
//   ACT 1: x8_at(unit, piece of 16) -> 16 signed bytes as vec4u, xs_at(unit, block of 32) -> (scale, scale * sum of codes)
//   ACT 0: x_at(unit, j) -> values 4j .. 4j+3 as vec4f
#if ACT == 1
#if HIGH_WORDS
fn dot16(v : vec4u, x : vec4u) -> i32 {
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w);
}
#else
// Sixteen codes of a weight times sixteen activations: of piece w itself (FORM 3), of its low nibbles, or (dot_high) of its
// high ones. Signed nibbles (FORM 4, 8) stay in the upper half of their bytes, so their sums are 16 times too large. Levels (FORM 8)
// are nibble + 13 * jump, and what is to be taken from each is left to the caller, who knows the sum of x.
fn dot_low(w : vec4u, x : vec4u) -> i32 {
#if FORM == 3
  return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
#elif FORM == 4
  let v = (w << vec4u(4u)) & vec4u(0xf0f0f0f0u);
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w);
#elif FORM == 8
  let v = (w << vec4u(4u)) & vec4u(0xf0f0f0f0u);
  let j = jumps(w) & vec4u(0x01010101u);
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w) +
         208 * (dot4I8Packed(j.x, x.x) + dot4I8Packed(j.y, x.y) + dot4I8Packed(j.z, x.z) + dot4I8Packed(j.w, x.w));
#else
  let v = w & vec4u(0x0f0f0f0fu);
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w);
#endif
}
#if FORM == 4
fn dot_high(w : vec4u, x : vec4u) -> i32 {
  let v = w & vec4u(0xf0f0f0f0u);
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w);
}
#elif FORM == 8
fn dot_high(w : vec4u, x : vec4u) -> i32 {
  let v = w & vec4u(0xf0f0f0f0u);
  let j = jumps(w) & vec4u(0x10101010u);
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w) +
         13 * (dot4I8Packed(j.x, x.x) + dot4I8Packed(j.y, x.y) + dot4I8Packed(j.z, x.z) + dot4I8Packed(j.w, x.w));
}
#elif FORM == 5
fn dot_high(w : vec4u, x : vec4u) -> i32 {
  let v = (w >> vec4u(4u)) & vec4u(0x0f0f0f0fu);
  return dot4I8Packed(v.x, x.x) + dot4I8Packed(v.y, x.y) + dot4I8Packed(v.z, x.z) + dot4I8Packed(v.w, x.w);
}
#endif
#endif
// The sum of sixteen codes of the activations, which minima are multiplied with.
fn sum_codes(x : vec4u) -> f32 {
  let one = 0x01010101u;
  return f32(dot4I8Packed(x.x, one) + dot4I8Packed(x.y, one) + dot4I8Packed(x.z, one) + dot4I8Packed(x.w, one));
}
#endif

#if ACT == 0
#include "plus_products.wgsl"
#endif
// w: the unit's pieces, s: its scale words. Below, b is a block of 32 and a, b in da, db, xa, xb its halves of 16; scale<g>
// is (scale, minimum) of group g; j counts vectors of four values.
fn dot_unit(
#for p in 0..PIECES
  w${p} : vec4u,
#endfor
#for s in 0..SCALE_WORDS
  s${s} : u32,
#endfor
  unit : u32) -> f32 {
  // Less than any sum's rounding, but not 0: what a compiler knows to be a mere product it joins with the sum behind (Mesa makes
  // a b + (c d + e) of (a b + c d) + e), and that sum would depend on which units a thread has.
#if ACT == 1 && BITS_IN_SCALE
  var sum = 1.2e-38 / kCodeFactor;  // times a power of two until it is returned, which rounds nothing
#else
  var sum = 1.2e-38;
#endif
#if QUANTISED && FORM != 9
#for g in 0..2 + 2 * (GROUPS_16)
  let scale${g} = group_scale(
#for s in 0..SCALE_WORDS
    s${s},
#endfor
    ${g}u);
#endfor
#endif
#if ACT == 1
#for b in 0..2
  let xa${b} = x8_at(unit, ${2 * b}u);
  let xb${b} = x8_at(unit, ${2 * b + 1}u);
  let xs${b} = xs_at(unit, ${b}u);
#if FORM == 3
  let da${b} = dot_low(w${2 * b}, xa${b});
  let db${b} = dot_low(w${2 * b + 1}, xb${b});
#elif FORM == 6
  let da${b} = dot16(signed_low(w${b}, s${OWN_WORDS + b}), xa${b});
  let db${b} = dot16(signed_high(w${b}, s${OWN_WORDS + b}), xb${b});
#elif FORM == 7
  let da${b} = dot16(signed_low(w${b}, s${OWN_WORDS + 2 * b}), xa${b});
  let db${b} = dot16(signed_high(w${b}, s${OWN_WORDS + 2 * b + 1}), xb${b});
#else
  let da${b} = dot_low(w${b}, xa${b});
  let db${b} = dot_high(w${b}, xb${b});
#endif
#if GROUPS_16
  var part${b} = fma(scale${2 * b}.x, f32(da${b} >> kCodeShift), scale${2 * b + 1}.x * f32(db${b} >> kCodeShift));
#elif BITS_IN_SCALE
  var part${b} = fma(scale${b}.x, bitcast<f32>(kMagic + da${b} + db${b}), scale${b}.x * -kMagicFloat);
#else
  var part${b} = scale${b}.x * f32((da${b} + db${b}) >> kCodeShift);
#endif
#if FORM == 8
  sum = fma(-6.0 * scale${b}.x, xs${b}.y, sum);
#endif
#if GROUPS_16 && HAS_MIN
  part${b} = fma(scale${2 * b}.y, sum_codes(xa${b}), fma(scale${2 * b + 1}.y, sum_codes(xb${b}), part${b}));
#endif
  sum = fma(part${b}, xs${b}.x, sum);
#if HAS_MIN && !(GROUPS_16)
  sum = fma(scale${b}.y, xs${b}.y, sum);
#endif
#endfor
#elif FORM == 9
  // Less the row's factor, which is a power of two.
#for j in 0..16
#define B j / 8
#define V j % 8
#define P 3 * B + (V < 6) * (V / 2) + (V == 7) * 2
  sum = plus_products(sum, block_vector(w${P}, w${3 * B + 1}, s${B}, ${V}u), x_at(unit, ${j}u));
#endfor
#elif QUANTISED
#for j in 0..16
  let x${j} = x_at(unit, ${j}u);
#if FORM == 3
  let c${j} = unpack_piece(w${j / 4}, ${j}u);
#elif FORM == 6
  let c${j} = unpack_high(w${j / 8}, ${j}u, s${OWN_WORDS + j / 8});
#elif FORM == 7
  let c${j} = unpack_high(w${j / 8}, ${j}u, s${OWN_WORDS + j / 4});
#else
  let c${j} = unpack_piece(w${j / 8}, ${j}u);
#endif
#if GROUPS_16
#define G j / 4
#else
#define G j / 8
#endif
  sum = fma(scale${G}.x, four_products(c${j}, x${j}), sum);
#if HAS_MIN
  sum = fma(scale${G}.y, x${j}.x + x${j}.y + x${j}.z + x${j}.w, sum);
#endif
#endfor
#else
#for j in 0..16
#if FORM == 0
  sum = plus_products(sum, unpack_piece(w${j}, ${j}u), x_at(unit, ${j}u));
#else
  sum = plus_products(sum, unpack_piece(w${j / 2}, ${j}u), x_at(unit, ${j}u));
#endif
#endfor
#endif
#if ACT == 1 && BITS_IN_SCALE
  return sum * kCodeFactor;
#else
  return sum;
#endif
}
