// Files with random weights: as large as the published ones, and the same from the same seed.
#include "convert/synth.h"

#include <cmath>
#include <numeric>
#include <set>

#include "convert/hf_metadata.h"
#include "formats/gguf.h"
#include "model/rope.h"
#include "testing.h"

namespace doppler::convert {
namespace {

// What write_synthetic reports of a shape, without writing its file.
SynthReport measured(const ModelShape& shape, const Mix& mix) {
  const MixModel model = mix_model(*shape_spec(shape));
  SynthReport report;
  const std::vector<WeightTensor> tensors = *shape_tensors(shape);
  for (const WeightTensor& tensor : tensors) {
    const DType type = choose_type(mix, model, tensor.name, tensor.shape).type;
    const std::uint64_t bytes = *byte_size(type, tensor.shape);
    report.parameters += *element_count(tensor.shape);
    report.tensor_bytes += bytes;
    const bool is_head = tensor.info->role == WeightRole::kTokenEmbedding && shape.tied_head;
    const bool looked_up = tensor.info->kind == WeightKind::kEmbedding && !is_head;
    if (tensor.info->per_expert())
      report.token_bytes += bytes / shape.experts.count * shape.experts.chosen;
    else
      report.token_bytes += looked_up ? bytes / tensor.shape.front() : bytes;
  }
  return report;
}
SynthReport measured(std::string_view shape, std::string_view mix) {
  return measured(**find_shape(shape), **find_mix(mix));
}

TEST(Shapes, HaveThePublishedNumberOfParameters) {
  // Model cards, in millions; Gemma 3 270M counts 168 million of embedding.
  EXPECT_NEAR(static_cast<double>(measured("gemma3-270m", "BF16").parameters) / 1e6, 268.1, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("gemma3-1b", "BF16").parameters) / 1e6, 999.9, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("llama3.2-1b", "BF16").parameters) / 1e6, 1235.8, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("qwen3-0.6b", "BF16").parameters) / 1e6, 596.0, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("phi3-mini", "BF16").parameters) / 1e6, 3821.1, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("llama3.1-8b", "BF16").parameters) / 1e6, 8030.3, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("qwen3-8b", "BF16").parameters) / 1e6, 8190.7, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("olmoe-1b-7b", "BF16").parameters) / 1e6, 6919.2, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("qwen3-30b-a3b", "BF16").parameters) / 1e6, 30532.1, 0.1);
  EXPECT_NEAR(static_cast<double>(measured("gpt-oss-20b", "BF16").parameters) / 1e6, 20914.8, 0.1);
  // Of the text half.
  EXPECT_NEAR(static_cast<double>(measured("qwen3.5-2b", "BF16").parameters) / 1e6, 1882, 10);
  EXPECT_NEAR(static_cast<double>(measured("deepseek-v2-lite", "BF16").parameters) / 1e6, 15706, 10);
  // 8 billion with the embeddings of layers, which are 2.8 of them, and without pictures and sounds.
  EXPECT_NEAR(static_cast<double>(measured("gemma4-e4b", "BF16").parameters) / 1e6, 7500, 200);
}

TEST(Shapes, OneTokenReadsAsManyBytesAsTheFilesOfLlamaCpp) {
  const auto megabytes = [](std::string_view shape, std::string_view mix) {
    return static_cast<double>(measured(shape, mix).token_bytes) / 1e6;
  };
  EXPECT_NEAR(megabytes("gemma3-1b", "Q4_0"), 715, 2);
  EXPECT_NEAR(megabytes("gemma3-1b", "Q4_K_M"), 800, 2);
  EXPECT_NEAR(megabytes("gemma3-1b", "Q8_0"), 1063, 2);
  EXPECT_NEAR(megabytes("llama3.2-1b", "Q4_0"), 766, 4);
  EXPECT_NEAR(megabytes("llama3.2-1b", "Q8_0"), 1316, 4);
}

TEST(Shapes, HaveNoTensorTwiceAndKnowTheirFamily) {
  std::set<std::string_view> families = {"gemma3",   "llama",   "qwen3",  "phi3",   "olmoe",
                                         "qwen3moe", "gpt-oss", "qwen35", "gemma4", "deepseek2"};
  for (const ModelShape& shape : all_shapes()) {
    EXPECT_TRUE(families.contains(shape.architecture)) << shape.name;
    std::set<std::string> names;
    ASSERT_OK_AND_ASSIGN(const std::vector<WeightTensor> tensors, shape_tensors(shape));
    for (const WeightTensor& tensor : tensors) EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    EXPECT_EQ(names.contains("output.weight"), !shape.tied_head) << shape.name;
    EXPECT_EQ(names.contains("rope_freqs.weight"),
              shape.architecture == "llama" || shape.architecture == "gemma4")
        << shape.name;
  }
}

TEST(Shapes, RopeFactorsStretchLongWavelengthsOnly) {
  const std::vector<float> factors =
      rope_divisors(rope_with_factors(*shape_spec(**find_shape("llama3.2-1b"))));
  ASSERT_EQ(factors.size(), 32u);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_EQ(factors.back(), 32.0f);
  EXPECT_TRUE(std::is_sorted(factors.begin(), factors.end()));
}

TEST(Shapes, UnknownNamesGetAHint) {
  EXPECT_ERROR(find_shape("gemma3-2b"), "There is no shape gemma3-2b", "gemma3-1b");
}

TEST(Synth, RandomRowsHaveTheMeanAndDeviationAsked) {
  std::vector<float> values(100000);
  random_row(7, "blk.0.attn_q.weight", 3, 2, 0.5f, values);
  double sum = 0, squares = 0;
  for (const float v : values) sum += v;
  const double mean = sum / 1e5;
  for (const float v : values) squares += (v - mean) * (v - mean);
  EXPECT_NEAR(mean, 2, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.5, 0.01);
}

TEST(Synth, RowsOfOneTensorAndOfTwoDiffer) {
  std::vector<float> a(64), b(64), c(64), again(64);
  random_row(7, "blk.0.attn_q.weight", 3, 0, 1, a);
  random_row(7, "blk.0.attn_q.weight", 4, 0, 1, b);
  random_row(7, "blk.1.attn_q.weight", 3, 0, 1, c);
  random_row(7, "blk.0.attn_q.weight", 3, 0, 1, again);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(a, again);
}

// Llama's layout, with rows of whole blocks of 256.
ModelShape small_shape() {
  ModelShape shape = **find_shape("llama3.2-1b");
  shape.layers = 2;
  shape.vocab = 300;
  shape.hidden = 256;
  shape.ffn = 512;
  shape.heads = 4;
  shape.kv_heads = 1;
  return shape;
}

TEST(Synth, EveryMixCanBeWritten) {
  const testing::TempDir folder;
  for (const Mix& mix : all_mixes()) {
    ASSERT_OK_AND_ASSIGN(
        const SynthReport report,
        write_synthetic(small_shape(), mix, folder / "m.gguf", {.seed = 1, .threads = 1, .on_progress = {}}));
    const SynthReport expected = measured(small_shape(), mix);
    EXPECT_EQ(report.parameters, expected.parameters) << mix.name;
    EXPECT_EQ(report.tensor_bytes, expected.tensor_bytes) << mix.name;
    EXPECT_EQ(report.token_bytes, expected.token_bytes) << mix.name;
    ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(folder / "m.gguf"));
    const auto& tensors = file.tensors.tensors();
    const auto up = tensors.find("blk.1.ffn_up.weight");
    ASSERT_NE(up, tensors.end()) << mix.name;
    EXPECT_EQ(up->second.dtype, mix.base) << mix.name;
    std::vector<float> values(up->second.rows() * up->second.cols());
    ASSERT_OK(decode_f32(up->second, 0, values));
    double squares = 0;
    for (const float v : values) squares += static_cast<double>(v) * v;
    // 1 / sqrt(columns); two bits a weight lose some of it.
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 1.0 / 16, 0.01) << mix.name;
  }
}

TEST(Synth, TheSameSeedGivesTheSameFileWhateverTheThreads) {
  const testing::TempDir folder;
  const Mix& mix = **find_mix("Q8_0");
  ASSERT_OK(
      write_synthetic(small_shape(), mix, folder / "one.gguf", {.seed = 5, .threads = 1, .on_progress = {}}));
  ASSERT_OK(write_synthetic(small_shape(), mix, folder / "three.gguf",
                            {.seed = 5, .threads = 3, .on_progress = {}}));
  ASSERT_OK(write_synthetic(small_shape(), mix, folder / "other.gguf",
                            {.seed = 6, .threads = 1, .on_progress = {}}));
  const std::string one = testing::read_file(folder / "one.gguf");
  EXPECT_TRUE(one == testing::read_file(folder / "three.gguf"));
  EXPECT_FALSE(one == testing::read_file(folder / "other.gguf"));
}

TEST(Synth, TheFileHoldsWhatTheShapeSays) {
  const testing::TempDir folder;
  ASSERT_OK_AND_ASSIGN(const SynthReport report,
                       write_synthetic(small_shape(), **find_mix("BF16"), folder / "m.gguf", {}));
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(folder / "m.gguf"));
  ASSERT_OK_AND_ASSIGN(const auto architecture, file.metadata.get_string("general.architecture"));
  EXPECT_EQ(architecture, "llama");
  ASSERT_OK_AND_ASSIGN(const auto vocab, file.metadata.get_uint("llama.vocab_size"));
  EXPECT_EQ(vocab, 300u);
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors.tensors()) bytes += tensor.data.size();
  EXPECT_EQ(bytes, report.tensor_bytes);
  EXPECT_EQ(file.tensors.tensors().size(), shape_tensors(small_shape())->size());
}

}  // namespace
}  // namespace doppler::convert
