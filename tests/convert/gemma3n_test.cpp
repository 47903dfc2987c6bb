// Gemma 3n's GGUF files, as the reader and the converter of llama.cpp have them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "convert/convert.h"
#include "convert/source.h"
#include "formats/gguf.h"
#include "model_fixture.h"
#include "testing.h"

namespace doppler::convert {
namespace {

using testing::TempDir;
using testing::TinyModel;

struct Written {
  TempDir dir;
  ConvertReport report;
  Result<void> convert(const Json& config, const char* type) {
    const TinyModel tiny("gemma3n", config);
    return convert(tiny, type);
  }
  Result<void> convert(const TinyModel& tiny, const char* type) {
    std::filesystem::create_directory(dir / "model");
    DOPPLER_TRY(tiny.write(dir / "model"));
    DOPPLER_ASSIGN(const Mix* mix, find_mix(type));
    DOPPLER_ASSIGN(report, convert_model(dir / "model", *mix, file(), {}));
    return {};
  }
  std::filesystem::path file() const { return dir / "out.gguf"; }
};

std::vector<float> all_values(const TensorView& tensor) {
  std::vector<float> values(element_count(tensor.shape).value_or(0));
  EXPECT_TRUE(decode_f32(tensor, 0, values).has_value());
  return values;
}

// Streams of other numbers, another one that layers read, feed-forwards of widths of their own, layers that
// make keys for others and layers that do not.
TEST(Gemma3nGguf, EveryVariantReadsBackAsTheSameModel) {
  const std::vector<Json> variants = {
      Json::object(),
      {{"altup_num_inputs", 2}},
      {{"altup_num_inputs", 3}, {"altup_active_idx", 2}},
      {{"intermediate_size", {32, 48, 64}}},
      {{"num_kv_shared_layers", 0}, {"activation_sparsity_pattern", {0.0, 0.95, 0.6}}},
      {{"laurel_rank", 4}, {"hidden_size_per_layer_input", 4}, {"final_logit_softcapping", 20.0}},
  };
  for (const Json& variant : variants) {
    SCOPED_TRACE(variant.dump());
    Json config = testing::tiny_config("gemma3n");
    config.update(variant);
    Written written;
    ASSERT_OK(written.convert(config, "F32"));
    ASSERT_OK_AND_ASSIGN(const Model folder, load_model(written.dir / "model"));
    ASSERT_OK_AND_ASSIGN(const Model read, load_model(written.file()));
    EXPECT_EQ(spec_differences(folder.spec, read.spec), std::vector<std::string>());
    ASSERT_EQ(folder.weights.tensors().size(), read.weights.tensors().size());
    for (const WeightInfo& info : weight_table()) {
      for (int layer = -1; layer < static_cast<int>(folder.spec.layers.size()); ++layer) {
        const WeightId a = folder.weights.find(info.role, layer), b = read.weights.find(info.role, layer);
        ASSERT_EQ(a == kNoWeight, b == kNoWeight) << info.label << " of layer " << layer;
        if (a == kNoWeight) continue;
        EXPECT_EQ(all_values(folder.weights[a]), all_values(read.weights[b]))
            << info.label << " of layer " << layer;
      }
    }
  }
}

// src/models/gemma3n.cpp of llama.cpp asks for these names and shapes (outermost dimension first here), and
// its converter leaves the weights of streams out of quantising, their coefficients in F32.
TEST(Gemma3nGguf, FilesHoldWhatLlamaCppAsksFor) {
  Json config = testing::tiny_config("gemma3n");
  config["vocab_size_per_layer_input"] = 60;  // of 64 tokens
  TinyModel tiny("gemma3n", config);
  for (const auto& [name, shape] : {std::pair<const char*, Shape>{"k_proj", {16, 32}},
                                    {"v_proj", {16, 32}},
                                    {"k_norm", {8}}}) {  // checkpoints hold them of every layer
    const std::string whole = fmt::format("model.layers.2.self_attn.{}.weight", name);
    tiny.tensors[whole] = testing::random_tensor(whole, shape, 0, 1);
  }
  Written written;
  ASSERT_OK(written.convert(tiny, "Q8_0"));
  EXPECT_EQ(written.report.warnings.size(), 1u);  // no tokenizer
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(written.file()));
  struct Expected {
    const char* name;
    Shape shape;
    DType type;
  };
  for (const Expected& e : {Expected{"altup_proj.weight", {3, 32, 32}, DType::kBF16},
                            {"altup_unembd_proj.weight", {3, 32, 32}, DType::kBF16},
                            {"per_layer_token_embd.weight", {64, 24}, DType::kF16},
                            {"blk.1.altup_correct_coef.weight", {4, 4}, DType::kF32},
                            {"blk.1.altup_predict_coef.weight", {16, 4}, DType::kF32},
                            {"blk.1.altup_correct_scale.weight", {32}, DType::kF32},
                            {"blk.1.altup_router.weight", {4, 32}, DType::kBF16},
                            {"blk.1.laurel_l.weight", {8, 32}, DType::kBF16},
                            {"blk.2.attn_k.weight", {16, 32}, DType::kQ8_0},
                            {"blk.2.attn_v.weight", {16, 32}, DType::kQ8_0},
                            {"blk.2.attn_k_norm.weight", {8}, DType::kF32}}) {
    const TensorView* tensor = file.tensors.find(e.name);
    ASSERT_NE(tensor, nullptr) << e.name;
    EXPECT_EQ(tensor->shape, e.shape) << e.name;
    EXPECT_EQ(tensor->dtype, e.type) << e.name;
  }
  // Tokens behind the folder's table have its first row.
  const std::vector<float> table = all_values(*file.tensors.find("per_layer_token_embd.weight"));
  for (std::size_t row = 60; row < 64; ++row)
    EXPECT_TRUE(std::equal(&table[row * 24], &table[row * 24] + 24, table.begin())) << row;
  ASSERT_OK_AND_ASSIGN(const auto cutoffs, file.metadata.get_array("gemma3n.activation_sparsity_scale"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> points, cutoffs->floats());
  EXPECT_NEAR(points[0], 1.2815516, 1e-6);  // of 0.9
  EXPECT_TRUE(std::isinf(points[1]) && points[1] < 0);
  ASSERT_OK(load_model(written.file()));
}

TEST(Gemma3nGguf, SaysWhatOnlyDopplerRuns) {
  Written written;
  ASSERT_OK(written.convert(testing::tiny_config("gemma3n"), "F32"));
  ASSERT_EQ(written.report.warnings.size(), 2u);
  EXPECT_TRUE(std::ranges::any_of(written.report.warnings, [](const std::string& warning) {
    return warning.contains("lacks keys and values");
  }));
}

TEST(Gemma3nGguf, RefusesWhatNoKeySays) {
  Json config = testing::tiny_config("gemma3n");
  config["altup_correct_scale"] = false;
  Written unscaled;
  EXPECT_ERROR(unscaled.convert(config, "F32"), "GGUF cannot hold this model", "altup.out_scale is 1, not 0");
  config = testing::tiny_config("gemma3n");
  config["activation_sparsity_pattern"] = {0.3, 0.0, 0.0};
  Written below;
  std::filesystem::create_directory(below.dir / "model");
  EXPECT_ERROR(read_spec(config, nullptr), "at or below their mean", "layer 0");
}

}  // namespace
}  // namespace doppler::convert
