// What the self-check's cases are made of: fixed numbers, a variant's values, weights as the kernels read
// them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/gpu/bf16_in_13_bits.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/shader.h"
#include "backend/gpu/weights.h"
#include "base/float16.h"
#include "model/activation.h"

namespace doppler::gpu {

// Weights of a check: some workgroups are enough to see a wrong index, and more would cost time.
inline constexpr std::uint64_t kMostValues = 1 << 19;
// Bytes of weights of which such workgroups are a part: rows of gate and up lie far apart.
inline constexpr std::uint64_t kMostWeightBytes = 128 << 20;
// Numbers of a fixed sequence (Steele's splitmix).
class Sequence {
 public:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  std::uint32_t word() { return static_cast<std::uint32_t>(next()); }
  // In (-1, 1), not near zero, so that nothing gets lost beside the others.
  float number() {
    const std::uint64_t bits = next();
    const float size = 0.25f + static_cast<float>(bits >> 40) * 0x1p-24f * 0.75f;
    return (bits & 1) != 0 ? -size : size;
  }
  std::vector<float> numbers(std::size_t count) {
    std::vector<float> values(count);
    for (float& v : values) v = number();
    return values;
  }

 private:
  std::uint64_t state_ = 2024;
};

// The values of a variant by name; 0 where it has none.
class Values {
 public:
  explicit Values(const ShaderValues& values) : values_(values) {}
  std::uint64_t operator[](std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : static_cast<std::uint64_t>(found->second);
  }
  bool has(std::string_view name) const { return values_.contains(name); }
  float number(std::string_view name) const {
    return std::bit_cast<float>(static_cast<std::uint32_t>((*this)[name]));
  }

 private:
  const ShaderValues& values_;
};

// The inputs to run a kernel on, and the outputs to expect.
struct Case {
  std::map<std::string, std::vector<std::uint32_t>> inputs;  // words, by binding
  std::map<std::string, std::size_t> outputs;                // words
  Workgroups groups;
  struct Expected {
    std::uint64_t at;  // word of the output, or value of a quantised one or of one in halves
    double value, allowed;
    const char* output = "out";
  };
  std::vector<Expected> expected;
  std::set<std::string_view> written;  // inputs that the kernel writes, too
  std::set<std::string_view> halves;   // outputs that are in f16, two in a word
  bool wide = false;                   // eight 8-bit blocks of an output share their scale

  void input(const std::string& name, std::span<const float> values) {
    std::vector<std::uint32_t>& words = inputs[name];
    words.resize(values.size());
    std::memcpy(words.data(), values.data(), values.size_bytes());
  }
};

// activation(gate) * up in `out8`, each given with how far it may be off.
inline Case::Expected gated_value(const Values& v, std::pair<double, double> gate,
                                  std::pair<double, double> up, std::uint64_t at) {
  const double act = activate(static_cast<Activation>(v["ACTIVATION"]), gate.first);
  // No activation is steeper than 1.2.
  const double allowed =
      (1.2 * gate.second + 1e-5 * std::abs(gate.first)) * (std::abs(up.first) + up.second) +
      up.second * std::abs(act);
  return {at, act * up.first, allowed, "out8"};
}

// Random weights as shaders/weights.wgsl reads them, and their values one by one.
class PackedWeights {
 public:
  // Of `rows` rows those are random that begin within `each` rows after a multiple of `apart`.
  PackedWeights(const Values& v, std::size_t rows, std::size_t each, std::size_t apart, Sequence& sequence)
      : form_(static_cast<CodeForm>(v["FORM"])),
        scales_form_(static_cast<ScaleForm>(v["SCALES"])),
        units_(v["UNITS_K"]),
        format_{form_, scales_form_} {
    const std::size_t tiles = (rows + kTileRows - 1) / kTileRows;
    codes.resize(tiles * units_ * format_.pieces() * kTileRows * 4);
    scales.resize(tiles * (scale_units() * format_.scale_words() + format_.row_words()) * kTileRows);
    const std::size_t tile_codes = codes.size() / tiles, tile_scales = scales.size() / tiles;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      const std::size_t first = tile * kTileRows;
      if (first % apart >= each && first / apart == (first + kTileRows - 1) / apart) continue;
      if (form_ == CodeForm::kBF16In13) {
        for (std::size_t r = 0; r < kTileRows; ++r) put_in_13_bits(tile, r, sequence);
        continue;
      }
      for (std::size_t i = 0; i < tile_codes; ++i) codes[tile * tile_codes + i] = code_word(sequence);
      for (std::size_t i = 0; i < tile_scales; ++i)
        scales[tile * tile_scales + i] = scale_word(i / kTileRows % format_.scale_words(), sequence);
    }
  }

  double value(std::size_t row, std::size_t k) const {
    const std::size_t unit = k / 64, i = k % 64;
    const std::size_t tile = row / kTileRows * units_ + unit, in_tile = row % kTileRows;
    const auto word = [&](std::size_t number) {  // of the row's unit, 4 in a piece
      return codes[((tile * format_.pieces() + number / 4) * kTileRows + in_tile) * 4 + number % 4];
    };
    const std::size_t span = format_.scale_span();
    const auto scale = [&](std::size_t number) {
      const std::size_t at = row / kTileRows * scale_units() + unit / span;
      const std::size_t front = (row / kTileRows + 1) * format_.row_words();
      return scales[(front + at * format_.scale_words() + number) * kTileRows + in_tile] >>
             (unit % span * 16);
    };
    const auto half = [](std::uint32_t w, std::size_t h) {
      return static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(w >> (16 * h))));
    };
    const auto byte = [](std::uint32_t w, std::size_t b) { return static_cast<int>(w >> (8 * b) & 255); };
    double code = 0;
    switch (form_) {
      case CodeForm::kF32:
        return std::bit_cast<float>(word(i));
      case CodeForm::kF16:
        return half(word(i / 2), i % 2);
      case CodeForm::kBF16:
        return bf16_to_f32(static_cast<std::uint16_t>(word(i / 2) >> (16 * (i % 2))));
      case CodeForm::kBF16In13: {
        const std::size_t b = i / 32, v = i % 32;
        const auto lane = [](std::uint32_t w, std::size_t l) { return w >> (16 * l) & 0xffff; };
        std::uint32_t bits = v < 24 ? lane(word(12 * b + v / 2), v % 2) : lane(scale(b), v % 2);
        if (v >= 24 && v < 30) {
          const std::size_t p = (v - 24) / 2;
          bits = (bits >> p & 1) << 3;
          for (std::size_t w = 0; w < 4; ++w)
            bits |= (lane(word(12 * b + 4 * p + w), v % 2) & 7) << (13 - 3 * w);
        }
        const std::size_t first = row / kTileRows * (units_ * format_.scale_words() + 1) * kTileRows;
        return half(bits & 0xfff8, 0) * std::bit_cast<float>(scales[first + in_tile]);
      }
      case CodeForm::kBytes:
        code = static_cast<std::int8_t>(byte(word(i / 4), i % 4));
        break;
      case CodeForm::kSignedNibbles:
      case CodeForm::kNibbles: {
        const int both = byte(word(i / 32 * 4 + i % 16 / 4), i % 4);
        const int nibble = i % 32 < 16 ? both & 15 : both >> 4;
        code = form_ == CodeForm::kNibbles || nibble < 8 ? nibble : nibble - 16;
        break;
      }
      case CodeForm::kFloatNibbles: {
        const int both = byte(word(i / 32 * 4 + i % 16 / 4), i % 4);
        code = float_nibble_level(static_cast<unsigned>(i % 32 < 16 ? both & 15 : both >> 4));
        break;
      }
      case CodeForm::kSignedFive:
      case CodeForm::kSignedSix: {
        const int both = byte(word(i / 32 * 4 + i % 16 / 4), i % 4);
        const int nibble = i % 32 < 16 ? both & 15 : both >> 4;
        const std::size_t own = format_.scale_words() - format_.high_words();
        if (form_ == CodeForm::kSignedFive) {
          code = nibble - 16 * static_cast<int>(scale(own + i / 32) >> (8 * (i % 4) + i % 32 / 4) & 1);
        } else {
          const int high = static_cast<int>(scale(own + i / 16) >> (8 * (i % 4) + 2 * (i % 16 / 4)) & 3);
          code = nibble + 16 * (high < 2 ? high : high - 4);
        }
        break;
      }
    }
    const std::size_t b = i / 32, g = i / 16;
    switch (scales_form_) {
      case ScaleForm::kNone:
        return code;
      case ScaleForm::kHalf:
        return code * half(scale(0), b);
      case ScaleForm::kHalfMin:
        return code * half(scale(0), b) + half(scale(1), b);
      case ScaleForm::kSuper32Min:
        return code * half(scale(1), 0) * byte(scale(0), 2 * b) -
               half(scale(1), 1) * byte(scale(0), 2 * b + 1);
      case ScaleForm::kSuper16:
        return code * half(scale(1), 0) * static_cast<std::int8_t>(byte(scale(0), g));
      case ScaleForm::kSuper16Min:
        return code * half(scale(2), 0) * byte(scale(0), g) - half(scale(2), 1) * byte(scale(1), g);
      case ScaleForm::kFloat:
        return code * std::bit_cast<float>(scale(b));
      case ScaleForm::kPower:
        return code * std::ldexp(1.0, byte(scale(0), b) - 128);
    }
    return 0;
  }

  std::vector<std::uint32_t> codes, scales;

 private:
  std::size_t scale_units() const { return (units_ + format_.scale_span() - 1) / format_.scale_span(); }
  void put_in_13_bits(std::size_t tile, std::size_t row, Sequence& s) {
    std::vector<std::uint16_t> values(units_ * kUnitValues);
    const int smaller = static_cast<int>(row % 4);  // rows have factors of their own
    for (std::uint16_t& value : values) value = f32_to_bf16(std::ldexp(s.number(), -smaller));
    const int base = base_of_row(values);
    const std::size_t words = format_.scale_words(), tile_words = (units_ * words + 1) * kTileRows;
    scales[tile * tile_words + row] = std::bit_cast<std::uint32_t>(factor_of_base(base));
    for (std::size_t b = 0; b < 2 * units_; ++b) {
      std::array<std::uint32_t, kBlockPieceWords> pieces;
      pack_in_13_bits(std::span(values).subspan(b * kBlockValues).first<kBlockValues>(), base, pieces,
                      scales[tile * tile_words + (b + 1) * kTileRows + row]);
      for (std::size_t w = 0; w < pieces.size(); ++w)
        codes[(((tile * 2 * units_ + b) * 3 + w / 4) * kTileRows + row) * 4 + w % 4] = pieces[w];
    }
  }
  static std::uint32_t halves(Sequence& s) {
    return f32_to_f16(s.number() / 16) | std::uint32_t{f32_to_f16(s.number() / 16)} << 16;
  }
  std::uint32_t code_word(Sequence& s) const {
    if (form_ == CodeForm::kF32) return std::bit_cast<std::uint32_t>(s.number());
    if (form_ == CodeForm::kF16) return halves(s);
    if (form_ == CodeForm::kBF16)
      return f32_to_bf16(s.number()) | std::uint32_t{f32_to_bf16(s.number())} << 16;
    return s.word();
  }
  std::uint32_t scale_word(std::size_t number, Sequence& s) const {
    if (number >= format_.scale_words() - format_.high_words()) return s.word();
    switch (scales_form_) {
      case ScaleForm::kSuper32Min:
      case ScaleForm::kSuper16:
        return number == 0 ? s.word() & 0x3f3f3f3f : halves(s);
      case ScaleForm::kSuper16Min:
        return number < 2 ? s.word() & 0x0f0f0f0f : halves(s);
      case ScaleForm::kFloat:
        return std::bit_cast<std::uint32_t>(s.number());
      case ScaleForm::kPower:  // 2^-8 to 2^-1
        return (s.word() & 0x07070707) + 0x78787878;
      default:
        return halves(s);
    }
  }
  CodeForm form_;
  ScaleForm scales_form_;
  std::size_t units_;
  WeightFormat format_;
};

// An activation row as a kernel multiplies it, and by how much a value may be off because the GPU rounded it
// to the neighbouring code.
struct Activations {
  std::vector<double> x;
  double step = 0;
};

// One token's, bound as floats or as codes of 8 bits with their scales: given_x.wgsl.
Activations given_activations(const Values& v, Sequence& sequence, Case& c);

// The activations that a prologue leaves in workgroup memory, of a row that it computed.
inline Activations left_by_prologue(const Values& v, std::vector<double> x) {
  x.resize(v["UNITS_K"] * 64);
  Activations a{.x = std::move(x)};
  if (v["ACT"] == 0) return a;
  for (std::size_t block = 0; block < a.x.size(); block += 32) {
    double most = 0;
    for (std::size_t k = block; k < block + 32; ++k) most = std::max(most, std::abs(a.x[k]));
    if (most == 0) continue;
    a.step = std::max(a.step, most / 127);
    for (std::size_t k = block; k < block + 32; ++k)
      a.x[k] = std::nearbyint(a.x[k] * (127 / most)) * (most / 127);
  }
  return a;
}

// Cases of self_check_experts.cpp. Experts are covered as long as all of a layer's are not too many to
// upload, and variants that store values for taps only are run when a tap asks for them.
bool covers_experts(const Values& v);
Case expert_in_case(const Values& v);
Case expert_out_case(const Values& v);
Case route_case(const Values& v);
// self_check_columns.cpp: as long as gate and up are not too much to upload.
bool covers_columns(const Values& v);
Case columns_case(const Values& v);
// self_check_elements.cpp
double inverse_root(const std::vector<double>& x, double eps);
Case norm_case(const Values& v);
Case batch_norm_case(const Values& v);
Case quantise_case(const Values& v);
Case embed_case(const Values& v);
// self_check_newest.cpp; what writes a cache as long as that is not too much to upload
Case decode_attention_case(const Values& v);
bool covers_rope(const Values& v);
Case rope_append_case(const Values& v);
// self_check_attention.cpp; and combine_prologue.wgsl: the parts of a split attention, put together.
Case attention_case(const Values& v);
Case combine_case(const Values& v);
Activations combined_activations(const Values& v, Sequence& sequence, Case& c);

}  // namespace doppler::gpu
