// Files of which only the start is in memory: parsers ask for as much as they need, and say the same.
#include <cstring>

#include "formats/file_bytes.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

// A file in memory that counts what is read of it.
class Counting final : public ByteSource {
 public:
  explicit Counting(std::string text) : text_(std::move(text)) {}
  std::uint64_t size() const override { return text_.size(); }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (offset > text_.size() || into.size() > text_.size() - offset)
      return fail(ErrorCode::kIo, "The file ends. Check it.");
    std::memcpy(into.data(), text_.data() + offset, into.size());
    most = std::max(most, into.size());
    return {};
  }
  std::span<const std::byte> start(std::size_t bytes) const {
    return std::as_bytes(std::span(text_)).first(bytes);
  }
  mutable std::size_t most = 0;

 private:
  std::string text_;
};

// Gives longer and longer starts; returns the first that suffices.
std::size_t least_start(const Counting& source,
                        const std::function<Status(const FileBytes&, NeedsMore&)>& parse) {
  for (std::size_t bytes = 8; bytes <= source.size(); ++bytes) {
    NeedsMore more;
    const Status parsed = parse(FileBytes(source.start(bytes), source), more);
    if (parsed) return bytes;
    EXPECT_GT(more.bytes, bytes) << parsed.error().message;
    EXPECT_LE(more.bytes, source.size());
    if (more.bytes <= bytes) return 0;
  }
  return 0;
}

TEST(FileStart, IsAskedForAsFarAsAGgufFilesTensorsAreDescribed) {
  const Counting source(read_file(data_path("gguf/llama.Q4_0.gguf")));
  ASSERT_OK_AND_ASSIGN(const GgufFile whole, parse_gguf(source.start(source.size()), "The file x"));
  std::uint64_t data = source.size();
  for (const auto& [name, tensor] : whole.tensors.tensors())
    data = std::min<std::uint64_t>(data,
                                   static_cast<std::uint64_t>(tensor.data.data() - source.start(1).data()));
  const std::size_t least = least_start(source, [](const FileBytes& bytes, NeedsMore& more) -> Status {
    DOPPLER_TRY(parse_gguf(bytes, "The file x", more));
    return {};
  });
  EXPECT_GT(least, 0u);
  EXPECT_LE(least, data);
  EXPECT_GT(least + whole.alignment, data);
}

TEST(FileStart, IsAskedForAsFarAsASafetensorsHeaderReaches) {
  const Counting source(read_file(data_path("models/llama/model.safetensors")));
  std::uint64_t length = 0;
  std::memcpy(&length, source.start(8).data(), 8);
  EXPECT_EQ(least_start(source,
                        [](const FileBytes& bytes, NeedsMore& more) {
                          TensorStore store;
                          return parse_safetensors(bytes, "The file x", more, store);
                        }),
            8 + length);
}

TEST(FileStart, GrowsUntilItSuffices) {
  // A header of more than the first megabyte, and as much behind it that nobody reads.
  std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1000000],\"data_offsets\":[0,4000000]}";
  header.append((3 << 20) - header.size() - 1, ' ');
  header += '}';
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += header + std::string(4000000, 'x');
  const Counting source(std::move(file));
  TensorStore store;
  ASSERT_OK(parse_start(source, [&](const FileBytes& bytes, NeedsMore& more) {
    return parse_safetensors(bytes, "The file x", more, store);
  }));
  EXPECT_EQ(source.most, 8 + length);
  const TensorView* tensor = store.find("w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->source, &source);
  EXPECT_EQ(tensor->offset, 8 + length);
  EXPECT_EQ(tensor->bytes(), 4000000u);
}

std::string error_of(const Result<GgufFile>& file) {
  return file ? "" : file.error().message;
}

TEST(FileStart, FilesThatLieAreRefusedInTheSameWords) {
  const TempDir dir;
  const std::string whole = read_file(data_path("gguf/llama.Q4_0.gguf"));
  std::size_t refused = 0;
  const auto compare = [&](const std::string& bytes) {
    write_file(dir / "x.gguf", bytes);
    const std::string mapped = error_of(open_gguf(dir / "x.gguf"));
    EXPECT_EQ(error_of(open_gguf(dir / "x.gguf", Opening::kPieces)), mapped);
    refused += !mapped.empty();
  };
  for (const std::size_t size : {0, 3, 8, 100, 1000, 4096, 20000}) compare(whole.substr(0, size));
  compare(whole.substr(0, whole.size() - 1));
  for (std::size_t at = 4; at < 2000; at += 13) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    compare(changed);
  }
  EXPECT_GT(refused, 50u);
}

TEST(Pieces, ValuesAreDecodedFromASourceAsFromMemory) {
  const Counting source(read_file(data_path("gguf/llama_k256.Q4_K_M.gguf")));
  NeedsMore more;
  ASSERT_OK_AND_ASSIGN(const GgufFile here, parse_gguf(source.start(source.size()), "The file x"));
  ASSERT_OK_AND_ASSIGN(const GgufFile there,
                       parse_gguf(FileBytes(source.start(source.size()), source), "The file x", more));
  for (const auto& [name, tensor] : here.tensors.tensors()) {
    const TensorView& other = *there.tensors.find(name);
    EXPECT_TRUE(same_bytes(tensor, other).value()) << name;
    const auto values = static_cast<std::size_t>(*element_count(tensor.shape));
    // Ranges that begin and end inside blocks.
    for (const std::size_t begin : {std::size_t{0}, values / 3}) {
      std::vector<float> expected(values - begin - values / 5), got(expected.size());
      ASSERT_OK(decode_f32(tensor, begin, expected));
      ASSERT_OK(decode_f32(other, begin, got));
      EXPECT_EQ(got, expected) << name;
    }
    float beyond_value = 0;
    EXPECT_FALSE(decode_f32(other, values, std::span(&beyond_value, 1)));
    std::vector<std::byte> beyond(2);
    EXPECT_FALSE(read_bytes(other, other.bytes() - 1, beyond));
  }
}

}  // namespace
}  // namespace doppler
