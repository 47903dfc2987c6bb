// The committed fixture models open, and their stores are what the files say.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "tensors.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::TempDir;

class Fixture : public ::testing::TestWithParam<const char*> {};

TEST_P(Fixture, Opens) {
  ASSERT_OK_AND_ASSIGN(const ModelFiles model, open_model_files(data_path("models") / GetParam()));
  EXPECT_TRUE(model.config->contains("model_type"));
  ASSERT_TRUE(model.generation_config.has_value());
  EXPECT_EQ(model.tensors.files().size(), 1u);
  const TensorView* embedding = model.tensors.find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, DType::kBF16);
  EXPECT_EQ(embedding->rows(), (*model.config)["vocab_size"].get<std::uint64_t>());
  EXPECT_EQ(embedding->cols(), (*model.config)["hidden_size"].get<std::uint64_t>());
  EXPECT_EQ(model.tensors.find("nonsense"), nullptr);
}

TEST_P(Fixture, SurvivesBeingWrittenAgain) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(const TensorStore store,
                       open_safetensors(data_path("models") / GetParam() / "reference.safetensors"));
  std::vector<TensorView> tensors;
  for (const auto& [name, tensor] : store.tensors()) tensors.push_back(tensor);
  ASSERT_OK(testing::write_tensors(dir / "again.safetensors", tensors, store.metadata()));
  ASSERT_OK_AND_ASSIGN(const TensorStore again, open_safetensors(dir / "again.safetensors"));
  EXPECT_EQ(again.metadata(), store.metadata());
  ASSERT_EQ(again.tensors().size(), store.tensors().size());
  for (const auto& [name, tensor] : store.tensors()) {
    const TensorView* copy = again.find(name);
    ASSERT_NE(copy, nullptr) << name;
    EXPECT_EQ(copy->dtype, tensor.dtype);
    EXPECT_EQ(copy->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(copy->data, tensor.data)) << name;
  }
}

TEST_P(Fixture, DecodesToFiniteNumbers) {
  ASSERT_OK_AND_ASSIGN(const ModelFiles model, open_model_files(data_path("models") / GetParam()));
  for (const auto& [name, tensor] : model.tensors.tensors()) {
    std::vector<float> values(*element_count(tensor.shape));
    ASSERT_OK(decode_f32(tensor, 0, values));
    EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return std::abs(v) < 100.0f; })) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, Fixture,
                         ::testing::Values("llama", "llama3", "mistral", "qwen2", "qwen3", "phi3", "gemma2",
                                           "gemma3", "gemma3_k288"),
                         testing::named_by_param);

}  // namespace
}  // namespace doppler
