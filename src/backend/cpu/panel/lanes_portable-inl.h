// 4 lanes of the compiler's own vectors: every machine.

// NOLINTBEGIN: part of a translation unit
struct Lanes {
  typedef std::int32_t I __attribute__((vector_size(16)));
  typedef float F __attribute__((vector_size(16)));
  typedef std::uint32_t U __attribute__((vector_size(16)));
  static constexpr std::size_t kLanes = 4;
  static constexpr std::size_t kTileTokens = 4;
  static constexpr std::size_t kSums = 4;
  static constexpr auto kWideCodes = panel::WideCodes::kUnsigned;
  static constexpr std::size_t kTogether = 1;

  DOPPLER_INLINE I load(const std::uint8_t* p) {
    I v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  DOPPLER_INLINE I zero() { return I{}; }
  DOPPLER_INLINE F zero_float() { return F{}; }
  DOPPLER_INLINE I set(std::int32_t v) { return I{v, v, v, v}; }
  DOPPLER_INLINE F set(float v) { return F{v, v, v, v}; }
  DOPPLER_INLINE I pattern(std::uint32_t bits) { return set(static_cast<std::int32_t>(bits)); }
  DOPPLER_INLINE I both(I a, I b) { return a & b; }
  template <int kBits>
  DOPPLER_INLINE I right(I v) {
    return (I)((U)v >> kBits);
  }
  template <int kBits>
  DOPPLER_INLINE I left(I v) {
    return (I)((U)v << kBits);
  }
  template <int kShift>
  DOPPLER_INLINE void add_bits(I& codes, I bits, I mask) {
    codes |=
        (kShift > 0 ? left<(kShift > 0 ? kShift : 0)>(bits) : right<(kShift < 0 ? -kShift : 0)>(bits)) & mask;
  }
  struct Table {
    const std::uint8_t* values;
  };
  DOPPLER_INLINE Table table(const std::uint8_t* values) { return {values}; }
  DOPPLER_INLINE I lookup(Table table, I codes) {
    std::uint8_t bytes[16];
    std::memcpy(bytes, &codes, 16);
    DOPPLER_UNROLL_16 for (std::uint8_t& byte : bytes) byte = table.values[byte];
    return load(bytes);
  }
  DOPPLER_INLINE F load_f16(const std::uint8_t* p) {
    F v{};
    DOPPLER_UNROLL_8 for (std::size_t i = 0; i < kLanes; ++i) {
      std::uint16_t half;
      std::memcpy(&half, p + 2 * i, 2);
      v[i] = f16_to_f32(half);
    }
    return v;
  }
  DOPPLER_INLINE I load_u8(const std::uint8_t* p) { return I{p[0], p[1], p[2], p[3]}; }
  DOPPLER_INLINE I load_i8(const std::uint8_t* p) {
    std::int8_t v[4];
    std::memcpy(v, p, 4);
    return I{v[0], v[1], v[2], v[3]};
  }
  DOPPLER_INLINE F half_power_of_two(const std::uint8_t* p) {
    F v{};
    DOPPLER_UNROLL_8 for (std::size_t i = 0; i < kLanes; ++i) v[i] = decode_e8m0(p[i]) * 0.5f;
    return v;
  }
  DOPPLER_INLINE F to_float(I v) {
    return F{static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]),
             static_cast<float>(v[3])};
  }
  DOPPLER_INLINE F negate(F v) { return -v; }
  DOPPLER_INLINE F mul(F a, F b) { return a * b; }
  DOPPLER_INLINE F fma(F a, F b, F c) { return a * b + c; }
  DOPPLER_INLINE F add(F a, F b) { return a + b; }
  DOPPLER_INLINE I add(I a, I b) { return a + b; }
  DOPPLER_INLINE I sub(I a, I b) { return a - b; }
  DOPPLER_INLINE I max(I a, I b) { return a > b ? a : b; }
  DOPPLER_INLINE std::int32_t max_lane(I v) {
    std::int32_t most = v[0];
    for (std::size_t i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
    return most;
  }
  DOPPLER_INLINE std::int32_t sum_lanes(I v) { return v[0] + v[1] + v[2] + v[3]; }
  DOPPLER_INLINE F load_floats(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  DOPPLER_INLINE I bits(F v) { return (I)v; }
  // The lanes' lowest bytes.
  DOPPLER_INLINE void store_bytes(I v, std::int8_t* p) {
    for (std::size_t i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(v[i]);
  }
  DOPPLER_INLINE void store(F v, float* p) { std::memcpy(p, &v, sizeof(v)); }

  template <unsigned kLargest, std::size_t kCount>
  DOPPLER_INLINE I dot(I sum, const I* codes, const std::int8_t* q) {
    const I low = set(0xff);
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < kCount; ++k) {
      sum += (codes[k] & low) * set(q[4 * k]);
      sum += (right<8>(codes[k]) & low) * set(q[4 * k + 1]);
      sum += (right<16>(codes[k]) & low) * set(q[4 * k + 2]);
      sum += right<24>(codes[k]) * set(q[4 * k + 3]);
    }
    return sum;
  }
};
// NOLINTEND
