// GGUF files that lie: every count, length, offset, type and size that published vulnerabilities of other
// readers were about. Each ends in an error that names what is wrong.
#include <cstring>

#include "formats/gguf.h"
#include "testing.h"

namespace doppler {
namespace {

// A file put together by hand, number by number.
class Bytes {
 public:
  template <typename T>
  Bytes& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Bytes& u32(std::uint32_t value) { return put(value); }
  Bytes& u64(std::uint64_t value) { return put(value); }
  Bytes& raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  Bytes& string(std::string_view text) { return u64(text.size()).raw(text); }
  Bytes& header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(keys);
  }
  Bytes& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                std::uint64_t offset) {
    string(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  Bytes& pad(std::size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  Bytes& data(std::size_t bytes) {
    text_.resize(text_.size() + bytes);
    return *this;
  }
  std::string& text() { return text_; }
  Result<GgufFile> parse() const { return parse_gguf(std::as_bytes(std::span(text_)), "The file x"); }

 private:
  std::string text_;
};

constexpr std::uint32_t kU32 = 4, kF32Value = 6, kString = 8, kArray = 9;  // of values
constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2;                     // of tensors

TEST(HostileGguf, TheHandmadeFileIsGood) {
  Bytes good;
  good.header(1, 1).string("k").u32(kU32).u32(7).tensor("t", {4, 2}, kF32, 0).pad().data(32);
  ASSERT_OK_AND_ASSIGN(const GgufFile file, good.parse());
  EXPECT_EQ(file.metadata.get_uint("k").value(), 7u);
  EXPECT_EQ(file.tensors.find("t")->shape, (Shape{2, 4}));
}

TEST(HostileGguf, EveryTruncationOfAGoodFileIsAnError) {
  Bytes good;
  good.header(2, 3).string("k").u32(kU32).u32(7).string("s").u32(kString).string("text");
  good.string("a").u32(kArray).u32(kString).u64(2).string("one").string("two");
  good.tensor("t", {4}, kF32, 0).tensor("u", {32, 2}, kQ4_0, 32).pad().data(32 + 36);
  ASSERT_OK(good.parse());
  const std::string whole = good.text();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    const auto parsed = parse_gguf(std::as_bytes(std::span(part)), "The file x");
    ASSERT_FALSE(parsed.has_value()) << size << " bytes of " << whole.size();
    EXPECT_TRUE(parsed.error().code == ErrorCode::kCorrupt || size < 8) << parsed.error().message;
  }
}

TEST(HostileGguf, OtherMagicsAndVersionsSayWhatTheyAre) {
  EXPECT_ERROR(Bytes().raw("").parse(), "4 bytes for the magic");
  EXPECT_ERROR(Bytes().raw("PK\3\4....").parse(), "begins with \"PK", "GGUF");
  EXPECT_ERROR(Bytes().raw("tjgg....").parse(), "before GGUF");
  EXPECT_ERROR(Bytes().header(0, 0, 1).parse(), "version 1", "reads 2 and 3");
  EXPECT_ERROR(Bytes().header(0, 0, 4).parse(), "version 4");
  EXPECT_ERROR(Bytes().header(0, 0, 0x03000000).parse(), "big-endian");
  ASSERT_OK(Bytes().header(0, 0, 2).parse());
}

TEST(HostileGguf, CountsMustFitTheFile) {
  EXPECT_ERROR(Bytes().header(0, UINT64_MAX).parse(), "the key count = 18446744073709551615", "0 more");
  EXPECT_ERROR(Bytes().header(UINT64_MAX, 0).parse(), "the tensor count = 18446744073709551615");
  EXPECT_ERROR(Bytes().header(0, 3).data(28).parse(), "the key count = 3");
  EXPECT_ERROR(Bytes().header(1ull << 61, 0).data(100).parse(), "the tensor count");
}

TEST(HostileGguf, KeysAndStringsMustFitTheFile) {
  EXPECT_ERROR(Bytes().header(0, 1).u64(UINT64_MAX).data(50).parse(), "18446744073709551615 bytes for a key");
  EXPECT_ERROR(Bytes().header(0, 1).u64(0).data(50).parse(), "a key of 0 bytes");
  EXPECT_ERROR(Bytes().header(0, 1).string(std::string(65536, 'k')).data(50).parse(), "a key of 65536 bytes");
  EXPECT_ERROR(Bytes().header(0, 1).string("k").u32(kString).u64(1ull << 63).data(50).parse(), "the key k");
  EXPECT_ERROR(Bytes().header(0, 1).string("k").u32(13).data(50).parse(), "the key k", "type number 13");
  EXPECT_ERROR(Bytes().header(0, 1).string("k").u32(UINT32_MAX).data(50).parse(), "type number 4294967295");
}

TEST(HostileGguf, ListsMustFitTheFile) {
  const auto list = [](std::uint32_t type, std::uint64_t count) {
    return Bytes().header(0, 1).string("k").u32(kArray).u32(type).u64(count).data(64).parse();
  };
  EXPECT_ERROR(list(kF32Value, 17), "68 bytes for the key k", "64 more");
  EXPECT_ERROR(list(kF32Value, 1ull << 62), "the key k");  // four times the count wraps to 0
  EXPECT_ERROR(list(10, 1ull << 61), "the key k");         // eight times the count wraps to 0
  EXPECT_ERROR(list(kString, 9), "the key k");
  EXPECT_ERROR(list(kString, UINT64_MAX), "the key k");
  EXPECT_ERROR(list(99, 1), "type number 99");
  ASSERT_OK(list(kF32Value, 0));
}

TEST(HostileGguf, NestedListsAreWalkedWithoutRecursion) {
  const auto nested = [](std::size_t depth, std::uint64_t count) {
    Bytes file;
    file.header(0, 1).string("k").u32(kArray);
    for (std::size_t i = 0; i + 1 < depth; ++i) file.u32(kArray).u64(count);
    return file.u32(kU32).u64(1).u32(7).parse();
  };
  ASSERT_OK(nested(2, 1));
  ASSERT_OK(nested(5, 1));
  EXPECT_ERROR(nested(6, 1), "more than 4 deep");
  EXPECT_ERROR(nested(100'000, 1), "more than 4 deep");
  EXPECT_ERROR(nested(2, 2), "the key k");  // the second inner list is missing
  EXPECT_ERROR(nested(2, UINT64_MAX), "the key k");
  // Two inner lists, then another key: the walk ends where the list does.
  Bytes two;
  two.header(0, 2)
      .string("k")
      .u32(kArray)
      .u32(kArray)
      .u64(2)
      .u32(kU32)
      .u64(1)
      .u32(1)
      .u32(kString)
      .u64(1)
      .string("x");
  two.string("after").u32(kU32).u32(9);
  ASSERT_OK_AND_ASSIGN(const GgufFile file, two.parse());
  EXPECT_EQ(file.metadata.get_uint("after").value(), 9u);
  ASSERT_OK_AND_ASSIGN(const auto list, file.metadata.get_array("k"));
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->size(), 2u);
  EXPECT_ERROR(list->ints(), "array");
  EXPECT_ERROR(list->strings(), "array");
}

TEST(HostileGguf, DuplicatesAreErrors) {
  EXPECT_ERROR(Bytes().header(0, 2).string("k").u32(kU32).u32(1).string("k").u32(kU32).u32(2).parse(),
               "the key k twice");
  EXPECT_ERROR(
      Bytes().header(2, 0).tensor("t", {4}, kF32, 0).tensor("t", {4}, kF32, 32).pad().data(64).parse(),
      "two tensors named t");
}

TEST(HostileGguf, AlignmentsMustBePowersOfTwo) {
  const auto aligned = [](std::uint32_t alignment, std::uint64_t offset = 0) {
    Bytes file;
    file.header(1, 1).string("general.alignment").u32(kU32).u32(alignment).tensor("t", {4}, kF32, offset);
    return file.pad(alignment == 0 ? 1 : std::min<std::uint32_t>(alignment, 4096)).data(64).parse();
  };
  ASSERT_OK(aligned(1));
  ASSERT_OK(aligned(4096));
  EXPECT_ERROR(aligned(0), "general.alignment = 0", "power of two");
  EXPECT_ERROR(aligned(48), "general.alignment = 48");
  EXPECT_ERROR(aligned(1u << 31), "general.alignment = 2147483648");
  EXPECT_ERROR(aligned(1u << 30), "tensor t", "needs 16 bytes");  // the padding alone is longer than the file
  EXPECT_ERROR(aligned(32, 16), "tensor t", "byte 16", "no multiple of the alignment 32");
  EXPECT_ERROR(Bytes().header(0, 1).string("general.alignment").u32(kString).string("32").parse(),
               "general.alignment", "string");
}

TEST(HostileGguf, TensorsOfOddAlignmentAreCopiedWhenOpened) {
  const testing::TempDir dir;
  Bytes file;
  file.header(2, 1).string("general.alignment").u32(kU32).u32(1);
  file.tensor("b", {1}, 24, 0).tensor("t", {1}, kF32, 1);
  const float value = 1.5f;
  file.data(1).put(value);
  testing::write_file(dir / "x.gguf", file.text());
  ASSERT_OK_AND_ASSIGN(const GgufFile opened, open_gguf(dir / "x.gguf"));
  EXPECT_TRUE(aligned(*opened.tensors.find("t")));
  float read = 0;
  ASSERT_OK(decode_f32(*opened.tensors.find("t"), 0, std::span(&read, 1)));
  EXPECT_EQ(read, value);
}

TEST(HostileGguf, DimensionsMustGiveASize) {
  const auto shaped = [](std::vector<std::uint64_t> dims, std::uint32_t type = kF32) {
    return Bytes().header(1, 0).tensor("t", std::move(dims), type, 0).pad().data(64).parse();
  };
  ASSERT_OK(shaped({2, 2, 2, 2}));
  EXPECT_ERROR(shaped({1, 1, 1, 1, 1}), "the tensor t 5 dimensions", "at most 4");
  EXPECT_ERROR(Bytes().header(1, 0).string("t").u32(UINT32_MAX).data(64).parse(), "4294967295 dimensions");
  EXPECT_ERROR(shaped({0}), "tensor t", "no size");
  EXPECT_ERROR(shaped({4, 0, UINT64_MAX}), "tensor t", "no size");
  EXPECT_ERROR(shaped({1ull << 32, 1ull << 32}), "no size");  // the product wraps to 0
  EXPECT_ERROR(shaped({1ull << 62}), "no size");              // four bytes each wrap to 0
  EXPECT_ERROR(shaped({UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}), "no size");
  EXPECT_ERROR(shaped({1ull << 61}), "tensor t", "needs 9223372036854775808 bytes");
  EXPECT_ERROR(shaped({16, 2}, kQ4_0), "rows end inside a block of 32");  // rows end inside a block
  ASSERT_OK(shaped({32, 2}, kQ4_0));
}

TEST(HostileGguf, TensorTypesMustExist) {
  const auto typed = [](std::uint32_t type) {
    return Bytes().header(1, 0).tensor("t", {256}, type, 0).pad().data(4096).parse();
  };
  EXPECT_ERROR(typed(4), "tensor t", "Q4_2", "dropped");
  EXPECT_ERROR(typed(33), "Q4_0_8_8", "dropped");
  EXPECT_ERROR(typed(9), "Q8_1", "never stores");
  EXPECT_ERROR(typed(40), "NVFP4", "does not read");
  EXPECT_ERROR(typed(41), "type number 41", "no type");
  EXPECT_ERROR(typed(UINT32_MAX), "type number 4294967295");
  EXPECT_EQ(typed(4).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(typed(41).error().code, ErrorCode::kCorrupt);
  for (std::uint32_t id = 0; id < 64; ++id) {
    const auto parsed = typed(id);
    if (!parsed) continue;
    EXPECT_EQ(gguf_id(parsed->tensors.find("t")->dtype), id);
  }
}

TEST(HostileGguf, TensorsLieApartAndInsideTheFile) {
  const auto placed = [](std::uint64_t first, std::uint64_t second, std::size_t data = 96) {
    return Bytes()
        .header(2, 0)
        .tensor("t", {10}, kF32, first)
        .tensor("u", {20}, kF16, second)
        .pad()
        .data(data)
        .parse();
  };
  ASSERT_OK(placed(0, 64, 104));
  ASSERT_OK(placed(64, 0, 104));
  EXPECT_ERROR(placed(0, 32), "tensors t and u", "overlap at byte 32");
  EXPECT_ERROR(placed(0, 0), "overlap at byte 0");
  EXPECT_ERROR(placed(0, 64), "tensor u", "needs 40 bytes from byte 64", "holds 32 there");
  EXPECT_ERROR(placed(0, 1ull << 40), "tensor u", "holds 0 there");
  EXPECT_ERROR(placed(0, UINT64_MAX - 31), "tensor u");  // offset and size wrap to a small number
  EXPECT_ERROR(placed(0, 33), "tensor u", "byte 33", "alignment 32");
  EXPECT_ERROR(Bytes().header(1, 0).tensor("", {4}, kF32, 0).pad().data(64).parse(), "without a name");
}

TEST(HostileGguf, NamesAreShownSafelyAndAtMostInPart) {
  const auto parsed = Bytes().header(1, 0).tensor("\x1b[31m\n" + std::string(5000, 'x'), {0}, 0, 0).parse();
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().message.find('\x1b'), std::string::npos);
  EXPECT_LT(parsed.error().message.size(), 600u);
}

}  // namespace
}  // namespace doppler
