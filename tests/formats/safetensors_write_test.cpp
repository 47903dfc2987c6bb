// What is written can be read again, appears whole or not at all, and bad requests are refused.
#include <cstring>

#include "formats/safetensors.h"
#include "tensors.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::read_file;
using testing::TempDir;

bool is_empty(const TempDir& dir) {
  return std::filesystem::is_empty(dir.path());
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(SafetensorsWriter, WritesTheSameBytesEachTimeWithAlignedData) {
  TempDir dir;
  const std::vector<TensorView> tensors = {{"z.first", DType::kU8, {2, 2}, bytes_of("abcd")},
                                           {"a \"second\" é", DType::kBF16, {}, bytes_of("ef")}};
  ASSERT_OK(testing::write_tensors(dir / "a", tensors, {{"format", "pt"}, {"b", "\n"}}));
  const std::string bytes = read_file(dir / "a");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(bytes.substr(8 + length), "abcdef");
  EXPECT_TRUE(bytes.substr(8, length).starts_with(
      "{\"__metadata__\":{\"b\":\"\\n\",\"format\":\"pt\"},\"z.first\":{\"dtype\":\"U8\",\"shape\":[2,2],"
      "\"data_offsets\":[0,4]},"
      "\"a \\\"second\\\" é\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[4,6]}}"));
  ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(dir / "a"));
  EXPECT_EQ(store.metadata().at("b"), "\n");
  EXPECT_NE(store.find("a \"second\" é"), nullptr);
}

TEST(SafetensorsWriter, DataIsAlignedWhateverTheHeadersLength) {
  TempDir dir;
  for (std::size_t length = 1; length <= 8; ++length) {
    const std::vector<TensorView> tensors = {
        {std::string(length, 'n'), DType::kF64, {1}, bytes_of("12345678")}};
    ASSERT_OK(testing::write_tensors(dir / "a", tensors));
    ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(dir / "a"));
    EXPECT_EQ(store.copied_bytes(), 0u) << length;
  }
}

TEST(SafetensorsWriter, AnEmptyFileIsAFile) {
  TempDir dir;
  ASSERT_OK(testing::write_tensors(dir / "a", {}));
  ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(dir / "a"));
  EXPECT_TRUE(store.tensors().empty());
}

TEST(SafetensorsWriter, StreamsPiecesOfAnySize) {
  TempDir dir;
  const SafetensorsWriter::Entry entries[] = {{"a", DType::kF32, {3}}, {"b", DType::kU8, {5}}};
  ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(dir / "a", entries));
  const std::string data = "0123456789abcdefg";
  for (std::size_t i = 0; i < data.size(); i += 5)
    ASSERT_OK(writer.write(bytes_of(std::string_view(data).substr(i, 5))));
  EXPECT_TRUE(std::filesystem::exists(dir / "a") == false);
  ASSERT_OK(writer.finish());
  ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(dir / "a"));
  EXPECT_EQ(std::memcmp(store.find("b")->data.data(), "cdefg", 5), 0);
}

TEST(SafetensorsWriter, TooFewOrTooManyBytesLeaveNoFile) {
  TempDir dir;
  const SafetensorsWriter::Entry entries[] = {{"a", DType::kU8, {4}}};
  {
    ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(dir / "a", entries));
    EXPECT_ERROR(writer.write(bytes_of("12345")), "take 4 bytes but 5 come");
    ASSERT_OK(writer.write(bytes_of("123")));
    EXPECT_ERROR(writer.finish(), "take 4 bytes but only 3 came");
  }
  EXPECT_TRUE(is_empty(dir));
}

TEST(SafetensorsWriter, NamesAndShapesThatCannotBeStoredAreRefused) {
  TempDir dir;
  const auto refused = [&](std::vector<SafetensorsWriter::Entry> entries,
                           std::map<std::string, std::string> metadata = {}) {
    return SafetensorsWriter::create(dir / "a", entries, metadata);
  };
  EXPECT_ERROR(refused({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}), "name a", "used twice");
  EXPECT_ERROR(refused({{"__metadata__", DType::kU8, {1}}}), "__metadata__", "reserved");
  EXPECT_ERROR(refused({{"\xff", DType::kU8, {1}}}), "\\xff", "UTF-8");
  EXPECT_ERROR(refused({}, {{"key", "\xff"}}), "\\xff", "UTF-8");
  EXPECT_ERROR(refused({{"a", DType::kF4E2M1, {3}}}), "tensor a (F4, 3)", "whole bytes");
  EXPECT_ERROR(refused({{"a", DType::kU8, {1ull << 63}}, {"b", DType::kU8, {1ull << 63}}}), "tensor b",
               "2^64");
  EXPECT_TRUE(is_empty(dir));
}

}  // namespace
}  // namespace doppler
