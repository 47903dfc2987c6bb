#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/json.h"
#include "quant/blocks.h"
#include "quant/iq_grids.h"
#include "quant/tensor.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::read_file;

template <typename Block>
std::vector<float> decoded(DType dtype, const Block& block) {
  const auto bytes = std::as_bytes(std::span(&block, 1));
  std::vector<float> out(dtype_info(dtype).block_values);
  const Status status = decode_f32({"block", dtype, {out.size()}, bytes}, 0, out);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return out;
}

std::uint16_t half(float value) {
  return f32_to_f16(value);
}

// Random blocks of the type and their values, both as the format's own Python package has them.
struct Recorded {
  std::string blocks, values;
  Shape shape;
};
Recorded recorded(const std::string& name) {
  const Json index = Json::parse(read_file(data_path("dequant/index.json")), nullptr, false);
  const Json& entry = index[name];
  return {read_file(data_path("dequant/" + name + ".blocks.bin")),
          read_file(data_path("dequant/" + name + ".f32.bin")),
          {entry["rows"].get<std::uint64_t>(), entry["values_per_row"].get<std::uint64_t>()}};
}

class DecodesRecorded : public ::testing::TestWithParam<const char*> {};

TEST_P(DecodesRecorded, BitForBit) {
  const DType dtype = *dtype_from_name(GetParam());
  const Recorded wanted = recorded(GetParam());
  ASSERT_EQ(byte_size(dtype, wanted.shape), wanted.blocks.size());
  std::vector<float> out(*element_count(wanted.shape));
  ASSERT_EQ(out.size() * sizeof(float), wanted.values.size());
  // One byte in, so that no load is aligned.
  const std::string shifted = "x" + wanted.blocks;
  const TensorView tensor{"recorded", dtype, wanted.shape, std::as_bytes(std::span(shifted)).subspan(1)};
  ASSERT_OK(decode_f32(tensor, 0, out));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, wanted.values.data() + i * sizeof(float), sizeof(bits));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), bits) << "value " << i << " is " << out[i];
  }
}

TEST_P(DecodesRecorded, AnyPartEqualsThatPartOfTheWhole) {
  const DType dtype = *dtype_from_name(GetParam());
  const Recorded wanted = recorded(GetParam());
  const TensorView tensor{"recorded", dtype, wanted.shape, std::as_bytes(std::span(wanted.blocks))};
  const std::size_t count = *element_count(wanted.shape), block = dtype_info(dtype).block_values;
  std::vector<float> whole(count);
  ASSERT_OK(decode_f32(tensor, 0, whole));
  for (const std::size_t begin :
       {std::size_t{0}, std::size_t{1}, block / 2 + 1, block - 1, block, 2 * block + 7}) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, block / 2, block, 2 * block + 3}) {
      if (begin + length > count) continue;
      std::vector<float> part(length + 1, 12345.0f);
      ASSERT_OK(decode_f32(tensor, begin, std::span(part).first(length)));
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin, length * sizeof(float)), 0)
          << begin << " + " << length;
      EXPECT_EQ(part[length], 12345.0f) << "wrote past the end";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DecodesRecorded,
                         ::testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K",
                                           "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ2_XXS", "IQ2_XS",
                                           "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
                         [](const auto& type) { return std::string(type.param); });

// The types without a recording: values worked out by hand from the layouts in blocks.h.

TEST(DecodeBlocks, MXFP4ScalesTheE2M1Values) {
  BlockMXFP4 block{.e = 127, .qs = {}};  // 2^0
  for (unsigned i = 0; i < 16; ++i) block.qs[i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
  const float e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const auto ones = decoded(DType::kMXFP4, block);
  for (unsigned i = 0; i < 16; ++i) {
    EXPECT_EQ(ones[i], e2m1[i]) << i;
    EXPECT_EQ(ones[i + 16], e2m1[15 - i]) << i;
  }
  EXPECT_FALSE(std::signbit(ones[8])) << "ggml decodes the code 8 to plus zero";
  for (int e : {0, 1, 2, 3, 200, 254}) {
    block.e = static_cast<std::uint8_t>(e);
    EXPECT_EQ(decoded(DType::kMXFP4, block)[2], std::ldexp(1.0f, e - 127)) << e;
  }
  block.e = 255;  // NaN for OCP, one more power of two for ggml
  EXPECT_EQ(decoded(DType::kMXFP4, block)[1], 0x1p127f);
}

TEST(DecodeBlocks, TQ2_0HasFourTritsAByteInQuarters) {
  BlockTQ2_0 block{};
  block.d = half(0.5f);
  block.qs[0] = 0b11'10'01'00;   // values 0, 32, 64, 96
  block.qs[33] = 0b00'01'10'10;  // values 129, 161, 193, 225
  const auto values = decoded(DType::kTQ2_0, block);
  EXPECT_EQ(values[0], -0.5f);
  EXPECT_EQ(values[32], 0.0f);
  EXPECT_EQ(values[64], 0.5f);
  EXPECT_EQ(values[96], 1.0f) << "a code that writers never make";
  EXPECT_EQ(values[129], 0.5f);
  EXPECT_EQ(values[161], 0.5f);
  EXPECT_EQ(values[193], 0.0f);
  EXPECT_EQ(values[225], -0.5f);
  EXPECT_EQ(values[1], -0.5f) << "all other codes are zero";
}

TEST(DecodeBlocks, TQ1_0HasFiveTritsAByte) {
  // A byte is the trits t0..t4 as a number in base 3 (t0 highest), of 243rds, in 256ths, rounded up.
  const auto pack = [](std::array<int, 5> trits) {
    int number = 0;
    for (const int trit : trits) number = 3 * number + trit + 1;
    return static_cast<std::uint8_t>((number * 256 + 242) / 243);
  };
  const std::array<int, 5> first = {-1, 0, 1, 1, 0}, second = {1, 1, -1, 0, 1};
  BlockTQ1_0 block{};
  block.d = half(2.0f);
  block.qs[3] = pack(first);
  block.qs[32 + 5] = pack(second);
  block.qh[2] = pack({0, -1, 1, 0, -1});
  const auto values = decoded(DType::kTQ1_0, block);
  for (std::size_t n = 0; n < 5; ++n) {
    EXPECT_EQ(values[32 * n + 3], 2.0f * static_cast<float>(first[n])) << n;
    EXPECT_EQ(values[160 + 16 * n + 5], 2.0f * static_cast<float>(second[n])) << n;
  }
  EXPECT_EQ(values[242], 0.0f);
  EXPECT_EQ(values[246], -2.0f);
  EXPECT_EQ(values[250], 2.0f);
  EXPECT_EQ(values[254], 0.0f);
  EXPECT_EQ(values[0], -2.0f) << "byte 0 is five trits of -1";
}

TEST(DecodeBlocks, IQ1_MSharesTheGridOfIQ1_SAndScattersItsScale) {
  BlockIQ1_M block{};
  // d = 1.0 is 0x3c00: its nibbles, lowest first, are the top four bits of the words of scales.
  const std::uint16_t words[4] = {0x0000 | 5 << 3, 0x0000, 0xc000, 0x3000 | 7 << 9};
  std::memcpy(block.scales, words, sizeof(words));
  block.qs[2] = 0x34;  // group 2 (values 16..23, scale 1 of word 0): index 0x534, shifted down
  block.qh[1] = 0x0 | 0xd;
  block.qs[31] = 0xff;  // group 31 (values 248..255, scale 3 of word 3): index 0x7ff, shifted up
  block.qh[15] = 0x70;
  const auto values = decoded(DType::kIQ1_M, block);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(values[16 + i], 11.0f * (static_cast<float>(kIQ1Grid[0x534][i]) - 0.125f)) << i;
    EXPECT_EQ(values[248 + i], 15.0f * (1.0f + 0.125f)) << "the last entry of the grid is all ones";
    EXPECT_EQ(values[i], -0.875f) << "the first entry is all minus ones";
  }
}

// Neighbours in the text of a grid must not have shifted: its landmarks.
TEST(IqGrids, RiseFromTheirLowestToTheirHighestEntry) {
  EXPECT_EQ(kIQ2XXSGrid.front(), (std::array<std::int8_t, 8>{8, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(kIQ2XXSGrid[1], (std::array<std::int8_t, 8>{43, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(kIQ2SGrid.back(), (std::array<std::int8_t, 8>{43, 43, 43, 43, 43, 43, 43, 43}));
  EXPECT_EQ(kIQ1Grid.front(), (std::array<std::int8_t, 8>{-1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(kIQ1Grid.back(), (std::array<std::int8_t, 8>{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(kIQ3XXSGrid.front(), (std::array<std::int8_t, 4>{4, 4, 4, 4}));
  EXPECT_EQ(kIQ3SGrid.front(), (std::array<std::int8_t, 4>{1, 1, 1, 1}));
}

TEST(Scales, PackedScalesReadBackAsWritten) {
  std::uint8_t q3[12] = {}, q4[12] = {};
  for (unsigned j = 0; j < 16; ++j) set_q3_k_scale(q3, j, j * 11 % 64);
  for (unsigned j = 0; j < 16; ++j) EXPECT_EQ(q3_k_scale(q3, j), j * 11 % 64) << j;
  for (unsigned j = 8; j-- > 0;) set_q4_k_scale(q4, j, {j * 29 % 64, (j * 53 + 7) % 64});
  for (unsigned j = 0; j < 8; ++j) {
    EXPECT_EQ(q4_k_scale(q4, j).scale, j * 29 % 64) << j;
    EXPECT_EQ(q4_k_scale(q4, j).min, (j * 53 + 7) % 64) << j;
  }
  set_q3_k_scale(q3, 5, 0);
  set_q3_k_scale(q3, 5, 63);
  set_q3_k_scale(q3, 5, 18);
  EXPECT_EQ(q3_k_scale(q3, 5), 18u);
  EXPECT_EQ(q3_k_scale(q3, 13), 13u * 11 % 64);
}

}  // namespace
}  // namespace doppler
