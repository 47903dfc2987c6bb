// 4 lanes of NEON with the dot product instructions of Armv8.2. DOPPLER_I8MM: with those that multiply two
// rows with two tokens (FEAT_I8MM), too.

// NOLINTBEGIN: part of a translation unit
struct Lanes {
  using I = int32x4_t;
  using F = float32x4_t;
  static constexpr std::size_t kLanes = 4;
  static constexpr std::size_t kTileTokens = 8;
  static constexpr std::size_t kSums = 8;  // sums in registers, of which there are 32; 8 hold codes
#ifdef DOPPLER_I8MM
  static constexpr auto kWideCodes = panel::WideCodes::kUnsigned;
  static constexpr std::size_t kTogether = 2;
#else
  static constexpr auto kWideCodes = panel::WideCodes::kSigned;
  static constexpr std::size_t kTogether = 1;
#endif

  DOPPLER_INLINE I load(const std::uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
  DOPPLER_INLINE I zero() { return vdupq_n_s32(0); }
  DOPPLER_INLINE F zero_float() { return vdupq_n_f32(0); }
  DOPPLER_INLINE I set(std::int32_t v) { return vdupq_n_s32(v); }
  DOPPLER_INLINE F set(float v) { return vdupq_n_f32(v); }
  DOPPLER_INLINE I pattern(std::uint32_t bits) { return vreinterpretq_s32_u32(vdupq_n_u32(bits)); }
  DOPPLER_INLINE I both(I a, I b) { return vandq_s32(a, b); }
  template <int kBits>
  DOPPLER_INLINE I right(I v) {
    if constexpr (kBits == 0) {
      return v;
    } else {
      return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), kBits));
    }
  }
  template <int kBits>
  DOPPLER_INLINE I left(I v) {
    return vshlq_n_s32(v, kBits);
  }
  template <int kShift>
  DOPPLER_INLINE void add_bits(I& codes, I bits, I mask) {
    if constexpr (kShift > 0) {
      codes = vorrq_s32(codes, vandq_s32(left<kShift>(bits), mask));
    } else {
      codes = vorrq_s32(codes, vandq_s32(right<-kShift>(bits), mask));
    }
  }
  DOPPLER_INLINE I table(const std::uint8_t* values) { return load(values); }
  DOPPLER_INLINE I lookup(I table, I codes) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(codes)));
  }
  DOPPLER_INLINE F load_f16(const std::uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
  DOPPLER_INLINE I load_u8(const std::uint8_t* p) {
    std::uint32_t four;
    std::memcpy(&four, p, 4);
    const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
  }
  DOPPLER_INLINE I load_i8(const std::uint8_t* p) {
    std::uint32_t four;
    std::memcpy(&four, p, 4);
    const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(four));
    return vmovl_s16(vget_low_s16(vmovl_s8(bytes)));
  }
  DOPPLER_INLINE F half_power_of_two(const std::uint8_t* p) {
    const I bits = vmaxq_s32(left<23>(load_u8(p)), vdupq_n_s32(0x00400000));
    return vmulq_n_f32(vreinterpretq_f32_s32(bits), 0.5f);
  }
  DOPPLER_INLINE F to_float(I v) { return vcvtq_f32_s32(v); }
  DOPPLER_INLINE F negate(F v) { return vnegq_f32(v); }
  DOPPLER_INLINE F mul(F a, F b) { return vmulq_f32(a, b); }
  DOPPLER_INLINE F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  DOPPLER_INLINE F add(F a, F b) { return vaddq_f32(a, b); }
  DOPPLER_INLINE I add(I a, I b) { return vaddq_s32(a, b); }
  DOPPLER_INLINE I sub(I a, I b) { return vsubq_s32(a, b); }
  DOPPLER_INLINE I max(I a, I b) { return vmaxq_s32(a, b); }
  DOPPLER_INLINE std::int32_t max_lane(I v) { return vmaxvq_s32(v); }
  DOPPLER_INLINE std::int32_t sum_lanes(I v) { return vaddvq_s32(v); }
  DOPPLER_INLINE F load_floats(const float* p) { return vld1q_f32(p); }
  DOPPLER_INLINE I bits(F v) { return vreinterpretq_s32_f32(v); }
  // The lanes' lowest bytes.
  DOPPLER_INLINE void store_bytes(I v, std::int8_t* p) {
    const int16x4_t narrow = vmovn_s32(v);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(narrow, narrow));
    std::memcpy(p, &bytes, 4);
  }
  DOPPLER_INLINE void store(F v, float* p) { vst1q_f32(p, v); }

  DOPPLER_INLINE I without_offset(I codes) { return veorq_s32(codes, pattern(0x80808080u)); }
  // sum + a vector of codes times activations 4 kFour.. of 16.
  template <int kFour>
  DOPPLER_INLINE I add_product(I sum, I codes, int8x16_t x) {
#ifdef DOPPLER_I8MM
    return vusdotq_laneq_s32(sum, vreinterpretq_u8_s32(codes), x, kFour);
#else
    return vdotq_laneq_s32(sum, vreinterpretq_s8_s32(codes), x, kFour);
#endif
  }
  // sum + kCount vectors of codes times 4 kCount activations, four of them per lane and vector.
  template <unsigned kLargest, std::size_t kCount>
  DOPPLER_INLINE I dot(I sum, const I* codes, const std::int8_t* q) {
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; k += 4) {
      const int8x16_t x = vld1q_s8(q + 4 * k);
      sum = add_product<0>(sum, codes[k], x), sum = add_product<1>(sum, codes[k + 1], x);
      sum = add_product<2>(sum, codes[k + 2], x), sum = add_product<3>(sum, codes[k + 3], x);
    }
    return sum;
  }

#ifdef DOPPLER_I8MM
  // Two rows and two tokens: lanes (row 0, token 0), (row 0, token 1), (row 1, token 0), (row 1, token 1).
  DOPPLER_INLINE I set(const std::int32_t (&tokens)[2]) {
    std::int64_t both;
    std::memcpy(&both, tokens, 8);
    return vreinterpretq_s32_s64(vdupq_n_s64(both));
  }
  DOPPLER_INLINE F set(const float (&tokens)[2]) {
    std::int64_t both;
    std::memcpy(&both, tokens, 8);
    return vreinterpretq_f32_s64(vdupq_n_s64(both));
  }
  // Lanes of a and b in turn; from their first halves, from their second halves.
  DOPPLER_INLINE I zip_first(I a, I b) { return vzip1q_s32(a, b); }
  DOPPLER_INLINE I zip_second(I a, I b) { return vzip2q_s32(a, b); }
  DOPPLER_INLINE F zip_first(F a, F b) { return vzip1q_f32(a, b); }
  DOPPLER_INLINE F zip_second(F a, F b) { return vzip2q_f32(a, b); }
  // Every second lane of a, then of b.
  DOPPLER_INLINE F unzip_even(F a, F b) { return vuzp1q_f32(a, b); }
  DOPPLER_INLINE F unzip_odd(F a, F b) { return vuzp2q_f32(a, b); }
  // sum + kCount vectors of codes, 8 columns of two rows each, times as many of activations of two tokens.
  // Instructions of a loop over 1,024 products of a tile of 8 tokens, with sdot and with this (g++ 12, -O3):
  // Q4_0 171 and 131, Q8_0 157 and 127, Q4_K 185 and 161, Q6_K 276 and 219; Q2_K 235 and 242, since registers
  // do not hold its many scales.
  template <std::size_t kCount>
  DOPPLER_INLINE I pair_dot(I sum, const I* codes, const std::int8_t* q) {
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) sum =
        vusmmlaq_s32(sum, vreinterpretq_u8_s32(codes[k]), vld1q_s8(q + 16 * k));
    return sum;
  }
#endif
};
// NOLINTEND
