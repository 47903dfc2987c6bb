// 4 lanes of WebAssembly's 128-bit vectors: the portable ones, whose expressions clang makes into single
// instructions, and what it does not find by itself. With relaxed vectors one instruction multiplies and adds
// codes of at most 7 bits.

// NOLINTBEGIN: part of a translation unit
namespace portable {
#include "backend/cpu/panel/lanes_portable-inl.h"
}  // namespace portable

struct Lanes : portable::Lanes {
  DOPPLER_INLINE I table(const std::uint8_t* values) { return load(values); }
  DOPPLER_INLINE I lookup(I table, I codes) { return wasm_i8x16_swizzle(table, codes); }
  // Fields are shifted into place and the exponent is moved by a multiplication, which is exact for
  // subnormals, too; Inf and NaN then need their exponent set.
  DOPPLER_INLINE F load_f16(const std::uint8_t* p) {
    const I half = wasm_u32x4_extend_low_u16x8(wasm_v128_load64_zero(p));
    const I magnitude = both(half, set(0x7fff));
    const I moved = (I)((F)left<13>(magnitude) * set(0x1p112f));
    const I special = both(wasm_i32x4_gt(magnitude, set(0x7bff)), set(0x7f800000));
    return (F)(moved | special | left<16>(both(half, set(0x8000))));
  }
  DOPPLER_INLINE I load_u8(const std::uint8_t* p) {
    return wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
  }
  DOPPLER_INLINE I load_i8(const std::uint8_t* p) {
    return wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p)));
  }
  // 2^(e - 128); the lowest is a subnormal, 2^-127 before it is halved.
  DOPPLER_INLINE F half_power_of_two(const std::uint8_t* p) {
    return (F)max(left<23>(load_u8(p)), set(0x00400000)) * set(0.5f);
  }
  DOPPLER_INLINE F to_float(I v) { return (F)wasm_f32x4_convert_i32x4(v); }
  // The lanes' lowest bytes, of values that fit them.
  DOPPLER_INLINE void store_bytes(I v, std::int8_t* p) {
    const I narrow = wasm_i16x8_narrow_i32x4(v, v);
    wasm_v128_store32_lane(p, wasm_i8x16_narrow_i16x8(narrow, narrow), 0);
  }

  // sum + kCount vectors of codes times 4 kCount activations, four of them per lane and vector.
  template <unsigned kLargest, std::size_t kCount>
  DOPPLER_INLINE I dot(I sum, const I* codes, const std::int8_t* q) {
#if defined(__wasm_relaxed_simd__)
    if constexpr (kLargest < 128) {
      DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) sum =
          wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_v128_load32_splat(q + 4 * k), codes[k], sum);
      return sum;
    }
    I halves = zero();  // codes of 8 bits are twice their upper seven, and the lowest
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) {
      const I x = wasm_v128_load32_splat(q + 4 * k);
      halves =
          wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, both(right<1>(codes[k]), pattern(0x7f7f7f7fu)), halves);
      sum = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, both(codes[k], pattern(0x01010101u)), sum);
    }
    return sum + left<1>(halves);
#else
    I low = zero(), high = zero();  // pairs of columns: of lanes 0 and 1, of lanes 2 and 3
    if constexpr (kLargest < 128) {
      // As many products as surely fit 16 bits are added before they are widened.
      constexpr std::size_t kFit = 32767 / (127 * kLargest);
      constexpr std::size_t kRun = kFit >= 8 ? 8 : kFit >= 4 ? 4 : 2;
      DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; k += kRun) {
        I first = zero(), second = zero();
        DOPPLER_UNROLL_8 for (std::size_t j = k; j < k + kRun && j < kCount; ++j) {
          const I x = wasm_v128_load32_splat(q + 4 * j);
          first = wasm_i16x8_add(first, wasm_i16x8_extmul_low_i8x16(codes[j], x));
          second = wasm_i16x8_add(second, wasm_i16x8_extmul_high_i8x16(codes[j], x));
        }
        low += wasm_i32x4_extadd_pairwise_i16x8(first), high += wasm_i32x4_extadd_pairwise_i16x8(second);
      }
    } else {  // 16 bits hold codes of 8 bits, but no product
      DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) {
        const I x = wasm_i16x8_extend_low_i8x16(wasm_v128_load32_splat(q + 4 * k));
        low += wasm_i32x4_dot_i16x8(wasm_u16x8_extend_low_u8x16(codes[k]), x);
        high += wasm_i32x4_dot_i16x8(wasm_u16x8_extend_high_u8x16(codes[k]), x);
      }
    }
    return sum + wasm_i32x4_shuffle(low, high, 0, 2, 4, 6) + wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
#endif
  }
};
// NOLINTEND
