// 8 lanes of AVX2 with F16C and FMA. DOPPLER_VNNI: with vpdpbusd (AVX-VNNI); else with the older pair of
// instructions.

// NOLINTBEGIN: part of a translation unit
struct Lanes {
  using I = __m256i;
  using F = __m256;
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kTileTokens = 4;
  static constexpr std::size_t kSums = 4;  // sums in registers, of which there are 16; 8 hold codes
#ifdef DOPPLER_VNNI
  static constexpr auto kWideCodes = panel::WideCodes::kUnsigned;
#else
  static constexpr auto kWideCodes = panel::WideCodes::kMagnitudes;
#endif
  static constexpr std::size_t kTogether = 1;

  DOPPLER_INLINE I load(const std::uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  DOPPLER_INLINE I zero() { return _mm256_setzero_si256(); }
  DOPPLER_INLINE F zero_float() { return _mm256_setzero_ps(); }
  DOPPLER_INLINE I pattern(std::uint32_t bits) { return _mm256_set1_epi32(static_cast<int>(bits)); }
  DOPPLER_INLINE I set(std::int32_t v) { return _mm256_set1_epi32(v); }
  DOPPLER_INLINE F set(float v) { return _mm256_set1_ps(v); }
  DOPPLER_INLINE I both(I a, I b) { return _mm256_and_si256(a, b); }
  template <int kBits>
  DOPPLER_INLINE I right(I v) {
    return _mm256_srli_epi32(v, kBits);
  }
  template <int kBits>
  DOPPLER_INLINE I left(I v) {
    return _mm256_slli_epi32(v, kBits);
  }
  // codes |= (bits << kShift) & mask.
  template <int kShift>
  DOPPLER_INLINE void add_bits(I& codes, I bits, I mask) {
    const I moved = kShift > 0   ? _mm256_slli_epi32(bits, kShift > 0 ? kShift : 0)
                    : kShift < 0 ? _mm256_srli_epi32(bits, kShift < 0 ? -kShift : 0)
                                 : bits;
    codes = _mm256_or_si256(codes, _mm256_and_si256(moved, mask));
  }
  DOPPLER_INLINE I table(const std::uint8_t* values) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
  }
  DOPPLER_INLINE I lookup(I table, I codes) { return _mm256_shuffle_epi8(table, codes); }
  DOPPLER_INLINE F load_f16(const std::uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  DOPPLER_INLINE I load_u8(const std::uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  DOPPLER_INLINE I load_i8(const std::uint8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  // 2^(e - 128); the lowest is a subnormal, 2^-127 before it is halved.
  DOPPLER_INLINE F half_power_of_two(const std::uint8_t* p) {
    const I bits = _mm256_max_epi32(_mm256_slli_epi32(load_u8(p), 23), _mm256_set1_epi32(0x00400000));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0.5f));
  }
  DOPPLER_INLINE F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  DOPPLER_INLINE F negate(F v) {
    return _mm256_castsi256_ps(_mm256_xor_si256(_mm256_castps_si256(v), _mm256_set1_epi32(INT32_MIN)));
  }
  DOPPLER_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  DOPPLER_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  DOPPLER_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  DOPPLER_INLINE I add(I a, I b) { return _mm256_add_epi32(a, b); }
  DOPPLER_INLINE I sub(I a, I b) { return _mm256_sub_epi32(a, b); }
  DOPPLER_INLINE I max(I a, I b) { return _mm256_max_epi32(a, b); }
  DOPPLER_INLINE std::int32_t max_lane(I v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
  }
  DOPPLER_INLINE std::int32_t sum_lanes(I v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
  DOPPLER_INLINE F load_floats(const float* p) { return _mm256_loadu_ps(p); }
  DOPPLER_INLINE I bits(F v) { return _mm256_castps_si256(v); }
  // The lanes' lowest bytes.
  DOPPLER_INLINE void store_bytes(I v, std::int8_t* p) {
    const __m256i lowest = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));
    const __m128i pairs =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(lowest), _mm256_extracti128_si256(lowest, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), pairs);
  }
  DOPPLER_INLINE void store(F v, float* p) { _mm256_storeu_ps(p, v); }

  DOPPLER_INLINE I broadcast(const std::int8_t* q) {
    std::int32_t four;
    std::memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
  }
  // For codes of 8 bits without VNNI: |w| times a with w's sign. Two products of 128 * 127 fit 16 bits.
  DOPPLER_INLINE I without_offset(I codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8(INT8_MIN)); }
  DOPPLER_INLINE I magnitude(I w) { return _mm256_abs_epi8(w); }
  DOPPLER_INLINE I add_signed(I sum, I w, I magnitude, const std::int8_t* q) {
    const I pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(broadcast(q), w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // sum + kCount vectors of codes times 4 kCount activations, four of them per lane and vector.
  template <unsigned kLargest, std::size_t kCount>
  DOPPLER_INLINE I dot(I sum, const I* codes, const std::int8_t* q) {
#ifdef DOPPLER_VNNI
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) sum =
        _mm256_dpbusd_avx_epi32(sum, codes[k], broadcast(q + 4 * k));
    return sum;
#else
    const I ones = _mm256_set1_epi16(1);
    // As many products as surely fit 16 bits are added before they are widened.
    constexpr std::size_t kFit = 32767 / (2 * 127 * kLargest);
    constexpr std::size_t kRun = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; k += kRun) {
      I pairs = _mm256_maddubs_epi16(codes[k], broadcast(q + 4 * k));
      for (std::size_t j = 1; j < kRun && k + j < kCount; ++j)
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes[k + j], broadcast(q + 4 * (k + j))));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
#endif
  }
};
// NOLINTEND
