// Recurrent families as GGUF files: written from a folder, read again, and compared with what transformers
// recorded of the folder.
#include <algorithm>
#include <set>

#include "convert/convert.h"
#include "convert/source.h"
#include "diagnosis/compare/compare.h"
#include "model/family.h"
#include "model_fixture.h"
#include "testing.h"

namespace doppler::diagnosis {
namespace {

// Stages of a recurrent layer that a file of the family has in others, because it stores parts of them by
// themselves.
struct RecurrentFile {
  const char* folder;
  std::vector<std::string> elsewhere;
};
const std::vector<RecurrentFile> kRecurrentFiles = {
    {"lfm2", {}},  {"qwen3_5", {}},    {"mamba2", {}},
    {"jamba", {}}, {"nemotron_h", {}}, {"qwen3_next", {"ssm_in", "ssm_in_ba"}}};

class RecurrentFiles : public ::testing::TestWithParam<RecurrentFile> {};

TEST_P(RecurrentFiles, AgreeWithTransformersStageByStage) {
  const std::filesystem::path folder = testing::data_path("models") / GetParam().folder;
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix("F32"));
  ASSERT_OK_AND_ASSIGN(const convert::ConvertReport report,
                       convert::convert_model(folder, *mix, dir / "out.gguf", {}));
  EXPECT_EQ(report.warnings.size(), 1u) << report.warnings.back();  // no tokenizer
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(dir / "out.gguf"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(folder / "reference.safetensors"));
  for (const char* name : {"reference", "cpu"}) {
    auto backend = make_backend(name, model.spec, model.weights,
                                {.threads = 2, .context = 64, .max_step_tokens = 9, .disabled_passes = {}});
    ASSERT_OK(backend);
    ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_run(**backend, model.spec, recording, {}));
    for (const StageComparison& stage : comparison.stages)
      EXPECT_TRUE(stage.agrees()) << name << " " << stage.key << " error " << stage.error;
    EXPECT_GT(comparison.stages.size(), 12 * model.spec.layers.size());
    EXPECT_TRUE(comparison.agrees());
    std::set<std::string> elsewhere;
    for (std::size_t i = 0; i < model.spec.layers.size(); ++i) {
      if (!model.spec.layers[i].recurrent.exists()) continue;
      for (const std::string& stage : GetParam().elsewhere)
        elsewhere.insert(fmt::format("layers.{}.{}", i, stage));
    }
    EXPECT_EQ(std::set(comparison.elsewhere.begin(), comparison.elsewhere.end()), elsewhere);
  }
}

INSTANTIATE_TEST_SUITE_P(Written, RecurrentFiles, ::testing::ValuesIn(kRecurrentFiles),
                         [](const auto& test) { return std::string(test.param.folder); });

// A file made of a file is the same file.
TEST(RecurrentGguf, AFileConvertsToTheSameBytesAsItsSource) {
  for (const char* name : {"qwen3_next", "mamba2"}) {
    const testing::TempDir dir;
    ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix("F32"));
    ASSERT_OK(convert::convert_model(testing::data_path("models") / name, *mix, dir / "one.gguf", {}));
    ASSERT_OK(convert::convert_model(dir / "one.gguf", *mix, dir / "two.gguf", {}));
    ASSERT_OK_AND_ASSIGN(const Model one, load_model(dir / "one.gguf"));
    ASSERT_OK_AND_ASSIGN(const Model two, load_model(dir / "two.gguf"));
    EXPECT_EQ(convert::spec_differences(one.spec, two.spec), std::vector<std::string>());
    for (const auto& [tensor, view] : one.files.tensors.tensors()) {
      const TensorView* other = two.files.tensors.find(tensor);
      ASSERT_NE(other, nullptr) << tensor;
      EXPECT_TRUE(std::ranges::equal(view.data, other->data)) << tensor;
    }
  }
}

}  // namespace
}  // namespace doppler::diagnosis
