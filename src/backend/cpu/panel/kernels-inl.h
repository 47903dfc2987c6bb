// The products of panels with activations, for one instruction set. Included inside a namespace that holds
// `Lanes`, with that instruction set switched on; see kernels_avx2.cpp. Everything that differs between
// instruction sets is in Lanes: a few vectors of kLanes 32-bit lanes.

// NOLINTBEGIN: part of a translation unit

using panel::Scales;
using I = Lanes::I;
using F32v = Lanes::F;

constexpr std::size_t kLaneParts = kPanelRows / Lanes::kLanes;

// Two tokens side by side, for instructions that multiply two rows with two tokens (Lanes::kTogether is 2): 8
// columns of the one, the same 8 of the other, and so on. It takes the place of their two ActivationBlocks.
struct alignas(64) ActivationPair {
  std::int8_t q[2 * kSubBlock];
  float scale[2];
  std::int32_t minus_sum[3][2];
  float scaled_sum[3][2];
  float unused[2];
};
static_assert(sizeof(ActivationPair) == 2 * sizeof(ActivationBlock));

// How many tokens share the vectors of sums, in a tile of `tokens`, and what their activations lie in.
constexpr std::size_t together_in(std::size_t tokens) {
  return tokens == 1 ? 1 : Lanes::kTogether;
}
template <std::size_t kTokens>
using Activations = std::conditional_t<together_in(kTokens) == 2, ActivationPair, ActivationBlock>;

// Bytes of a row of 16 lanes of 1, 2 or 4 bytes that belong to part `p`.
template <std::size_t kBytes>
DOPPLER_INLINE const std::uint8_t* part_of(const std::uint8_t* lanes, std::size_t p) {
  return lanes + p * Lanes::kLanes * kBytes;
}

// The eight vectors of codes of one sub-block, table values for types that have a table.
template <class F>
DOPPLER_INLINE void unpack(const std::uint8_t* planes, std::size_t part, I (&codes)[8]) {
  const auto word = [&](std::size_t w) { return Lanes::load(part_of<4>(planes + w * kPanelRows * 4, part)); };
  if constexpr (F::kBits == 8) {
    DOPPLER_UNROLL_8 for (std::size_t k = 0; k < 8; ++k) codes[k] = word(k);
  } else if constexpr (F::kBits >= 4) {
    const I nibbles = Lanes::pattern(0x0f0f0f0fu);
    DOPPLER_UNROLL_8 for (std::size_t v = 0; v < 4; ++v) {
      const I both = word(v);
      codes[v] = Lanes::both(both, nibbles);
      codes[v + 4] = Lanes::both(Lanes::template right<4>(both), nibbles);
    }
    if constexpr (F::kTable) {
      const auto table = Lanes::table(panel::table_of<F>().data());
      DOPPLER_UNROLL_8 for (std::size_t k = 0; k < 8; ++k) codes[k] = Lanes::lookup(table, codes[k]);
    }
    if constexpr (F::kBits == 5) {
      const I fifth = Lanes::pattern(0x10101010u), bits = word(4);
      Lanes::template add_bits<4>(codes[0], bits, fifth), Lanes::template add_bits<3>(codes[1], bits, fifth);
      Lanes::template add_bits<2>(codes[2], bits, fifth), Lanes::template add_bits<1>(codes[3], bits, fifth);
      Lanes::template add_bits<0>(codes[4], bits, fifth), Lanes::template add_bits<-1>(codes[5], bits, fifth);
      Lanes::template add_bits<-2>(codes[6], bits, fifth);
      Lanes::template add_bits<-3>(codes[7], bits, fifth);
    }
    if constexpr (F::kBits == 6) {
      const I pair = Lanes::pattern(0x30303030u);
      DOPPLER_UNROLL_8 for (std::size_t h = 0; h < 2; ++h) {
        const I bits = word(4 + h);
        Lanes::template add_bits<4>(codes[4 * h], bits, pair);
        Lanes::template add_bits<2>(codes[4 * h + 1], bits, pair);
        Lanes::template add_bits<0>(codes[4 * h + 2], bits, pair);
        Lanes::template add_bits<-2>(codes[4 * h + 3], bits, pair);
      }
    }
  } else {
    const I pair = Lanes::pattern(0x03030303u);
    DOPPLER_UNROLL_8 for (std::size_t h = 0; h < 2; ++h) {
      const I bits = word(h);
      codes[4 * h] = Lanes::both(bits, pair);
      codes[4 * h + 1] = Lanes::both(Lanes::template right<2>(bits), pair);
      codes[4 * h + 2] = Lanes::both(Lanes::template right<4>(bits), pair);
      codes[4 * h + 3] = Lanes::both(Lanes::template right<6>(bits), pair);
    }
    if constexpr (F::kBits == 3) {
      const I third = Lanes::pattern(0x04040404u), bits = word(2);
      Lanes::template add_bits<2>(codes[0], bits, third), Lanes::template add_bits<1>(codes[1], bits, third);
      Lanes::template add_bits<0>(codes[2], bits, third), Lanes::template add_bits<-1>(codes[3], bits, third);
      Lanes::template add_bits<-2>(codes[4], bits, third);
      Lanes::template add_bits<-3>(codes[5], bits, third);
      Lanes::template add_bits<-4>(codes[6], bits, third);
      Lanes::template add_bits<-5>(codes[7], bits, third);
    }
  }
}

// Scale and (negative) minimum of sub-block s: of its one group, or of both its halves.
template <class F>
DOPPLER_INLINE void scales(const std::uint8_t* header, std::size_t s, std::size_t part, F32v (&scale)[2],
                           F32v (&minimum)[2]) {
  constexpr std::size_t kHalves = 2 * kPanelRows, kGroups = kSubBlock / F::kGroup;
  if constexpr (F::kScales == Scales::kPower) {
    scale[0] = Lanes::half_power_of_two(part_of<1>(header, part));
    return;
  } else {
    const F32v d = Lanes::load_f16(part_of<2>(header, part));
    if constexpr (F::kScales == Scales::kHalf) {
      scale[0] = d;
    } else if constexpr (F::kScales == Scales::kHalfMin) {
      scale[0] = d;
      minimum[0] = Lanes::load_f16(part_of<2>(header + kHalves, part));
    } else if constexpr (F::kScales == Scales::kSigned) {
      DOPPLER_UNROLL_8 for (std::size_t g = 0; g < kGroups; ++g) {
        const std::uint8_t* at = header + kHalves + (s * kGroups + g) * kPanelRows;
        scale[g] = Lanes::mul(d, Lanes::to_float(Lanes::load_i8(part_of<1>(at, part))));
      }
    } else {
      const F32v minus_dmin = Lanes::negate(Lanes::load_f16(part_of<2>(header + kHalves, part)));
      const auto byte = [&](std::size_t i) {
        return Lanes::load_u8(part_of<1>(header + 2 * kHalves + i * kPanelRows, part));
      };
      const I low = Lanes::pattern(0xfu);
      if constexpr (F::kScales == Scales::kNibblePairs) {
        DOPPLER_UNROLL_8 for (std::size_t g = 0; g < kGroups; ++g) {
          const I pair = byte(s * kGroups + g);
          scale[g] = Lanes::mul(d, Lanes::to_float(Lanes::both(pair, low)));
          minimum[g] = Lanes::mul(minus_dmin, Lanes::to_float(Lanes::template right<4>(pair)));
        }
      } else {  // ggml's get_scale_min_k4
        I sc, m;
        if (s < 4) {
          const I six = Lanes::pattern(0x3fu);
          sc = Lanes::both(byte(s), six), m = Lanes::both(byte(s + 4), six);
        } else {
          const I upper = Lanes::pattern(0x30u), packed = byte(s + 4);
          sc = Lanes::both(packed, low), m = Lanes::template right<4>(packed);
          Lanes::template add_bits<-2>(sc, byte(s - 4), upper);
          Lanes::template add_bits<-2>(m, byte(s), upper);
        }
        scale[0] = Lanes::mul(d, Lanes::to_float(sc));
        minimum[0] = Lanes::mul(minus_dmin, Lanes::to_float(m));
      }
    }
  }
}

// A part of four rows, two by two, for instructions that multiply two rows with two tokens. Codes: 8 columns
// of rows 0 and 1, four vectors for all 32 columns, then rows 2 and 3. Scales and minima: each row's twice,
// since its neighbour is the other token. (L is Lanes: a parameter, so that sets without such functions need
// none.)
template <class F, class L>
DOPPLER_INLINE void pair_rows(I (&codes)[8], F32v (&scale)[2][2], F32v (&minimum)[2][2]) {
  I halves[8];
  DOPPLER_UNROLL_8 for (std::size_t k = 0; k < 4; ++k) {
    halves[k] = L::zip_first(codes[2 * k], codes[2 * k + 1]);
    halves[k + 4] = L::zip_second(codes[2 * k], codes[2 * k + 1]);
  }
  DOPPLER_UNROLL_8 for (std::size_t k = 0; k < 8; ++k) codes[k] = halves[k];
  DOPPLER_UNROLL_8 for (std::size_t g = 0; g < kSubBlock / F::kGroup; ++g) {
    scale[1][g] = L::zip_second(scale[0][g], scale[0][g]),
    scale[0][g] = L::zip_first(scale[0][g], scale[0][g]);
    if constexpr (F::kMins) {
      minimum[1][g] = L::zip_second(minimum[0][g], minimum[0][g]);
      minimum[0][g] = L::zip_first(minimum[0][g], minimum[0][g]);
    }
  }
}
template <class L, std::size_t kCount>
DOPPLER_INLINE I pair_dot(I sum, const I* codes, const std::int8_t* q) {
  return L::template pair_dot<kCount>(sum, codes, q);
}
// From sums of two rows and two tokens each to four rows of one token, then of the other.
template <class L>
DOPPLER_INLINE void part_tokens(F32v& first, F32v& second) {
  const F32v even = L::unzip_even(first, second);
  second = L::unzip_odd(first, second);
  first = even;
}

template <class L>
DOPPLER_INLINE I without_offset(I codes) {
  return L::without_offset(codes);
}

// How this instruction set multiplies the codes of a format.
template <class F>
constexpr panel::WideCodes kCodesAs = F::kOffsetShift == 7 ? Lanes::kWideCodes : panel::WideCodes::kUnsigned;

// The integer products of kCols columns with the activations of one token, or two, offset included.
template <class F, std::size_t kCols, class X>
DOPPLER_INLINE I group_dot(const I* codes, const X& x, std::size_t first_col, std::size_t group) {
  I sum = Lanes::zero();
  if constexpr (F::kOffsetShift != 0 && kCodesAs<F> == panel::WideCodes::kUnsigned)
    sum = Lanes::template left<F::kOffsetShift>(Lanes::set(x.minus_sum[group]));
  if constexpr (std::is_same_v<X, ActivationPair>) {
    return pair_dot<Lanes, kCols / 8>(sum, codes, x.q + 2 * first_col);
  } else {
    return Lanes::template dot<F::kLargest, kCols / 4>(sum, codes, x.q + first_col);
  }
}

// Codes of 8 bits as magnitudes: one vector of codes with all tokens before the next, since registers would
// not hold eight of them and their magnitudes.
template <class L, std::size_t kTokens>
DOPPLER_INLINE void signed_dots(const I (&codes)[8], const ActivationBlock* x, I (&dots)[kTokens]) {
  DOPPLER_UNROLL_16 for (std::size_t t = 0; t < kTokens; ++t) dots[t] = Lanes::zero();
  DOPPLER_UNROLL_8 for (std::size_t k = 0; k < 8; ++k) {
    const I w = L::without_offset(codes[k]), magnitude = L::magnitude(w);
    DOPPLER_UNROLL_16 for (std::size_t t = 0; t < kTokens; ++t) dots[t] =
        L::add_signed(dots[t], w, magnitude, x[t].q + 4 * k);
  }
}

// Adds one sub-block of kParts parts of a panel times kTokens tokens.
template <class F, std::size_t kTokens, std::size_t kParts>
DOPPLER_INLINE void sub_block(const std::uint8_t* header, const std::uint8_t* planes, std::size_t s,
                              std::size_t first_part, const Activations<kTokens>* x,
                              F32v (&sum)[kParts][kTokens]) {
  constexpr std::size_t kTogether = together_in(kTokens), kCodes = 8 / kTogether;
  DOPPLER_UNROLL_8 for (std::size_t p = 0; p < kParts; ++p) {
    I codes[8];
    F32v scale[kTogether][2], minimum[kTogether][2];
    unpack<F>(planes, first_part + p, codes);
    scales<F>(header, s, first_part + p, scale[0], minimum[0]);
    if constexpr (kTogether == 2) pair_rows<F, Lanes>(codes, scale, minimum);
    if constexpr (kCodesAs<F> == panel::WideCodes::kMagnitudes) {
      static_assert(F::kGroup == kSubBlock && !F::kMins);
      constexpr std::size_t kAtOnce = kTokens < Lanes::kSums / 2 ? kTokens : Lanes::kSums / 2;
      DOPPLER_UNROLL_8 for (std::size_t first = 0; first < kTokens; first += kAtOnce) {
        I dots[kAtOnce];
        signed_dots<Lanes>(codes, x + first, dots);
        DOPPLER_UNROLL_16 for (std::size_t t = 0; t < kAtOnce; ++t) sum[p][first + t] =
            Lanes::fma(Lanes::to_float(dots[t]), Lanes::mul(scale[0][0], Lanes::set(x[first + t].scale)),
                       sum[p][first + t]);
      }
      continue;
    }
    if constexpr (kCodesAs<F> == panel::WideCodes::kSigned) {
      DOPPLER_UNROLL_8 for (I& code : codes) code = without_offset<Lanes>(code);
    }
    // One vector of sums after the other: a token's, or one of the two that a pair of tokens has.
    DOPPLER_UNROLL_16 for (std::size_t t = 0; t < kTokens; ++t) {
      const Activations<kTokens>& token = x[t / kTogether];
      const std::size_t half = t % kTogether;
      const I* own = codes + half * kCodes;
      const F32v token_scale = Lanes::set(token.scale);
      F32v& to = sum[p][t];
      if constexpr (F::kGroup == kSubBlock) {
        const F32v dot = Lanes::to_float(group_dot<F, 32>(own, token, 0, 2));
        to = Lanes::fma(dot, Lanes::mul(scale[half][0], token_scale), to);
        if constexpr (F::kMins) to = Lanes::fma(minimum[half][0], Lanes::set(token.scaled_sum[2]), to);
      } else {
        const F32v first = Lanes::to_float(group_dot<F, 16>(own, token, 0, 0));
        const F32v second = Lanes::to_float(group_dot<F, 16>(own + kCodes / 2, token, 16, 1));
        to = Lanes::fma(first, Lanes::mul(scale[half][0], token_scale), to);
        to = Lanes::fma(second, Lanes::mul(scale[half][1], token_scale), to);
        if constexpr (F::kMins) {
          to = Lanes::fma(minimum[half][0], Lanes::set(token.scaled_sum[0]), to);
          to = Lanes::fma(minimum[half][1], Lanes::set(token.scaled_sum[1]), to);
        }
      }
    }
  }
}

// How far ahead of its use a line of weights is prefetched, so that the stream does not wait at the 4 kB
// pages at which hardware prefetchers stop.
constexpr std::size_t kAhead = 2048;

// kParts parts of one panel times one tile, all columns.
template <class F, std::size_t kTokens, std::size_t kParts>
void panel_tile(const PanelCall& call, std::size_t panel, std::size_t first_part,
                const Activations<kTokens>* x, std::size_t token) {
  constexpr std::size_t kTogether = together_in(kTokens);
  const std::size_t blocks = call.weight.cols / F::kBlockCols;
  const std::uint8_t* block = call.weight.data + panel * blocks * F::kBlockBytes;
  F32v sum[kParts][kTokens];
  DOPPLER_UNROLL_8 for (std::size_t p = 0; p < kParts; ++p) {
    DOPPLER_UNROLL_16 for (std::size_t t = 0; t < kTokens; ++t) sum[p][t] = Lanes::zero_float();
  }
  for (std::size_t b = 0; b < blocks; ++b, block += F::kBlockBytes) {
    const std::uint8_t* planes = block + F::kHeaderBytes;
    if constexpr (kTokens == 1) {
      for (std::size_t line = 0; line < F::kHeaderBytes; line += 64)
        __builtin_prefetch(block + kAhead + line);
    }
    for (std::size_t s = 0; s < F::kSubBlocks; ++s, planes += F::kSubBlockBytes, x += kTokens / kTogether) {
      DOPPLER_UNROLL_8 for (std::size_t line = 0; line < F::kSubBlockBytes; line += 64)
          __builtin_prefetch(planes + kAhead + line);
      sub_block<F, kTokens, kParts>(block, planes, s, first_part, x, sum);
    }
  }
  const std::size_t row = panel * kPanelRows;
  const std::size_t rows = call.weight.rows - row < kPanelRows ? call.weight.rows - row : kPanelRows;
  if constexpr (kTogether == 2) {
    for (std::size_t p = 0; p < kParts; ++p) {
      for (std::size_t t = 0; t < kTokens; t += 2) part_tokens<Lanes>(sum[p][t], sum[p][t + 1]);
    }
  }
  for (std::size_t t = 0; t < kTokens; ++t) {
    float lanes[kParts * Lanes::kLanes];
    for (std::size_t p = 0; p < kParts; ++p) Lanes::store(sum[p][t], lanes + p * Lanes::kLanes);
    float* out = call.out + (token + t) * call.stride + (row - call.panel_begin * kPanelRows);
    for (std::size_t i = 0; i < kParts * Lanes::kLanes; ++i) {
      const std::size_t r = first_part * Lanes::kLanes + i;
      if (r < rows) out[r] = lanes[i] + (call.bias == nullptr ? 0.0f : call.bias[row + r]);
    }
  }
}

// Decoding takes whole panels, so that memory is read in one stream; larger tiles as many parts as registers
// allow.
template <class F, std::size_t kTokens>
void tile_of(const PanelCall& call, std::size_t panel, const ActivationBlock* x, std::size_t token) {
  constexpr std::size_t kParts = kTokens * kLaneParts <= Lanes::kSums
                                     ? kLaneParts
                                     : (Lanes::kSums / kTokens > 0 ? Lanes::kSums / kTokens : 1);
  const auto* activations = reinterpret_cast<const Activations<kTokens>*>(x);
  for (std::size_t part = 0; part < kLaneParts; part += kParts)
    panel_tile<F, kTokens, kParts>(call, panel, part, activations, token);
}

// Bytes of panels that stay in a core's second-level cache while all tiles pass over them, beside a tile's
// activations: half of the 512 kB that small cores have.
constexpr std::size_t kPanelCache = 256 * 1024;

template <class F>
void rows_of(const PanelCall& call) {
  const std::size_t sub_blocks = call.weight.cols / kSubBlock;
  const std::size_t fit = kPanelCache / call.weight.panel_bytes();
  const std::size_t group = fit == 0 ? 1 : fit;
  for (std::size_t first = call.panel_begin; first < call.panel_end; first += group) {
    const std::size_t last = first + group < call.panel_end ? first + group : call.panel_end;
    std::size_t tile = Lanes::kTileTokens;
    for (std::size_t token = 0; token < call.tokens; token += tile) {
      tile = next_tile(call.tokens - token, Lanes::kTileTokens);
      const ActivationBlock* x = call.x + token * sub_blocks;
      for (std::size_t p = first; p < last; ++p) {
        switch (tile) {
          case 1:
            tile_of<F, 1>(call, p, x, token);
            break;
          case 2:
            tile_of<F, 2>(call, p, x, token);
            break;
          case 4:
            tile_of<F, 4>(call, p, x, token);
            break;
          default:
            if constexpr (Lanes::kTileTokens > 4) {
              if (tile == 8) tile_of<F, 8>(call, p, x, token);
              if constexpr (Lanes::kTileTokens > 8) {
                if (tile == 16) tile_of<F, 16>(call, p, x, token);
              }
            }
        }
      }
    }
  }
}

void rows(const PanelCall& call) {
  switch (call.weight.format->dtype) {
#define DOPPLER_ROWS_OF(F) \
  case DType::k##F:        \
    return rows_of<panel::F>(call);
    DOPPLER_FOR_EACH_PANEL_LAYOUT(DOPPLER_ROWS_OF)
#undef DOPPLER_ROWS_OF
    default:
      return;  // panel_format() has no other types
  }
}

// One block: q = round(x * 127 / max |x|).
void quantise_block(const float* x, ActivationBlock& out) {
  constexpr std::size_t kVectors = kSubBlock / Lanes::kLanes, kHalf = kVectors / 2;
  // Magnitudes order like their bits, NaN and Inf above all numbers.
  const I magnitude = Lanes::pattern(0x7fffffffu);
  I largest = Lanes::zero();
  DOPPLER_UNROLL_8 for (std::size_t v = 0; v < kVectors; ++v) largest =
      Lanes::max(largest, Lanes::both(Lanes::bits(Lanes::load_floats(x + v * Lanes::kLanes)), magnitude));
  const std::int32_t top_bits = Lanes::max_lane(largest);
  float top;
  std::memcpy(&top, &top_bits, 4);
  // Below 1e-30 the factor would overflow; such a block is zero to any sum that counts.
  const bool special = top_bits >= 0x7f800000, usable = !special && top > 1e-30f;
  const F32v factor = Lanes::set(usable ? 127.0f / top : 0.0f);
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
  const F32v round = Lanes::set(12582912.0f);
  const I base = Lanes::set(0x4b400000);
  I sums[2] = {Lanes::zero(), Lanes::zero()};
  DOPPLER_UNROLL_8 for (std::size_t v = 0; v < kVectors; ++v) {
    const F32v values = usable ? Lanes::load_floats(x + v * Lanes::kLanes) : Lanes::zero_float();
    const I codes = Lanes::sub(Lanes::bits(Lanes::add(Lanes::mul(values, factor), round)), base);
    Lanes::store_bytes(codes, out.q + v * Lanes::kLanes);
    sums[v / kHalf] = Lanes::add(sums[v / kHalf], codes);
  }
  const std::int32_t first = Lanes::sum_lanes(sums[0]), second = Lanes::sum_lanes(sums[1]);
  out.scale = special ? __builtin_nanf("") : usable ? top / 127.0f : 0.0f;
  out.minus_sum[0] = -first, out.minus_sum[1] = -second, out.minus_sum[2] = -first - second;
  out.scaled_sum[0] = out.scale * static_cast<float>(first);
  out.scaled_sum[1] = out.scale * static_cast<float>(second);
  out.scaled_sum[2] = out.scale * static_cast<float>(first + second);
  out.unused = 0;
}

// A token's block, as one of a pair's.
void join(const ActivationBlock& block, std::size_t side, ActivationPair& pair) {
  for (std::size_t c = 0; c < kSubBlock; c += 8) std::memcpy(pair.q + 2 * c + 8 * side, block.q + c, 8);
  pair.scale[side] = block.scale;
  for (std::size_t i = 0; i < 3; ++i) {
    pair.minus_sum[i][side] = block.minus_sum[i];
    pair.scaled_sum[i][side] = block.scaled_sum[i];
  }
  pair.unused[side] = 0;
}

void quantise(const float* x, std::size_t tokens, std::size_t cols, std::size_t begin, std::size_t end,
              ActivationBlock* out) {
  const std::size_t blocks = cols / kSubBlock;
  std::size_t tile = 0;
  for (std::size_t first = 0; first < end; first += tile) {
    tile = next_tile(tokens - first, Lanes::kTileTokens);
    for (std::size_t t = first < begin ? begin : first; t < end && t < first + tile; ++t) {
      for (std::size_t b = 0; b < blocks; ++b) {
        const float* from = x + t * cols + b * kSubBlock;
        ActivationBlock* to = out + first * blocks + b * tile;
        if (together_in(tile) == 1) {
          quantise_block(from, to[t - first]);
        } else {
          ActivationBlock block;
          quantise_block(from, block);
          join(block, (t - first) % 2, reinterpret_cast<ActivationPair*>(to)[(t - first) / 2]);
        }
      }
    }
  }
}

// NOLINTEND
