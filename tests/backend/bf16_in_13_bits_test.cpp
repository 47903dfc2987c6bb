// BF16 in 13 bits, read back bit by bit as the header tells it.
#include "backend/gpu/bf16_in_13_bits.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "base/float16.h"

namespace doppler::gpu {
namespace {

using Block = std::array<std::uint16_t, kBlockValues>;

// What a block of a row that has no others is read as.
std::array<double, kBlockValues> read_back(const Block& block) {
  const int base = base_of_row(block);
  std::array<std::uint32_t, kBlockPieceWords> pieces;
  std::uint32_t behind = 0;
  pack_in_13_bits(block, base, pieces, behind);
  const auto half_of = [](std::uint32_t word, std::size_t which) { return word >> (16 * which) & 0xffff; };
  std::array<double, kBlockValues> values;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    std::uint32_t bits = 0;
    if (i < 24) {
      bits = half_of(pieces[i / 2], i % 2) & ~7u;
    } else if (i >= 30) {
      bits = half_of(behind, i % 2) & ~7u;
    } else {
      const std::size_t p = (i - 24) / 2;
      for (std::size_t w = 0; w < 4; ++w) bits |= (half_of(pieces[4 * p + w], i % 2) & 7) << (13 - 3 * w);
      bits |= (half_of(behind, i % 2) >> p & 1) << 3;
    }
    values[i] = double{f16_to_f32(static_cast<std::uint16_t>(bits))} * factor_of_base(base);
  }
  return values;
}

Block block_of(const auto& value_at) {
  Block block;
  for (std::size_t i = 0; i < kBlockValues; ++i) block[i] = f32_to_bf16(static_cast<float>(value_at(i)));
  return block;
}

void expect_same(const Block& block) {
  const auto got = read_back(block);
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const double value = bf16_to_f32(block[i]);
    EXPECT_EQ(got[i], value) << i;
    EXPECT_EQ(std::signbit(got[i]), std::signbit(value)) << i;
  }
}

TEST(BF16In13Bits, AreTheValues) {
  std::mt19937 random(1);
  std::normal_distribution<float> weight(0, 0.02f);
  for (int times = 0; times < 100; ++times)
    expect_same(block_of([&](std::size_t) { return weight(random); }));
}

// Each place with every fraction, beside values of other signs and exponents.
TEST(BF16In13Bits, HaveEveryBitInEveryPlace) {
  for (std::size_t place = 0; place < kBlockValues; ++place) {
    for (unsigned fraction = 0; fraction < 128; ++fraction) {
      Block block = block_of(
          [](std::size_t i) { return std::ldexp(i % 3 == 0 ? -1.5 : 1.25, -static_cast<int>(i % 29)); });
      block[place] = static_cast<std::uint16_t>((fraction % 2 == 0 ? 0xbd00 : 0x3e00) | fraction);
      expect_same(block);
    }
  }
}

TEST(BF16In13Bits, ReachTwentyNineOctavesBelowTheLargest) {
  for (const int top : {-80, -3, 0, 90, 127}) {
    SCOPED_TRACE(top);
    expect_same(block_of([&](std::size_t i) {
      return i == 31 ? 0.0
                     : std::ldexp(i % 2 == 0 ? 1 + 127.0 / 128 : -1 - 1.0 / 128,
                                  top - static_cast<int>(std::min<std::size_t>(i, 29)));
    }));
  }
}

TEST(BF16In13Bits, LoseOfSmallerValuesAPartOfTheLargest) {
  const Block block = block_of([](std::size_t i) {
    return std::ldexp(i % 2 == 0 ? 1.9921875 : -1.0078125, -static_cast<int>(i + i / 2));
  });
  const auto got = read_back(block);
  bool lost = false;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const double off = std::abs(got[i] - bf16_to_f32(block[i]));
    EXPECT_LE(off, 0x1p-37) << i;  // half of the last bit that small halves have here
    lost = lost || off > 0;
  }
  EXPECT_TRUE(lost);
}

TEST(BF16In13Bits, OfZerosAndOfWhatIsNoNumber) {
  expect_same(block_of([](std::size_t i) { return i % 2 == 0 ? 0.0 : -0.0; }));
  // Zeros, infinities and NaN do not change what others are.
  Block block = block_of([](std::size_t i) { return 0.25 * static_cast<double>(i); });
  block[3] = 0x7f80;
  block[4] = 0xff80;
  block[29] = 0x7fc1;
  const auto got = read_back(block);
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    if (i == 29) {
      EXPECT_TRUE(std::isnan(got[i]));
    } else {
      EXPECT_EQ(got[i], bf16_to_f32(block[i])) << i;
    }
  }
  // Floats that a GPU takes for zero are zero.
  Block tiny{};
  tiny[0] = 0x0001;
  tiny[1] = 0x807f;
  for (const double value : read_back(tiny)) EXPECT_EQ(value, 0);
}

// The base is that of the row's largest finite magnitude, wherever it is.
TEST(BF16In13Bits, FindTheLargestOfARow) {
  for (std::size_t at = 0; at < 128; ++at) {
    std::vector<std::uint16_t> row(128, f32_to_bf16(0.5f));
    row[at] = f32_to_bf16(-48);
    row[(at + 1) % 128] = 0x7f80;
    EXPECT_EQ(base_of_row(row), 127 + 5 - 30) << at;
  }
  EXPECT_EQ(base_of_row(std::vector<std::uint16_t>(64, 0)), 1);
}

}  // namespace
}  // namespace doppler::gpu
