// GGUF files as llama.cpp writes them, and as our writer does, read back.
#include "formats/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "formats/gguf_writer.h"
#include "formats/model_files.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::TempDir;

std::span<const std::byte> string_bytes(const std::string& text) {
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
  ASSERT_OK(writer.write_tensor_data(string_bytes((a + b).substr(0, 7))));  // pieces may cross tensors
  ASSERT_OK(writer.write_tensor_data(string_bytes((a + b).substr(7))));
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

// llama.cpp's own files, and what our writer makes of their content.
class WrittenFile : public ::testing::TestWithParam<const char*> {};

TEST_P(WrittenFile, LoadsIdentically) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(testing::data_path(std::string("gguf/") + GetParam())));
  EXPECT_EQ(file.tensors.copied_bytes(), 0u) << "mapped, not copied";
  ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "x.gguf"));
  for (const GgufMetadata::Entry& entry : file.metadata.entries()) ASSERT_OK(writer.add_entry(entry));
  for (const auto& [name, tensor] : file.tensors.tensors())
    ASSERT_OK(writer.declare_tensor(name, tensor.dtype, tensor.shape));
  ASSERT_OK(writer.write_header());
  for (const auto& [name, tensor] : file.tensors.tensors()) ASSERT_OK(writer.write_tensor_data(tensor.data));
  ASSERT_OK(writer.finish());

  ASSERT_OK_AND_ASSIGN(const GgufFile again, open_gguf(dir / "x.gguf"));
  ASSERT_EQ(again.metadata.entries().size(), file.metadata.entries().size());
  for (std::size_t i = 0; i < file.metadata.entries().size(); ++i) {
    const auto &a = file.metadata.entries()[i], &b = again.metadata.entries()[i];
    EXPECT_EQ(a.key, b.key);
    EXPECT_EQ(a.type, b.type);
    EXPECT_TRUE(std::ranges::equal(a.value, b.value)) << a.key;
  }
  ASSERT_EQ(again.tensors.tensors().size(), file.tensors.tensors().size());
  for (const auto& [name, tensor] : file.tensors.tensors()) {
    const TensorView* other = again.tensors.find(name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(tensor.dtype, other->dtype);
    EXPECT_EQ(tensor.shape, other->shape);
    EXPECT_TRUE(std::ranges::equal(tensor.data, other->data)) << name;
  }
  EXPECT_EQ(std::filesystem::file_size(dir / "x.gguf"),
            std::filesystem::file_size(testing::data_path(std::string("gguf/") + GetParam())));
}

INSTANTIATE_TEST_SUITE_P(LlamaCpp, WrittenFile,
                         ::testing::Values("llama.gguf", "mistral.gguf", "gemma3.gguf", "llama.Q4_0.gguf",
                                           "llama_k256.Q2_K.gguf", "gemma3_k288.Q4_K_M.gguf"));

TEST(GgufWriter, RefusesWhatNoFileCanHold) {
  const TempDir dir;
  EXPECT_ERROR(GgufWriter::create(dir / "x.gguf", 33), "alignment 33");
  ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "x.gguf", 64));
  EXPECT_ERROR(writer.add<std::uint32_t>("general.alignment", 32), "general.alignment", "64");
  ASSERT_OK(writer.add<bool>("k", true));
  EXPECT_ERROR(writer.add<bool>("k", true), "The key k comes twice");
  EXPECT_ERROR(writer.add<bool>("", true), "0 bytes");
  ASSERT_OK(writer.declare_tensor("t", DType::kF32, {4}));
  EXPECT_ERROR(writer.declare_tensor("t", DType::kF32, {4}), "The tensor t comes twice");
  EXPECT_ERROR(writer.declare_tensor("u", DType::kF32, {4, 0}), "The tensor u (F32, 4 x 0)");
  EXPECT_ERROR(writer.declare_tensor("u", DType::kQ4_K, {2, 128}), "rows of whole blocks");
  EXPECT_ERROR(writer.declare_tensor("u", DType::kF8E4M3, {4}), "a type that GGUF has");
  EXPECT_ERROR(writer.declare_tensor("u", DType::kF32, {1, 1, 1, 1, 1}), "at most 4 dimensions");
  EXPECT_ERROR(writer.declare_tensor("u", DType::kF32, {1ull << 61, 4}), "The tensor u");
  EXPECT_ERROR(writer.write_tensor_data(string_bytes("x")), "before the header");
  ASSERT_OK(writer.write_header());
  EXPECT_ERROR(writer.declare_tensor("u", DType::kF32, {4}), "too late");
  EXPECT_ERROR(writer.add<bool>("late", true), "too late");
  EXPECT_ERROR(writer.finish(), "lacks 16 of its 16 bytes");
  ASSERT_OK(writer.write_tensor_data(string_bytes("0123456789abcdef")));
  EXPECT_ERROR(writer.write_tensor_data(string_bytes("more")), "4 more bytes");
  ASSERT_OK(writer.finish());
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(dir / "x.gguf"));
  EXPECT_EQ(file.alignment, 64u);
}

TEST(GgufWriter, LeavesNothingBehindUnlessFinished) {
  const TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "x.gguf"));
    ASSERT_OK(writer.declare_tensor("t", DType::kF32, {4}));
    ASSERT_OK(writer.write_header());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// A set of split files, each with one tensor; a test changes one of them.
class SplitSet : public ::testing::Test {
 protected:
  std::filesystem::path path(int number, int count = 3) const {
    return dir_ / fmt::format("m-{:05}-of-{:05}.gguf", number, count);
  }
  void write(int number, std::uint16_t no, std::uint16_t count, const std::string& tensor, int total = 3) {
    ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(path(number)));
    if (no == 0) ASSERT_OK(writer.add<std::string_view>("general.architecture", "llama"));
    ASSERT_OK(writer.add<std::uint16_t>("split.no", no));
    ASSERT_OK(writer.add<std::uint16_t>("split.count", count));
    ASSERT_OK(writer.add<std::int32_t>("split.tensors.count", total));
    ASSERT_OK(writer.declare_tensor(tensor, DType::kF32, {4}));
    ASSERT_OK(writer.write_header());
    const std::vector<float> values(4, static_cast<float>(no));
    ASSERT_OK(writer.write_tensor_data(std::as_bytes(std::span(values))));
    ASSERT_OK(writer.finish());
  }
  void SetUp() override {
    write(1, 0, 3, "a");
    write(2, 1, 3, "b");
    write(3, 2, 3, "c");
  }
  TempDir dir_;
};

TEST_F(SplitSet, OpensFromItsFirstFileOrItsFolder) {
  for (const auto& from : {path(1), dir_.path()}) {
    ASSERT_OK_AND_ASSIGN(const ModelFiles files, open_model_files(from));
    EXPECT_EQ(files.tensors.tensors().size(), 3u);
    EXPECT_EQ(files.tensors.files().size(), 3u);
    EXPECT_EQ(files.gguf->get_string("general.architecture").value(), "llama");
    float value = 0;
    ASSERT_OK(decode_f32(*files.tensors.find("c"), 3, std::span(&value, 1)));
    EXPECT_EQ(value, 2);
  }
}

TEST_F(SplitSet, ALaterOrMissingFileIsNamed) {
  EXPECT_ERROR(open_gguf(path(2)), "number 2 of the 3", "Give the first", "m-00001-of-00003.gguf");
  EXPECT_EQ(open_gguf(path(2)).error().code, ErrorCode::kUsage);
  std::filesystem::remove(path(2));
  EXPECT_ERROR(open_gguf(path(1)), "m-00002-of-00003.gguf is missing", "number 2 of the 3");
}

TEST_F(SplitSet, ContradictionsAreErrors) {
  write(3, 2, 3, "b");
  EXPECT_ERROR(open_gguf(path(1)), "two tensors named b");
  write(3, 1, 3, "c");
  EXPECT_ERROR(open_gguf(path(1)), "says that it is number 2 of 3", "its name says 3 of 3");
  write(3, 2, 4, "c");
  EXPECT_ERROR(open_gguf(path(1)), "number 3 of 4");
  write(3, 2, 3, "c");
  write(1, 0, 3, "a", 4);
  EXPECT_ERROR(open_gguf(path(1)), "hold 3 tensors", "split.tensors.count says 4");
  write(1, 3, 3, "a");
  EXPECT_ERROR(open_gguf(path(1)), "split.no = 3", "split.count = 3");
  write(1, 0, 3, "a");
  std::filesystem::rename(path(1), dir_ / "renamed.gguf");
  EXPECT_ERROR(open_gguf(dir_ / "renamed.gguf"), "must end with -00001-of-00003.gguf");
}

TEST(GgufFolders, HoldExactlyOneModel) {
  const TempDir dir;
  std::filesystem::copy(testing::data_path("gguf/llama.gguf"), dir / "a.gguf");
  testing::write_file(dir / "mmproj-a.gguf", "an image encoder");
  ASSERT_OK(open_model_files(dir.path()));
  std::filesystem::copy(testing::data_path("gguf/qwen2.gguf"), dir / "b.gguf");
  EXPECT_ERROR(open_model_files(dir.path()), "2 GGUF models (a.gguf, b.gguf)", "Name one");
}

}  // namespace
}  // namespace doppler
