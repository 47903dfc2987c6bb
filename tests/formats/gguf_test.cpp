// GGUF files as llama.cpp writes them, and as our writer does, read back.
#include "formats/gguf.h"

#include <cstring>
#include <limits>

#include "formats/gguf_writer.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::TempDir;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Gguf, WhatTheWriterWritesTheReaderReads) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "x.gguf"));
  ASSERT_OK(writer.add<std::string_view>("general.architecture", "llama"));
  ASSERT_OK(writer.add<std::uint8_t>("u8", 200));
  ASSERT_OK(writer.add<std::int8_t>("i8", -3));
  ASSERT_OK(writer.add<std::uint16_t>("u16", 60000));
  ASSERT_OK(writer.add<std::int16_t>("i16", -300));
  ASSERT_OK(writer.add<std::uint32_t>("u32", 4000000000));
  ASSERT_OK(writer.add<std::int32_t>("i32", -70000));
  ASSERT_OK(writer.add<std::uint64_t>("u64", UINT64_MAX));
  ASSERT_OK(writer.add<std::int64_t>("i64", INT64_MIN));
  ASSERT_OK(writer.add<float>("f32", 0.5f));
  ASSERT_OK(writer.add<double>("f64", 0.1));
  ASSERT_OK(writer.add<bool>("yes", true));
  ASSERT_OK(writer.add_strings("words", std::vector<std::string>{"", "one", "zwei"}));
  ASSERT_OK(writer.add_array<float>("scores", std::vector<float>{-1, 0, 2.5}));
  ASSERT_OK(writer.add_array<std::int16_t>("types", std::vector<std::int16_t>{-1, 3}));
  ASSERT_OK(writer.add_bools("pattern", {true, false, true}));
  ASSERT_OK(writer.declare_tensor("a", DType::kF16, {3, 5}));
  ASSERT_OK(writer.declare_tensor("b", DType::kQ8_0, {2, 3, 32}));
  ASSERT_OK(writer.write_header());
  const std::string a(30, 'a'), b(6 * 34, 'b');
  ASSERT_OK(writer.write_tensor_data(bytes_of((a + b).substr(0, 7))));  // pieces may cross tensors
  ASSERT_OK(writer.write_tensor_data(bytes_of((a + b).substr(7))));
  EXPECT_FALSE(std::filesystem::exists(dir / "x.gguf"));
  ASSERT_OK(writer.finish());

  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(dir / "x.gguf"));
  EXPECT_EQ(file.version, 3u);
  EXPECT_EQ(file.alignment, 32u);
  const GgufMetadata& m = file.metadata;
  EXPECT_EQ(m.entries().size(), 16u);
  EXPECT_EQ(m.entries()[0].key, "general.architecture");
  EXPECT_EQ(m.get_string("general.architecture").value(), "llama");
  EXPECT_EQ(m.get_uint("u8").value(), 200u);
  EXPECT_EQ(m.get_int("i8").value(), -3);
  EXPECT_EQ(m.get_uint("u16").value(), 60000u);
  EXPECT_EQ(m.get_int("i16").value(), -300);
  EXPECT_EQ(m.get_int("u32").value(), 4000000000);
  EXPECT_EQ(m.get_number("i32").value(), -70000.0);
  EXPECT_EQ(m.get_uint("u64").value(), UINT64_MAX);
  EXPECT_EQ(m.get_int("i64").value(), INT64_MIN);
  EXPECT_EQ(m.get_number("f32").value(), 0.5);
  EXPECT_EQ(m.get_number("f64").value(), 0.1);
  EXPECT_EQ(m.get_bool("yes").value(), true);
  EXPECT_EQ(m.get_bool("absent").value(), std::nullopt);
  EXPECT_EQ(m.get_array("words").value()->strings().value(),
            (std::vector<std::string_view>{"", "one", "zwei"}));
  EXPECT_EQ(m.get_array("scores").value()->floats().value(), (std::vector<float>{-1, 0, 2.5}));
  EXPECT_EQ(m.get_array("types").value()->ints().value(), (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(m.get_array("pattern").value()->bools().value(), (std::vector<bool>{true, false, true}));
  ASSERT_EQ(file.tensors.tensors().size(), 2u);
  const TensorView& second = *file.tensors.find("b");
  EXPECT_EQ(second.shape, (Shape{2, 3, 32}));
  EXPECT_EQ(second.dtype, DType::kQ8_0);
  EXPECT_EQ(std::memcmp(second.data.data(), b.data(), b.size()), 0);
  EXPECT_EQ(std::memcmp(file.tensors.find("a")->data.data(), a.data(), a.size()), 0);
}

TEST(Gguf, WrongTypesAreErrorsAtTheAccessor) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "x.gguf"));
  ASSERT_OK(writer.add<std::int32_t>("minus", -1));
  ASSERT_OK(writer.add<std::uint64_t>("wide", UINT64_MAX));
  ASSERT_OK(writer.add<float>("nan", std::numeric_limits<float>::quiet_NaN()));
  ASSERT_OK(writer.add<std::string_view>("text", "3"));
  ASSERT_OK(writer.add_array<std::uint8_t>("bytes", std::vector<std::uint8_t>{1, 2}));
  ASSERT_OK(writer.add_array<std::uint64_t>("wides", std::vector<std::uint64_t>{1, UINT64_MAX}));
  ASSERT_OK(writer.finish());
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(dir / "x.gguf"));
  const GgufMetadata& m = file.metadata;
  EXPECT_ERROR(m.get_uint("minus"), "gguf: minus = -1", "i32");
  EXPECT_ERROR(m.get_int("wide"), "gguf: wide = 18446744073709551615");
  EXPECT_ERROR(m.get_number("nan"), "gguf: nan = nan");
  EXPECT_ERROR(m.get_uint("text"), "gguf: text = \"3\"", "string");
  EXPECT_ERROR(m.get_bool("minus"), "i32", "true or false");
  EXPECT_ERROR(m.get_string("minus"), "i32", "a text");
  EXPECT_ERROR(m.get_array("minus"), "i32", "a list");
  EXPECT_ERROR(m.get_uint("bytes"), "list of 2 values of type u8");
  ASSERT_OK_AND_ASSIGN(const auto bytes, m.get_array("bytes"));
  EXPECT_ERROR(bytes->floats(), "gguf: bytes", "u8");  // scores read from bytes: a published vulnerability
  EXPECT_ERROR(bytes->strings(), "u8");
  EXPECT_ERROR(bytes->bools(), "u8");
  EXPECT_ERROR(m.get_array("wides").value()->ints(), "18446744073709551615");
}

}  // namespace
}  // namespace doppler
