// Other ways to read a weight of floats: columns in another order, as of heads, shards or packed codes, and
// values that somebody made of quantised blocks in a wrong way.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "diagnosis/doctor/head_rows.h"
#include "diagnosis/doctor/relayouts.h"

namespace doppler::diagnosis {
namespace {

using Source = std::function<std::uint64_t(std::uint64_t col)>;  // the column that lies where `col` should

ReadRow from_columns(const TensorView& weight, Source source) {
  return [weight, source = std::move(source)](std::uint64_t row, std::span<float> values) -> Status {
    std::vector<float> stored(values.size());
    DOPPLER_TRY(decode_f32(weight, row * values.size(), stored));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = stored[source(i)];
    return {};
  };
}

// Orders within so many columns, which unpacking codes gives.
struct PackedOrder {
  std::uint64_t of;
  const char* says;
  std::uint64_t (*source)(std::uint64_t i);
};
constexpr std::array<std::uint64_t, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr std::array<std::uint64_t, 8> kAwqInverse = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr PackedOrder kPackedOrders[] = {
    {32, "the halves of each 32 columns of {} change places", [](std::uint64_t i) { return (i + 16) % 32; }},
    {2, "neighbouring columns of {} change places", [](std::uint64_t i) { return i ^ 1; }},
    {32, "columns of {} that share a byte lie 16 apart", [](std::uint64_t i) { return i % 16 * 2 + i / 16; }},
    {32, "columns of {} that share a byte are neighbours",
     [](std::uint64_t i) { return i % 2 * 16 + i / 2; }},
    {8, "each 8 columns of {} are put in AWQ's order", [](std::uint64_t i) { return kAwqOrder[i]; }},
    {8, "each 8 columns of {} are taken out of AWQ's order", [](std::uint64_t i) { return kAwqInverse[i]; }},
    {8, "each 8 columns of {} come in reverse", [](std::uint64_t i) { return 7 - i; }},
};

// The step of the grid that all values lie on, as multiples of at most `most`; 0: none. The largest that
// fits.
double step_of(std::span<const float> values, int most) {
  double largest = 0;
  for (const float x : values) {
    if (!std::isfinite(x)) return 0;
    largest = std::max(largest, std::abs(static_cast<double>(x)));
  }
  if (largest == 0) return 0;
  // Values may have been rounded to 16 bits: small codes to BF16, larger ones, whose steps that hides, to
  // F16.
  const double rounding = most < 16 ? 1.0 / 256 : 1.0 / 2048;
  for (int k = 1; k <= most; ++k) {
    double step = largest / k, products = 0, squares = 0;
    bool fits = true;
    for (const float x : values) {
      const double code = std::round(x / step);
      fits = std::abs(x / step - code) <= 1e-3 + std::abs(code) * rounding;
      if (!fits) break;
      products += x * code, squares += code * code;
    }
    if (fits) return products / squares;
  }
  return 0;
}

// What a block's values should be; false if they cannot have come about in this way.
using Decode = bool (*)(std::span<float> block);

bool with_offset(std::span<float> block) {
  const bool negative = std::ranges::any_of(block, [](float x) { return x < 0; });
  if (negative && std::ranges::any_of(block, [](float x) { return x > 0; })) return false;
  const double step = step_of(block, 15) * (negative ? -1 : 1);
  if (step == 0) return std::ranges::all_of(block, [](float x) { return x == 0; });
  for (float& x : block) x = static_cast<float>(step * (std::round(x / step) - 8));
  return true;
}

bool without_signs(std::span<float> block) {
  double step = step_of(block, 8);
  if (step == 0) return std::ranges::all_of(block, [](float x) { return x == 0; });
  const auto codes_of = [&](int code) {
    return std::ranges::any_of(block, [&](float x) { return std::lround(x / step) == code; });
  };
  // The scale's sign shows in the code -8 only, which no other has.
  if (codes_of(8)) step = -step;
  if (codes_of(8)) return false;
  if (!codes_of(-8) && codes_of(0)) return false;  // either sign: zero stands for -8 steps or for 8
  for (float& x : block) {
    const auto code = std::lround(x / step);
    x = static_cast<float>(step * static_cast<double>(code < 0 ? code + 8 : code - 8));
  }
  return true;
}

bool with_signs(std::span<float> block) {
  const bool negative = std::ranges::any_of(block, [](float x) { return x < 0; });
  const double step = step_of(block, 255) * (negative ? -1 : 1);
  if (step == 0) return std::ranges::all_of(block, [](float x) { return x == 0; });
  for (float& x : block) {
    const auto code = std::lround(x / step);
    if (code < 0) return false;
    x = static_cast<float>(step * static_cast<double>(code > 127 ? code - 256 : code));
  }
  return true;
}

bool other_sign_bit(std::span<float> block) {
  const double step = step_of(block, 128);
  if (step == 0) return false;
  for (float& x : block) {
    const auto code = std::lround(x / step);
    x = static_cast<float>(step * static_cast<double>(code < 0 ? code + 128 : code - 128));
  }
  return true;
}

struct WrongDecoding {
  const char* says;
  Decode decode;
};
constexpr WrongDecoding kWrongDecodings[] = {
    {"8 steps are taken off the codes of each 32 values of {}", with_offset},
    {"the 4-bit codes of {} are taken for numbers from 0 to 15, less 8, not for signed ones", without_signs},
    {"the 8-bit codes of {} are taken for signed numbers", with_signs},
    {"the 8-bit codes of {} have their highest bit turned over", other_sign_bit},
};

}  // namespace

void add_wrongly_decoded(const TensorView& w, std::vector<Relayout>& to) {
  constexpr std::uint64_t kBlock = 32;
  if (w.cols() % kBlock != 0) return;
  for (const WrongDecoding& wrong : kWrongDecodings) {
    to.push_back({"wrong_dequantisation", fmt::format(fmt::runtime(wrong.says), w.name),
                  [w, decode = wrong.decode](std::uint64_t row, std::span<float> values) -> Status {
                    DOPPLER_TRY(decode_f32(w, row * values.size(), values));
                    for (std::size_t at = 0; at < values.size(); at += kBlock) {
                      if (!decode(values.subspan(at, kBlock)))
                        return fail(ErrorCode::kNotFound, "The values are lost.");
                    }
                    return {};
                  }});
  }
}

void add_column_orders(const TensorView& w, std::uint64_t head_dim, std::vector<Relayout>& to) {
  const std::uint64_t cols = w.cols();
  const auto add = [&](const char* cause, std::string says, Source source, std::string repair, bool search) {
    to.push_back({cause, std::move(says), from_columns(w, std::move(source)), std::move(repair), 1, search});
  };
  add(
      "weight_permuted", fmt::format("the columns of {} come in reverse", w.name),
      [cols](std::uint64_t i) { return cols - 1 - i; },
      "Convert the tensor again: its columns lie in reverse.", false);
  if (head_dim >= 2 && head_dim % 2 == 0 && cols % head_dim == 0) {
    for (const bool pairs : {true, false}) {
      add(
          "weight_permuted",
          fmt::format("the columns of {} are put in the order of {}", w.name,
                      pairs ? "neighbouring pairs" : "halves of a head"),
          [head_dim, pairs](std::uint64_t i) { return pairs ? paired(i, head_dim) : unpaired(i, head_dim); },
          {}, false);
    }
  }
  for (const PackedOrder& order : kPackedOrders) {
    if (cols % order.of != 0) continue;
    add(
        "nibble_order", fmt::format(fmt::runtime(order.says), w.name),
        [&order](std::uint64_t i) { return i / order.of * order.of + order.source(i % order.of); },
        "Convert the tensor again: its codes were unpacked in another order.", false);
  }
  // Blocks of columns dealt out in turn: heads, or single columns, to shards or groups.
  std::set<std::uint64_t> blocks = {1, 8, 16, 32, 64, 128};
  if (head_dim > 0) blocks.insert(head_dim);
  for (const std::uint64_t block : blocks) {
    if (cols % block != 0) continue;
    const std::uint64_t count = cols / block;
    for (std::uint64_t shards = 2; shards <= 64 && shards < count; ++shards) {
      if (count % shards != 0) continue;
      add(
          "weight_permuted",
          fmt::format("the columns of {} are dealt out {} at a time in turn to {} parts", w.name, block,
                      shards),
          [block, count, shards](std::uint64_t i) {
            const std::uint64_t k = i / block;
            return (k % shards * (count / shards) + k / shards) * block + i % block;
          },
          "Undo the permutation of the columns, as of heads in tensor-parallel shards.", true);
    }
  }
}

}  // namespace doppler::diagnosis
