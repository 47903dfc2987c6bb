// Whole conversions: the files that llama.cpp's own converter writes of the same models are the truth.
#include "convert/convert.h"

#include <cstring>
#include <set>

#include "base/text.h"
#include "convert/source.h"
#include "convert/tensor_writer.h"
#include "formats/gguf.h"
#include "model_fixture.h"
#include "testing.h"

namespace doppler::convert {
namespace {

using testing::data_path;
using testing::read_file;
using testing::TempDir;
using testing::TinyModel;

const Mix& mix(std::string_view name) {
  const Result<const Mix*> found = find_mix(name);
  EXPECT_TRUE(found.has_value());
  return **found;
}

std::filesystem::path model(const std::string& name) {
  return data_path("models/" + name);
}

struct Pair {
  const char* model;
  const char* type;
  // Keys that we write and llama.cpp's converter does not, because without them the file says another model:
  // Mistral's window, and Gemma 2's scale where it does not follow from the head size.
  std::set<std::string> own_keys;
};

class SameAsLlamaCpp : public ::testing::TestWithParam<Pair> {};

std::map<std::string, std::string> values(const GgufMetadata& metadata) {
  std::map<std::string, std::string> out;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    const std::string bytes(reinterpret_cast<const char*>(entry.value.data()), entry.value.size());
    out[std::string(entry.key)] = fmt::format("{} {}", gguf_type_name(entry.type), printable(bytes));
  }
  return out;
}

TEST_P(SameAsLlamaCpp, KeyForKeyAndBitForBit) {
  const Pair& pair = GetParam();
  const TempDir dir;
  const auto path = dir / "out.gguf";
  ASSERT_OK_AND_ASSIGN(const ConvertReport report,
                       convert_model(model(pair.model), mix(pair.type), path, {}));
  ASSERT_OK_AND_ASSIGN(const GgufFile ours, open_gguf(path));
  ASSERT_OK_AND_ASSIGN(const GgufFile theirs, open_gguf(data_path(fmt::format("gguf/{}.gguf", pair.model))));

  auto keys = values(ours.metadata);
  for (const std::string& key : pair.own_keys) EXPECT_EQ(keys.erase(key), 1u) << key;
  EXPECT_EQ(keys, values(theirs.metadata));

  EXPECT_EQ(report.tensors.size(), theirs.tensors.tensors().size());
  for (const auto& [name, tensor] : theirs.tensors.tensors()) {
    const TensorView* own = ours.tensors.find(name);
    ASSERT_NE(own, nullptr) << name;
    EXPECT_EQ(own->dtype, tensor.dtype) << name;
    EXPECT_EQ(own->shape, tensor.shape) << name;
    ASSERT_EQ(own->data.size(), tensor.data.size()) << name;
    EXPECT_EQ(std::memcmp(own->data.data(), tensor.data.data(), tensor.data.size()), 0) << name;
  }
  // What GGUF can say is said: reading back gives the same model.
  EXPECT_EQ(report.warnings,
            std::vector<std::string>{"The folder has no tokenizer: the GGUF file runs on token ids only."});
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SameAsLlamaCpp,
                         ::testing::Values(Pair{"llama", "F32", {}}, Pair{"qwen2", "F32", {}},
                                           Pair{"phi3", "F32", {}},
                                           Pair{"mistral", "F16", {"llama.attention.sliding_window"}},
                                           Pair{"llama3", "BF16", {}}, Pair{"qwen3", "BF16", {}},
                                           Pair{"gemma2", "BF16", {"gemma2.attention.scale"}},
                                           Pair{"gemma3", "BF16", {}}),
                         [](const auto& one) { return std::string(one.param.model); });

// The mixes choose as llama.cpp's quantiser, and its metadata are written whatever the type.
TEST(Convert, QuantisedFilesHaveLlamaCppsTypes) {
  struct Case {
    const char *model, *type;
  };
  for (const Case& c : {Case{"gemma3_k288", "Q4_0"},
                        {"gemma3_k288", "Q4_K_M"},
                        {"llama", "Q4_0"},
                        {"llama", "Q5_1"},
                        {"llama", "Q8_0"}}) {
    SCOPED_TRACE(fmt::format("{} in {}", c.model, c.type));
    const TempDir dir;
    const auto path = dir / "out.gguf";
    ASSERT_OK_AND_ASSIGN(const ConvertReport report, convert_model(model(c.model), mix(c.type), path, {}));
    ASSERT_OK_AND_ASSIGN(const GgufFile ours, open_gguf(path));
    ASSERT_OK_AND_ASSIGN(const GgufFile theirs,
                         open_gguf(data_path(fmt::format("gguf/{}.{}.gguf", c.model, c.type))));
    EXPECT_EQ(values(ours.metadata), values(theirs.metadata));
    ASSERT_EQ(ours.tensors.tensors().size(), theirs.tensors.tensors().size());
    for (const auto& [name, tensor] : theirs.tensors.tensors()) {
      ASSERT_NE(ours.tensors.find(name), nullptr) << name;
      EXPECT_EQ(ours.tensors.find(name)->dtype, tensor.dtype) << name;
    }
    for (const TensorReport& tensor : report.tensors) {
      ASSERT_TRUE(tensor.error.has_value()) << tensor.name;
      EXPECT_EQ(tensor.error->relative_rms > 0.001, is_quantised(tensor.type)) << tensor.name;
      EXPECT_LT(tensor.error->relative_rms, 0.1) << tensor.name;
      EXPECT_LT(tensor.error->worst_row, tensor.shape[0]) << tensor.name;
    }
  }
}

// Every family, also those whose spec needs words that llama.cpp's files do not have.
TEST(Convert, ReadsBackAsTheSameModel) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"}) {
    SCOPED_TRACE(family);
    TempDir dir;
    TinyModel tiny(family);
    std::filesystem::create_directory(dir / "model");
    ASSERT_OK(tiny.write(dir / "model"));
    ASSERT_OK_AND_ASSIGN(const ConvertReport report,
                         convert_model(dir / "model", mix("F32"), dir / "out.gguf", {}));
    EXPECT_EQ(report.warnings.size(), 1u) << report.warnings.back();  // no tokenizer
    ASSERT_OK_AND_ASSIGN(const Model read, load_model(dir / "out.gguf"));
    // Q as Hugging Face has it: the rows are put in llama.cpp's order and back.
    const TensorView& q = read.weights[read.weights.find(WeightRole::kQ, 1)];
    ASSERT_OK_AND_ASSIGN(const Weights original, tiny.bind());
    const TensorView& expected = original[original.find(WeightRole::kQ, 1)];
    ASSERT_EQ(q.data.size(), expected.data.size());
    EXPECT_EQ(std::memcmp(q.data.data(), expected.data.data(), q.data.size()), 0);
  }
}

// Converts the folder and expects its spec and weights to come back as they were.
void expect_read_back(const std::filesystem::path& source) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const ConvertReport report, convert_model(source, mix("F32"), dir / "out.gguf", {}));
  EXPECT_EQ(report.warnings.size(), 1u) << report.warnings.back();  // no tokenizer
  ASSERT_OK_AND_ASSIGN(const Model folder, load_model(source));
  ASSERT_OK_AND_ASSIGN(const Model read, load_model(dir / "out.gguf"));
  EXPECT_EQ(read.spec.family, folder.spec.family);
  EXPECT_EQ(spec_differences(folder.spec, read.spec), std::vector<std::string>());
  const auto values = [](const Model& model, WeightId id) {
    std::vector<float> all(element_count(model.weights[id].shape).value_or(0));
    EXPECT_TRUE(decode_f32(model.weights[id], 0, all).has_value());
    return all;
  };
  for (const WeightTensor& wanted : weight_tensors(folder.spec, {})) {
    const auto parts = wanted.info->fused_parts();
    for (const WeightRole role : parts.empty() ? std::span(&wanted.info->role, 1) : parts) {
      const WeightId a = folder.weights.find(role, wanted.layer), b = read.weights.find(role, wanted.layer);
      if (a == kNoWeight) continue;
      ASSERT_NE(b, kNoWeight) << wanted.info->label;
      ASSERT_EQ(folder.weights.count(a), read.weights.count(b)) << wanted.info->label;
      for (std::uint32_t i = 0; i < folder.weights.count(a); ++i) {
        std::vector<float> mine = values(folder, a + i);
        const double offset = wanted.info->takes_offset() ? folder.spec.norm.weight_offset : 0;
        for (float& value : mine) value += static_cast<float>(offset);
        EXPECT_EQ(mine, values(read, b + i)) << wanted.info->label << " of layer " << wanted.layer;
      }
    }
  }
}

// Recorded folders of all kinds: what is stored transposed, by head or as numbers, norms that are stored
// without their 1, multipliers, windows, heads of two widths, keys and values of other layers.
TEST(Convert, FoldersReadBackAsTheSameModel) {
  for (const char* name :
       {"apertus", "cohere", "exaone4", "gemma4_keqv", "gemma4_ple", "glm4", "gpt2", "granite",
        "hunyuan_v1_dense", "ministral3", "nemotron", "olmo3", "phi", "falcon_alibi", "glm4_moe"}) {
    SCOPED_TRACE(name);
    expect_read_back(model(name));
  }
}

// In Gemma 4's files an expert's gate and up are one matrix.
TEST(Convert, GatesAndUpsOfAnExpertComeTogether) {
  const TempDir dir;
  Json config = testing::tiny_config("gemma4");
  config["enable_moe_block"] = true, config["top_k_experts"] = 2;
  const TinyModel tiny("gemma4", config);
  std::filesystem::create_directory(dir / "model");
  ASSERT_OK(tiny.write(dir / "model"));
  expect_read_back(dir / "model");
}

// Experts: [experts, rows, columns], quantised row by row.
TEST(Convert, TensorsOfThreeDimensionsAreEncodedWhole) {
  const TempDir dir;
  const testing::TinyTensor source = testing::random_tensor("experts", {3, 5, 64}, 0, 1);
  const SourceTensor tensor{
      .name = "blk.0.ffn_up_exps.weight", .shape = source.shape, .parts = {source.view("experts")}};
  for (const DType type : {DType::kF16, DType::kQ4_0, DType::kQ8_0, DType::kMXFP4}) {
    ASSERT_OK_AND_ASSIGN(GgufWriter file, GgufWriter::create(dir / "x.gguf"));
    ASSERT_OK(file.declare_tensor(tensor.name, type, tensor.shape));
    ASSERT_OK(file.write_header());
    TensorWriter writer(2, EncodeSearch::kBest, [](std::uint64_t, std::string_view) { return true; });
    const auto sink = [&](std::span<const std::byte> bytes) { return file.write_tensor_data(bytes); };
    ASSERT_OK_AND_ASSIGN(const std::optional<EncodingError> error, writer.write(tensor, type, sink));
    ASSERT_OK(file.finish());
    ASSERT_TRUE(error.has_value());
    EXPECT_LT(error->relative_rms, storage_error(type)) << dtype_name(type);
    EXPECT_LT(error->worst_row, 15u);

    ASSERT_OK_AND_ASSIGN(const GgufFile read, open_gguf(dir / "x.gguf"));
    const TensorView& stored = *read.tensors.find(tensor.name);
    EXPECT_EQ(stored.shape, source.shape);
    EXPECT_EQ(stored.dtype, type);
    std::vector<float> was(5 * 64), is(5 * 64);
    EncodingErrorSum sum;
    for (std::uint64_t i = 0; i < stored.matrices(); ++i) {
      ASSERT_OK_AND_ASSIGN(const TensorView before, take_matrix(source.view("experts"), i));
      ASSERT_OK_AND_ASSIGN(const TensorView after, take_matrix(stored, i));
      ASSERT_OK(decode_f32(before, 0, was));
      ASSERT_OK(decode_f32(after, 0, is));
      sum.add_row(i, was, is);
    }
    EXPECT_NEAR(sum.get().relative_rms, error->relative_rms, 1e-9) << dtype_name(type);
  }
}

TEST(Convert, RefusesWhatGgufCannotSayBeforeItWrites) {
  TempDir dir;
  TinyModel tiny("qwen2");
  tiny.config["hidden_act"] = "gelu";
  std::filesystem::create_directory(dir / "model");
  ASSERT_OK(tiny.write(dir / "model"));
  bool written = false;
  ConvertOptions options;
  options.on_progress = [&](double, std::string_view) { written = true; };
  EXPECT_ERROR(convert_model(dir / "model", mix("F32"), dir / "out.gguf", options),
               "GGUF cannot hold this model", "ffn.activation is silu, not gelu", "--format rdrr");
  EXPECT_FALSE(written);
  EXPECT_FALSE(std::filesystem::exists(dir / "out.gguf"));
}

TEST(Convert, LeavesNoFileThatCouldNotBeLoaded) {
  TempDir dir;
  Json config = testing::tiny_config("qwen3_moe");
  config["mlp_only_layers"] = {1};  // no key of GGUF says which layers have no experts
  const TinyModel tiny("qwen3_moe", config);
  std::filesystem::create_directory(dir / "model");
  ASSERT_OK(tiny.write(dir / "model"));
  EXPECT_ERROR(convert_model(dir / "model", mix("F32"), dir / "out.gguf", {}), "GGUF cannot hold this model",
               "--format rdrr");
  EXPECT_FALSE(std::filesystem::exists(dir / "out.gguf"));
}

// Without the key readers of this architecture take one.
TEST(Convert, SaysThatNoLayerIsDense) {
  TempDir dir;
  Json config = testing::tiny_config("glm4_moe");
  config["first_k_dense_replace"] = 0;
  const TinyModel tiny("glm4_moe", config);
  std::filesystem::create_directory(dir / "model");
  ASSERT_OK(tiny.write(dir / "model"));
  ASSERT_OK(convert_model(dir / "model", mix("F32"), dir / "out.gguf", {}));
  ASSERT_OK_AND_ASSIGN(const Model read, load_model(dir / "out.gguf"));
  for (const LayerSpec& layer : read.spec.layers) EXPECT_GT(layer.ffn.experts, 0u);
}

TEST(Convert, SaysThatTheRoutersBandIsNotInTheFile) {
  TempDir dir;
  Json config = testing::tiny_config("phimoe");
  config["router_jitter_noise"] = 0.2;
  const TinyModel tiny("phimoe", config);
  std::filesystem::create_directory(dir / "model");
  ASSERT_OK(tiny.write(dir / "model"));
  EXPECT_ERROR(convert_model(dir / "model", mix("F32"), dir / "out.gguf", {}),
               "ffn.router.jitter is 0.01, not 0.2");
}

TEST(Convert, ModulesThatTheConfigKeepsStayFloat) {
  TempDir dir;
  TinyModel tiny("llama");
  tiny.config["quantization_config"] = {
      {"modules_to_not_convert", {"lm_head", "model.layers.1.mlp", "o_pro"}}};
  std::filesystem::create_directory(dir / "model");
  ASSERT_OK(tiny.write(dir / "model"));
  ASSERT_OK_AND_ASSIGN(const ConvertReport report,
                       convert_model(dir / "model", mix("Q8_0"), dir / "out.gguf", {}));
  std::set<std::string> floats;
  for (const TensorReport& tensor : report.tensors) {
    if (tensor.shape.size() == 2 && tensor.type == DType::kF32) floats.insert(tensor.name);
  }
  // Rows of 48 are no multiple of 32 and become F16; "o_pro" names no whole component.
  EXPECT_EQ(floats, (std::set<std::string>{"output.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight",
                                           "blk.1.ffn_down.weight"}));
}

TEST(Convert, AGgufFileConvertsToTheSameBytesAsItsSource) {
  const TempDir dir;
  ASSERT_OK(convert_model(model("llama"), mix("F32"), dir / "f32.gguf", {}));
  ASSERT_OK_AND_ASSIGN(const ConvertReport once,
                       convert_model(model("llama"), mix("Q4_0"), dir / "a.gguf", {}));
  ASSERT_OK_AND_ASSIGN(const ConvertReport twice,
                       convert_model(dir / "f32.gguf", mix("Q4_0"), dir / "b.gguf", {}));
  EXPECT_TRUE(twice.warnings.empty());
  ASSERT_OK_AND_ASSIGN(const GgufFile a, open_gguf(dir / "a.gguf"));
  ASSERT_OK_AND_ASSIGN(const GgufFile b, open_gguf(dir / "b.gguf"));
  EXPECT_EQ(*a.metadata.get_uint("general.file_type").value(), 2u);
  for (const auto& [name, tensor] : a.tensors.tensors()) {
    const TensorView* other = b.tensors.find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(other->data.size(), tensor.data.size()) << name;
    EXPECT_EQ(std::memcmp(other->data.data(), tensor.data.data(), tensor.data.size()), 0) << name;
  }
  // From a quantised file: a warning, and unchanged types are copied.
  ASSERT_OK_AND_ASSIGN(const ConvertReport again,
                       convert_model(dir / "a.gguf", mix("Q8_0"), dir / "c.gguf", {}));
  ASSERT_EQ(again.warnings.size(), 1u);
  EXPECT_NE(again.warnings[0].find("quantised already"), std::string::npos);
  ASSERT_OK_AND_ASSIGN(const ConvertReport copy,
                       convert_model(dir / "a.gguf", mix("Q4_0"), dir / "d.gguf", {}));
  for (const TensorReport& tensor : copy.tensors) EXPECT_FALSE(tensor.error.has_value()) << tensor.name;
  EXPECT_TRUE(copy.warnings.empty());
}

// The demo model's embedding is long enough for every thread to get some of it.
TEST(Convert, TheNumberOfThreadsChangesNothing) {
  const TempDir dir;
  const std::filesystem::path demo = testing::source_path("demo");
  ASSERT_OK(convert_model(demo, mix("Q4_0"), dir / "one.gguf", {.threads = 1}));
  ASSERT_OK(convert_model(demo, mix("Q4_0"), dir / "five.gguf", {.threads = 5}));
  EXPECT_TRUE(read_file(dir / "one.gguf") == read_file(dir / "five.gguf"));
}

TEST(Convert, LeavesNothingBehindWhenItFails) {
  TempDir dir;
  std::filesystem::create_directory(dir / "model");
  TinyModel tiny("qwen3");
  ASSERT_OK(tiny.write(dir / "model"));
  testing::write_file(dir / "out.gguf", "old");
  const auto entries = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      names.insert(entry.path().filename());
    return names;
  };
  // Cancelled after half of the tensors.
  int pieces = 0;
  EXPECT_ERROR(convert_model(dir / "model", mix("Q8_0"), dir / "out.gguf",
                             {.is_cancelled = [&] { return ++pieces > 15; }}),
               "interrupted");
  EXPECT_EQ(pieces, 16);
  EXPECT_EQ(entries(), (std::set<std::string>{"model", "out.gguf"}));
  EXPECT_EQ(read_file(dir / "out.gguf"), "old");

  // A weight that no type can hold.
  auto& bytes = tiny.tensors["model.layers.1.mlp.up_proj.weight"].bytes;
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + 128, &infinite, 4);
  ASSERT_OK(tiny.write(dir / "model"));
  EXPECT_ERROR(convert_model(dir / "model", mix("Q8_0"), dir / "out.gguf", {}), "blk.1.ffn_up.weight",
               "cannot be stored as Q8_0");
  EXPECT_EQ(entries(), (std::set<std::string>{"model", "out.gguf"}));
  EXPECT_EQ(read_file(dir / "out.gguf"), "old");
}

TEST(Convert, RefusesToWriteOverItsInput) {
  const TempDir dir;
  ASSERT_OK(convert_model(model("llama"), mix("F32"), dir / "in.gguf", {}));
  const std::string before = read_file(dir / "in.gguf");
  EXPECT_ERROR(convert_model(dir / "in.gguf", mix("Q8_0"), dir / "in.gguf", {}), "file of the model itself");
  std::filesystem::create_symlink(dir / "in.gguf", dir / "link.gguf");
  EXPECT_ERROR(convert_model(dir / "in.gguf", mix("Q8_0"), dir / "link.gguf", {}),
               "file of the model itself");
  EXPECT_EQ(read_file(dir / "in.gguf"), before);
  EXPECT_ERROR(convert_model(dir / "in.gguf", mix("Q8_0"), dir / "out.bin", {}), "does not end in .gguf");
  EXPECT_ERROR(convert_model(dir / "in.gguf", mix("Q8_0"), dir / "none/out.gguf", {}), "none");
}

TEST(Convert, WithoutATokenizerTheFileSaysSo) {
  const TempDir dir;
  const std::filesystem::path demo = testing::source_path("demo");
  ASSERT_OK(convert_model(demo, mix("BF16"), dir / "with.gguf", {}));
  ASSERT_OK_AND_ASSIGN(const GgufFile with, open_gguf(dir / "with.gguf"));
  EXPECT_TRUE(with.metadata.has("tokenizer.chat_template"));
  ASSERT_OK(convert_model(dir / "with.gguf", mix("BF16"), dir / "without.gguf", {.with_tokenizer = false}));
  ASSERT_OK(convert_model(demo, mix("BF16"), dir / "plain.gguf", {.with_tokenizer = false}));
  for (const char* name : {"without.gguf", "plain.gguf"}) {
    ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(dir / name));
    EXPECT_EQ(*file.metadata.get_string("tokenizer.ggml.model").value(), "none") << name;
    EXPECT_EQ(*file.metadata.get_uint("gemma3.vocab_size").value(), 3584u) << name;
    EXPECT_FALSE(file.metadata.has("tokenizer.ggml.tokens")) << name;
    EXPECT_FALSE(file.metadata.has("tokenizer.chat_template")) << name;
  }
}

}  // namespace
}  // namespace doppler::convert
