// Weights as weights.h lays them out: tiles of 64 rows, units of 64 values along k (UNITS_K of them in a row).
//   codes[((tile * UNITS_K + unit) * PIECES + piece) * 64 + row % 64], 16 bytes each
//   scales[((tile * SCALE_UNITS + unit / SCALE_SPAN) * SCALE_WORDS + word) * 64 + row % 64]
// FORM: 0 f32, 1 f16, 2 bf16, 3 signed bytes, 4 signed nibbles, 5 unsigned nibbles, 6 and 7 nibbles of signed codes of 5 and 6
// bits, whose upper bits lie in HIGH_WORDS behind the scales (weights.cpp: put_signed_five, put_signed_six), 8 nibbles that stand for
// the 15 levels of MXFP4 (below), 9 bf16 in 13 bits (bf16_in_13_bits.h; only of heads, with activations in floats). A piece of
// nibbles holds a block of 32 values: the first 16 in the low nibbles of its bytes, the others in the high ones.
// SCALES: 0 none; 1 two f16 (blocks of 32); 2 the same and two f16 minima; 3 bytes (scale, min) x 2 and f16 d, dmin;
// 4 four signed bytes (blocks of 16) and f16 d; 5 four bytes, four byte minima and f16 d, dmin; 6 two f32; 7 two bytes e, for
// 2^(e - 128), of two units in one word. d, dmin: the factors of the bytes.
// A value is scale * code, plus its minimum where there are any (3 and 5: minus).
// Template values FORM, SCALES, UNITS_K: shader_values.cpp. PIECES and SCALE_WORDS: of a unit of a row. GROUPS_16: groups with
// one scale have 16 values, else 32. HAS_MIN: there are minima. SCALE_SPAN units of a row share their scale words.
#define SCALE_SPAN 1 + (SCALES == 7)
#define SCALE_UNITS (UNITS_K + SCALE_SPAN - 1) / (SCALE_SPAN)
#define PIECES (FORM == 0) * 16 + (FORM == 1 || FORM == 2) * 8 + (FORM == 3) * 4 + (FORM >= 4 && FORM <= 8) * 2 + (FORM == 9) * 6
#define HIGH_WORDS 2 * (FORM == 6 || FORM == 9) + 4 * (FORM == 7)
#define OWN_WORDS (SCALES == 1 || SCALES == 7) + 2 * (SCALES == 2 || SCALES == 3 || SCALES == 4 || SCALES == 6) + 3 * (SCALES == 5)
#define SCALE_WORDS OWN_WORDS + HIGH_WORDS
#define QUANTISED FORM >= 3
#define GROUPS_16 SCALES == 4 || SCALES == 5
#define HAS_MIN SCALES == 2 || SCALES == 3 || SCALES == 5

// Where a row's pieces and scales of a unit begin; the next piece or word is 64 further.
fn code_index(row : u32, unit : u32) -> u32 {
  return ((row >> 6u) * ${UNITS_K}u + unit) * ${PIECES * 64}u + (row & 63u);
}
#if QUANTISED
fn scale_index(row : u32, unit : u32) -> u32 {
#if FORM == 9
  // Behind the factors of the tile's rows.
  return (row >> 6u) * ${(UNITS_K * 2 + 1) * 64}u + 64u + unit * 128u + (row & 63u);
#elif SCALES == 7
  return ((row >> 6u) * ${SCALE_UNITS}u + unit / 2u) * ${SCALE_WORDS * 64}u + (row & 63u);
#else
  return ((row >> 6u) * ${UNITS_K}u + unit) * ${SCALE_WORDS * 64}u + (row & 63u);
#endif
}
// A scale word as it was loaded for a unit: what belongs to that unit, in its low half where two share a word.
fn own_scale(word : u32, unit : u32) -> u32 {
#if SCALES == 7
  return word >> ((unit & 1u) * 16u);
#else
  return word;
#endif
}
#endif

#if FORM == 9
// What a row's values, and sums of their products, are multiplied by.
fn row_factor(row : u32) -> f32 {
  return bitcast<f32>(scales[(row >> 6u) * ${(UNITS_K * 2 + 1) * 64}u + (row & 63u)]);
}
// Four values of two words of a piece, and two of the word behind.
fn stored_four(a : u32, b : u32) -> vec4f {
  return vec4f(unpack2x16float(a & 0xfff8fff8u), unpack2x16float(b & 0xfff8fff8u));
}
fn stored_two(behind : u32) -> vec2f {
  return unpack2x16float(behind & 0xfff8fff8u);
}
// The two values that piece w, number p of its block, holds beside its eight.
fn two_between(w : vec4u, behind : u32, p : u32) -> vec2f {
  return unpack2x16float(((w.x << 13u) & 0xe000e000u) | ((w.y << 10u) & 0x1c001c00u) | ((w.z << 7u) & 0x03800380u) |
      ((w.w << 4u) & 0x00700070u) | ((behind << (3u - p)) & 0x00080008u));
}
// Values 4v .. 4v+3 (v < 8) of a block, from the piece that holds the first of them and, where v is 6, the block's second piece.
fn block_vector(w : vec4u, second : vec4u, behind : u32, v : u32) -> vec4f {
  if (v == 6u) {
    return vec4f(two_between(w, behind, 0u), two_between(second, behind, 1u));
  }
  if (v == 7u) {
    return vec4f(two_between(w, behind, 2u), stored_two(behind));
  }
  return select(stored_four(w.z, w.w), stored_four(w.x, w.y), (v & 1u) == 0u);
}
fn first_piece(v : u32) -> u32 {
  return select(select(2u, 0u, v == 6u), v >> 1u, v < 6u);
}
#endif

#if FORM == 8
// MXFP4's levels 0, 1, 2, 3, 4, 6, 8, 12 and their negatives are not linear in four bits, but nearly: with nibbles read as
// -8 to 7, level = nibble + 13 * jump - 6, where jump is the majority of the nibble's bits 0 and 3 and of the opposite of bit 1
// (weights.h: float_nibble). Bit 0 of each nibble of `jumps` is its jump; other bits mean nothing.
fn jumps(w : vec4u) -> vec4u {
  let one = w >> vec4u(1u);
  let three = w >> vec4u(3u);
  return (w & three) | (~one & (w | three));
}
// The levels of 16 low or high nibbles as signed bytes. Bytes are added as unsigned ones, 142 = 128 + 8 + 6 above their level
// less 128, so that nothing is carried.
fn levels(nibbles : vec4u, jump : vec4u) -> vec4u {
  return ((nibbles ^ vec4u(0x08080808u)) + jump * 13u + vec4u(0x72727272u)) ^ vec4u(0x80808080u);
}
fn low_levels(w : vec4u) -> vec4u {
  return levels(w & vec4u(0x0f0f0f0fu), jumps(w) & vec4u(0x01010101u));
}
fn high_levels(w : vec4u) -> vec4u {
  return levels((w >> vec4u(4u)) & vec4u(0x0f0f0f0fu), (jumps(w) >> vec4u(4u)) & vec4u(0x01010101u));
}
#endif

// The four signed or unsigned codes of word w's low or high nibbles.
#if FORM == 4
fn low_codes(w : u32) -> vec4i { return unpack4xI8((w << 4u) & 0xf0f0f0f0u) >> vec4u(4u); }
fn high_codes(w : u32) -> vec4i { return unpack4xI8(w & 0xf0f0f0f0u) >> vec4u(4u); }
#elif FORM == 5
fn low_codes(w : u32) -> vec4i { return unpack4xI8(w & 0x0f0f0f0fu); }
fn high_codes(w : u32) -> vec4i { return unpack4xI8((w >> 4u) & 0x0f0f0f0fu); }
#endif

#if FORM == 6
// The codes of words w with the signs h of their block, times 8: of the low nibbles, and of the high ones.
fn signed_low(w : vec4u, h : u32) -> vec4u {
  return ((w << vec4u(3u)) & vec4u(0x78787878u)) | ((vec4u(h) << vec4u(7u, 6u, 5u, 4u)) & vec4u(0x80808080u));
}
fn signed_high(w : vec4u, h : u32) -> vec4u {
  return ((w >> vec4u(1u)) & vec4u(0x78787878u)) | ((vec4u(h) << vec4u(3u, 2u, 1u, 0u)) & vec4u(0x80808080u));
}
#elif FORM == 7
// The codes of words w with the bits h above them, times 4: of the low nibbles, and of the high ones.
fn signed_low(w : vec4u, h : u32) -> vec4u {
  return ((w << vec4u(2u)) & vec4u(0x3c3c3c3cu)) | ((vec4u(h) << vec4u(6u, 4u, 2u, 0u)) & vec4u(0xc0c0c0c0u));
}
fn signed_high(w : vec4u, h : u32) -> vec4u {
  return ((w >> vec4u(2u)) & vec4u(0x3c3c3c3cu)) | ((vec4u(h) << vec4u(6u, 4u, 2u, 0u)) & vec4u(0xc0c0c0c0u));
}
#endif
// Dots of the codes above are 2^kCodeShift times too large.
#if FORM == 4 || FORM == 8
const kCodeShift = 4u;
const kCodeFactor = 0.0625;
#elif FORM == 6
const kCodeShift = 3u;
const kCodeFactor = 0.125;
#elif FORM == 7
const kCodeShift = 2u;
const kCodeFactor = 0.25;
#else
const kCodeShift = 0u;
const kCodeFactor = 1.0;
#endif
#if QUANTISED
// A sum of dots that begins at kMagic, the bits of 1.5 * 2^23, reads as kMagicFloat plus that sum, without a conversion, as long as
// it stays below 2^22. BITS_IN_SCALE: the fma() that multiplies by the scale takes kMagicFloat away, too. The result is the product rounded once, as it
// is without, because a scale of 11 bits times kMagicFloat is exact; so the device's fma() must round once.
const kMagic = 0x4b400000;
const kMagicFloat = 12582912.0;
#define BITS_IN_SCALE (FMA_ROUNDS_ONCE) && SCALES == 1
#endif

#if QUANTISED && FORM != 9
// Scale and minimum of group g of a unit: of its two blocks of 32, or its four of 16. s: the unit's scale words.
fn group_scale(
#for s in 0..SCALE_WORDS
  s${s} : u32,
#endfor
  g : u32) -> vec2f {
#if SCALES == 1
  return vec2f(unpack2x16float(s0)[g], 0.0);
#elif SCALES == 2
  return vec2f(unpack2x16float(s0)[g], unpack2x16float(s1)[g]);
#elif SCALES == 3
  let both = unpack4xU8(s0);
  let d = unpack2x16float(s1);
  return vec2f(d.x * f32(both[2u * g]), -d.y * f32(both[2u * g + 1u]));
#elif SCALES == 4
  return vec2f(unpack2x16float(s1).x * f32(unpack4xI8(s0)[g]), 0.0);
#elif SCALES == 5
  let d = unpack2x16float(s2);
  return vec2f(d.x * f32(unpack4xU8(s0)[g]), -d.y * f32(unpack4xU8(s1)[g]));
#elif SCALES == 6
  return vec2f(bitcast<f32>(select(s0, s1, g == 1u)), 0.0);
#elif SCALES == 7
  return vec2f(bitcast<f32>(((s0 >> (8u * g)) & 255u) << 23u) * 0.5, 0.0);
#endif
}
#endif

// Values 4j .. 4j+3 (j < 16) of a unit from the piece w that holds them, before scaling; piece_of: the piece's number.
fn piece_of(j : u32) -> u32 {
#if FORM == 0
  return j;
#elif FORM == 1 || FORM == 2
  return j >> 1u;
#elif FORM == 3
  return j >> 2u;
#else
  return j >> 3u;
#endif
}
#if FORM == 9
// dot.wgsl and weight_at.wgsl read blocks of 32.
#elif HIGH_WORDS
// The word of HIGH_WORDS that belongs to vector j, and the vector.
fn high_word(j : u32) -> u32 {
#if FORM == 6
  return j >> 3u;
#else
  return j >> 2u;
#endif
}
fn unpack_high(w : vec4u, j : u32, h : u32) -> vec4f {
  let low = (j & 4u) == 0u;
  return vec4f(unpack4xI8(select(signed_high(w, h), signed_low(w, h), low)[j & 3u])) * kCodeFactor;
}
#else
fn unpack_piece(w : vec4u, j : u32) -> vec4f {
#if FORM == 0
  return bitcast<vec4f>(w);
#elif FORM == 1
  let at = (j & 1u) * 2u;
  return vec4f(unpack2x16float(w[at]), unpack2x16float(w[at + 1u]));
#elif FORM == 2
  let at = (j & 1u) * 2u;
  let a = w[at];
  let b = w[at + 1u];
  return bitcast<vec4f>(vec4u(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
#elif FORM == 3
  return vec4f(unpack4xI8(w[j & 3u]));
#elif FORM == 8
  return vec4f(unpack4xI8(select(high_levels(w), low_levels(w), (j & 4u) == 0u)[j & 3u]));
#else
  let word = w[j & 3u];
  if ((j & 4u) == 0u) {
    return vec4f(low_codes(word));
  }
  return vec4f(high_codes(word));
#endif
}
#endif
