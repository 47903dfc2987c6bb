// Every rule of the safetensors specification, kept and broken.
#include "formats/safetensors.h"
#include "formats/safetensors_header.h"

#include <cstring>

#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

// A file of that header and that many data bytes 0, 1, 2 …
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

Status parse(const std::string& bytes, TensorStore& store) {
  return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())), "The file m", store);
}

// The error of a file of that header and data.
Status parsed(const std::string& header, std::size_t data_bytes = 0) {
  TensorStore store;
  return parse(file_of(header, data_bytes), store);
}

TEST(Safetensors, ReadsTensorsInAnyOrderOfTheHeader) {
  const std::string bytes =
      file_of("{" + entry("b", "U8", "[2,2]", 8, 12) + "," + entry("a", "F32", "[2]", 0, 8) + "," +
                  entry("scalar", "I16", "[]", 12, 14) + "," + entry("empty", "F32", "[3,0]", 14, 14) +
                  ",\"__metadata__\":{\"format\":\"pt\",\"é\":\"\"}}   ",
              14);
  TensorStore store;
  ASSERT_OK(parse(bytes, store));
  ASSERT_EQ(store.tensors().size(), 4u);
  const TensorView* b = store.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kU8);
  EXPECT_EQ(b->shape, (Shape{2, 2}));
  ASSERT_EQ(b->data.size(), 4u);
  EXPECT_EQ(b->data[0], std::byte{8});
  EXPECT_EQ(store.find("scalar")->shape, Shape{});
  EXPECT_EQ(store.find("empty")->data.size(), 0u);
  EXPECT_EQ(store.find("empty")->rows(), 3u);
  EXPECT_EQ(store.total_bytes(), 14u);
  EXPECT_EQ(store.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"é", ""}}));
}

TEST(Safetensors, ReadsEveryTypeOfTheFormat) {
  for (const DTypeInfo& info : all_dtypes()) {
    if (is_quantised(info.type)) continue;
    const std::size_t size = *byte_size(info.type, {4});
    TensorStore store;
    ASSERT_OK(parse(file_of("{" + entry("t", std::string(info.name), "[4]", 0, size) + "}", size), store));
    EXPECT_EQ(store.find("t")->dtype, info.type);
  }
}

TEST(Safetensors, BlockTypesBelongToGguf) {
  for (const DTypeInfo& info : all_dtypes()) {
    if (!is_quantised(info.type)) continue;
    const std::size_t size = *byte_size(info.type, {256});
    const std::string header = "{" + entry("t", std::string(info.name), "[256]", 0, size) + "}";
    EXPECT_ERROR(parsed(header, size), "tensor t", std::string(info.name).c_str(), "does not know");
    EXPECT_ERROR(format_safetensors_header({.entries = {{"t", info.type, {256}, 0, size}}}), "tensor t",
                 "BF16");
  }
}

TEST(Safetensors, AFileWithoutTensorsIsAFile) {
  EXPECT_TRUE(parsed("{}").has_value());
  EXPECT_TRUE(parsed("{\"__metadata__\":{}}").has_value());
}

TEST(Safetensors, LengthsThatCannotBeAreErrors) {
  TensorStore store;
  EXPECT_ERROR(parse("", store), "The file m holds 0 bytes", "the 8 of");
  EXPECT_ERROR(parse("\1\0\0", store), "fewer than the 8");
  EXPECT_ERROR(parse(file_of("{}", 0).substr(0, 9), store), "header of 2 bytes", "holds 1 more",
               "Download it again");
  EXPECT_ERROR(parse(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), store), "100000001 bytes",
               "more than the 100000000");
  EXPECT_ERROR(parse(std::string(8, '\xff') + "{}", store), "18446744073709551615");
  EXPECT_ERROR(parse(std::string("GGUF\3\0\0\0\0\0\0\0", 12), store), "Check that it is a safetensors file");
}

TEST(Safetensors, TheHeaderBeginsWithABraceAndIsOneObject) {
  EXPECT_ERROR(parsed(""), "begins with \"\"", "brace");
  EXPECT_ERROR(parsed(" {}"), "begins with \" {}\"");
  EXPECT_ERROR(parsed("\xef\xbb\xbf{}"), "brace");
  EXPECT_ERROR(parsed("[]"), "brace");
  EXPECT_ERROR(parsed("{} x"), "header of the file m", "not valid JSON", "near \"x\"");
  EXPECT_ERROR(parsed("{}{}"), "not valid JSON");
  EXPECT_ERROR(parsed("{"), "not valid JSON");
  EXPECT_ERROR(parsed(std::string("{}\0\0", 4)), "not valid JSON");
  EXPECT_ERROR(parsed("{\"a\xff\":{}}"), "not valid JSON", "\\xff");
  EXPECT_ERROR(parsed("{/**/}"), "not valid JSON");
}

TEST(Safetensors, EntriesAreExactlyTypeShapeAndOffsets) {
  EXPECT_ERROR(parsed("{\"t\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4), "tensor t", "no dtype");
  EXPECT_ERROR(parsed("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4), "tensor t", "no shape");
  EXPECT_ERROR(parsed("{\"t\":{\"dtype\":\"F32\",\"shape\":[]}}", 4), "tensor t", "no data_offsets");
  EXPECT_ERROR(parsed("{\"t\":{}}"), "tensor t", "no dtype");
  EXPECT_ERROR(parsed("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"strides\":[1]}}", 4),
               "tensor t", "key strides");
  EXPECT_ERROR(parsed("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4,8]}}", 4), "tensor t",
               "more than two numbers");
  EXPECT_ERROR(parsed("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4), "tensor t",
               "not two numbers");
}

TEST(Safetensors, EntriesOfTheWrongKindAreErrors) {
  for (const char* value : {"7", "null", "\"F32\"", "[]", "true", "1.5"}) {
    EXPECT_ERROR(parsed(std::string("{\"t\":") + value + "}"), "the entry t", "format allows none");
  }
  for (const char* dtype : {"32", "null", "[\"F32\"]", "{}", "false"}) {
    EXPECT_ERROR(parsed(std::string("{\"t\":{\"dtype\":") + dtype + "}}"), "the tensor t",
                 "format allows none");
  }
  for (const char* shape : {"4", "\"4\"", "{}", "null", "[\"4\"]", "[-1]", "[-0]", "[1.5]", "[4.0]", "[null]",
                            "[[4]]", "[1e2]", "[18446744073709551616]", "[true]"}) {
    EXPECT_ERROR(parsed(std::string("{\"t\":{\"shape\":") + shape + "}}"), "the tensor t",
                 "format allows none");
  }
  for (const char* offsets : {"0", "[-1,0]", "[0.0,4]", "[\"0\",4]", "[[0,4]]", "{}"}) {
    EXPECT_ERROR(parsed(std::string("{\"t\":{\"data_offsets\":") + offsets + "}}"), "the tensor t",
                 "format allows none");
  }
}

TEST(Safetensors, DuplicateKeysAreErrorsAtEveryLevel) {
  EXPECT_ERROR(parsed("{" + entry("t", "U8", "[1]", 0, 1) + "," + entry("t", "U8", "[1]", 1, 2) + "}", 2),
               "tensor t twice");
  EXPECT_ERROR(parsed("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1),
               "tensor t", "dtype twice");
  EXPECT_ERROR(parsed("{\"t\":{\"shape\":[1],\"shape\":[2]}}"), "shape twice");
  EXPECT_ERROR(parsed("{\"__metadata__\":{},\"__metadata__\":{}}"), "__metadata__ twice");
  EXPECT_ERROR(parsed("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}"), "__metadata__ entry a twice");
  EXPECT_ERROR(
      parsed("{" + entry("t", "U8", "[1]", 0, 1) + "," + entry("\\u0074", "U8", "[1]", 1, 2) + "}", 2),
      "tensor t twice");
}

TEST(Safetensors, MetadataIsTextToText) {
  EXPECT_ERROR(parsed("{\"__metadata__\":{\"step\":7}}"), "7 in the __metadata__ entry step");
  EXPECT_ERROR(parsed("{\"__metadata__\":{\"a\":null}}"), "null in the __metadata__ entry a");
  EXPECT_ERROR(parsed("{\"__metadata__\":{\"a\":{}}}"), "an object in the __metadata__ entry a");
  EXPECT_ERROR(parsed("{\"__metadata__\":[]}"), "a list in the entry __metadata__");
  EXPECT_ERROR(parsed("{\"__metadata__\":null}"), "null in the entry __metadata__");
}

TEST(Safetensors, UnknownTypesAreUnsupported) {
  const Status status = parsed("{" + entry("blk.0", "Q4_0", "[32]", 0, 18) + "}", 18);
  EXPECT_ERROR(status, "tensor blk.0", "type Q4_0");
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

TEST(Safetensors, SizesMustAgreeWithTypeAndShape) {
  EXPECT_ERROR(parsed("{" + entry("t", "BF16", "[3,4]", 0, 16) + "}", 16), "tensor t (BF16, 3 x 4)",
               "needs 24 bytes", "0 to 16 hold 16");
  EXPECT_ERROR(parsed("{" + entry("t", "F32", "[]", 0, 0) + "}", 0), "tensor t (F32, scalar)",
               "needs 4 bytes");
  EXPECT_ERROR(parsed("{" + entry("t", "F32", "[0]", 0, 4) + "}", 4), "needs 0 bytes");
  EXPECT_ERROR(parsed("{" + entry("t", "F4", "[3]", 0, 2) + "}", 2), "tensor t (F4, 3)", "whole bytes");
  EXPECT_ERROR(parsed("{" + entry("t", "F64", "[2305843009213693952]", 0, 0) + "}", 0), "2^64");
  EXPECT_ERROR(parsed("{" + entry("t", "U8", "[4294967296,4294967296]", 0, 0) + "}", 0), "2^64");
}

TEST(Safetensors, TheDataIsCoveredOnceAndWholly) {
  EXPECT_ERROR(parsed("{" + entry("t", "U8", "[4]", 4, 0) + "}", 4), "begins at byte 4 but ends at byte 0");
  EXPECT_ERROR(parsed("{" + entry("t", "U8", "[4]", 0, 4) + "}", 3), "tensor t", "ends at byte 4", "holds 3");
  EXPECT_ERROR(
      parsed("{" + entry("t", "U8", "[4]", 18446744073709551611ull, 18446744073709551615ull) + "}", 4),
      "ends at byte 18446744073709551615");
  EXPECT_ERROR(parsed("{" + entry("t", "U8", "[4]", 0, 4) + "}", 5), "holds 5 bytes of data", "cover 4");
  EXPECT_ERROR(parsed("{}", 1), "holds 1 bytes of data", "cover 0");
  EXPECT_ERROR(parsed("{" + entry("t", "U8", "[4]", 1, 5) + "}", 5), "hole of 1 bytes before the tensor t");
  EXPECT_ERROR(parsed("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "U8", "[4]", 3, 7) + "}", 7),
               "tensors a and b", "overlap at byte 3");
  EXPECT_ERROR(parsed("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "U8", "[4]", 0, 4) + "}", 4),
               "overlap");
  EXPECT_ERROR(parsed("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("e", "U8", "[0]", 2, 2) + "}", 4),
               "overlap");
}

TEST(Safetensors, NamesAreShownSafelyAndAtMostInPart) {
  const Status status =
      parsed("{" + entry("\\u001b[31m" + std::string(1000, 'x'), "U8", "[4]", 0, 3) + "}", 3);
  EXPECT_ERROR(status, "\\x1b[31m", "…");
  EXPECT_LT(status.error().message.size(), 400u);
}

TEST(Safetensors, NestingAndRankAreBounded) {
  EXPECT_ERROR(parsed(std::string(500'000, '{')), "not valid JSON");
  EXPECT_ERROR(parsed("{\"t\":" + std::string(500'000, '[')), "a list in the entry t");
  std::string shape = "[1";
  for (int i = 0; i < 64; ++i) shape += ",1";
  EXPECT_ERROR(parsed("{" + entry("t", "U8", shape + "]", 0, 1) + "}", 1), "more than 64 dimensions");
}

TEST(Safetensors, EveryTruncationOfARealFileIsAnError) {
  const std::string whole = read_file(data_path("models/llama/model.safetensors"));
  const std::uint64_t header_end = [&] {
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), 8);
    return length + 8;
  }();
  TensorStore complete;
  ASSERT_OK(parse(whole, complete));
  for (std::size_t size = 0; size < whole.size(); size += size < header_end + 16 ? 1 : 4099) {
    TensorStore store;
    const Status status = parse(whole.substr(0, size), store);
    ASSERT_FALSE(status.has_value()) << size;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Safetensors, MisalignedTensorsAreAlignedWhenOpened) {
  TempDir dir;
  // The U8 tensor moves the floats behind it to odd addresses.
  write_file(dir / "m.safetensors",
             file_of("{" + entry("a", "U8", "[3]", 0, 3) + "," + entry("b", "F32", "[2]", 3, 11) + "}", 11));
  TensorStore copy;
  {
    ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(dir / "m.safetensors"));
    EXPECT_EQ(store.copied_bytes(), 8u);
    copy = store;
  }
  const TensorView* b = copy.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_TRUE(aligned(*b));
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(b->data[i], std::byte(3 + i));
  for (const char* family : {"llama", "gemma3"}) {
    ASSERT_OK_AND_ASSIGN(const TensorStore store,
                         open_safetensors(data_path("models") / family / "model.safetensors"));
    EXPECT_EQ(store.copied_bytes(), 0u) << "a well-made file is only mapped";
  }
}

TEST(Safetensors, OpeningNamesTheFile) {
  TempDir dir;
  write_file(dir / "short.safetensors", "abc");
  EXPECT_ERROR(open_safetensors(dir / "short.safetensors"), "short.safetensors", "holds 3 bytes");
  EXPECT_EQ(open_safetensors(dir / "none.safetensors").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(open_safetensors(dir.path()).error().code, ErrorCode::kIo);
}

TEST(TensorStore, MergingTwoOfOneNameIsAnError) {
  TensorStore one, two;
  ASSERT_OK(one.add({"w", DType::kU8, {0}, {}}));
  ASSERT_OK(two.add({"w", DType::kU8, {0}, {}}));
  EXPECT_ERROR(one.add({"w", DType::kF32, {0}, {}}), "two tensors named w");
  EXPECT_EQ(one.find("w")->dtype, DType::kU8) << "the first stays";
  EXPECT_ERROR(one.merge(two), "two tensors named w");
}

}  // namespace
}  // namespace doppler
