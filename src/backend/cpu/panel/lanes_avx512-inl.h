// 16 lanes of AVX-512. DOPPLER_VNNI: with vpdpbusd; else with the older pair of instructions.

// NOLINTBEGIN: part of a translation unit
struct Lanes {
  using I = __m512i;
  using F = __m512;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kTileTokens = 16;
  static constexpr std::size_t kSums = 16;  // sums in registers, of which there are 32; 8 hold codes
#ifdef DOPPLER_VNNI
  static constexpr auto kWideCodes = panel::WideCodes::kUnsigned;
#else
  static constexpr auto kWideCodes = panel::WideCodes::kMagnitudes;
#endif
  static constexpr std::size_t kTogether = 1;

  DOPPLER_INLINE I load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  DOPPLER_INLINE I zero() { return _mm512_setzero_si512(); }
  DOPPLER_INLINE F zero_float() { return _mm512_setzero_ps(); }
  DOPPLER_INLINE I pattern(std::uint32_t bits) { return _mm512_set1_epi32(static_cast<int>(bits)); }
  DOPPLER_INLINE I set(std::int32_t v) { return _mm512_set1_epi32(v); }
  DOPPLER_INLINE F set(float v) { return _mm512_set1_ps(v); }
  DOPPLER_INLINE I both(I a, I b) { return _mm512_and_si512(a, b); }
  template <int kBits>
  DOPPLER_INLINE I right(I v) {
    return _mm512_srli_epi32(v, kBits);
  }
  template <int kBits>
  DOPPLER_INLINE I left(I v) {
    return _mm512_slli_epi32(v, kBits);
  }
  // codes |= (bits << kShift) & mask.
  template <int kShift>
  DOPPLER_INLINE void add_bits(I& codes, I bits, I mask) {
    const I moved = kShift > 0   ? _mm512_slli_epi32(bits, kShift > 0 ? kShift : 0)
                    : kShift < 0 ? _mm512_srli_epi32(bits, kShift < 0 ? -kShift : 0)
                                 : bits;
    codes = _mm512_ternarylogic_epi32(codes, moved, mask, 0xf8);  // a | (b & c)
  }
  DOPPLER_INLINE I table(const std::uint8_t* values) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
  }
  DOPPLER_INLINE I lookup(I table, I codes) { return _mm512_shuffle_epi8(table, codes); }
  DOPPLER_INLINE F load_f16(const std::uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  DOPPLER_INLINE I load_u8(const std::uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  DOPPLER_INLINE I load_i8(const std::uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // 2^(e - 128); the lowest is a subnormal, 2^-127 before it is halved.
  DOPPLER_INLINE F half_power_of_two(const std::uint8_t* p) {
    const I bits = _mm512_max_epi32(_mm512_slli_epi32(load_u8(p), 23), _mm512_set1_epi32(0x00400000));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0.5f));
  }
  DOPPLER_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  DOPPLER_INLINE F negate(F v) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)));
  }
  DOPPLER_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  DOPPLER_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  DOPPLER_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  DOPPLER_INLINE I add(I a, I b) { return _mm512_add_epi32(a, b); }
  DOPPLER_INLINE I sub(I a, I b) { return _mm512_sub_epi32(a, b); }
  DOPPLER_INLINE I max(I a, I b) { return _mm512_max_epi32(a, b); }
  DOPPLER_INLINE std::int32_t max_lane(I v) { return _mm512_reduce_max_epi32(v); }
  DOPPLER_INLINE std::int32_t sum_lanes(I v) { return _mm512_reduce_add_epi32(v); }
  DOPPLER_INLINE F load_floats(const float* p) { return _mm512_loadu_ps(p); }
  DOPPLER_INLINE I bits(F v) { return _mm512_castps_si512(v); }
  // The lanes' lowest bytes.
  DOPPLER_INLINE void store_bytes(I v, std::int8_t* p) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  DOPPLER_INLINE void store(F v, float* p) { _mm512_storeu_ps(p, v); }

  DOPPLER_INLINE I broadcast(const std::int8_t* q) {
    std::int32_t four;
    std::memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
  }
  // For codes of 8 bits without VNNI: |w| times a with w's sign. Two products of 128 * 127 fit 16 bits.
  DOPPLER_INLINE I without_offset(I codes) { return _mm512_xor_si512(codes, _mm512_set1_epi8(INT8_MIN)); }
  DOPPLER_INLINE I magnitude(I w) { return _mm512_abs_epi8(w); }
  DOPPLER_INLINE I add_signed(I sum, I w, I magnitude, const std::int8_t* q) {
    const I a = broadcast(q);
    const I signed_a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
    const I pairs = _mm512_maddubs_epi16(magnitude, signed_a);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  // sum + kCount vectors of codes times 4 kCount activations, four of them per lane and vector.
  template <unsigned kLargest, std::size_t kCount>
  DOPPLER_INLINE I dot(I sum, const I* codes, const std::int8_t* q) {
#ifdef DOPPLER_VNNI
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) sum =
        _mm512_dpbusd_epi32(sum, codes[k], broadcast(q + 4 * k));
    return sum;
#else
    const I ones = _mm512_set1_epi16(1);
    // As many products as surely fit 16 bits are added before they are widened.
    constexpr std::size_t kFit = 32767 / (2 * 127 * kLargest);
    constexpr std::size_t kRun = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; k += kRun) {
      I pairs = _mm512_maddubs_epi16(codes[k], broadcast(q + 4 * k));
      for (std::size_t j = 1; j < kRun && k + j < kCount; ++j)
        pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(codes[k + j], broadcast(q + 4 * (k + j))));
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, ones));
    }
    return sum;
#endif
  }
};
// NOLINTEND
