// Models whose files are read in pieces: nothing differs from mapped ones, and no weight lies in memory as it
// is in the file beside its panels.
#include <filesystem>

#include "formats/model_files.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

Result<Model> open_model(const std::filesystem::path& path, Opening opening) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(path, opening));
  auto model = bind_model(std::move(files), {});
  if (model || model.error().code != ErrorCode::kUnsupported) return model;
  DOPPLER_ASSIGN(files, open_model_files(path, opening));  // of a family that nobody has described
  return bind_model(std::move(files), "guess");
}

class InPieces : public ::testing::TestWithParam<std::string> {};

TEST_P(InPieces, ComputesTheSameBits) {
  const std::filesystem::path path = data_path(GetParam());
  for (const bool exact : {false, true}) {
    std::vector<float> expected;
    for (const Opening opening : {Opening::kMapped, Opening::kPieces}) {
      ASSERT_OK_AND_ASSIGN(const Model model, open_model(path, opening));
      BackendOptions options{
          .threads = 2, .context = 32, .slots = 1, .max_step_tokens = 16, .disabled_passes = {}};
      options.exact = exact;
      ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("cpu", model.spec, model.weights, options));
      const std::vector<float> logits = run_in_pieces(*backend, {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8}, {8, 1});
      if (opening == Opening::kMapped)
        expected = logits;
      else
        EXPECT_EQ(logits, expected) << (exact ? "exact" : "panels");
    }
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("models")))
    names.push_back("models/" + entry.path().filename().string());
  for (const auto& entry : std::filesystem::directory_iterator(data_path("gguf"))) {
    if (entry.path().extension() == ".gguf") names.push_back("gguf/" + entry.path().filename().string());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, InPieces, ::testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param.substr(test.param.find('/') + 1);
  for (char& c : name) c = c == '.' ? '_' : c;
  return name + (test.param.starts_with("gguf") ? "_file" : "");
});

TEST(InPieces, NoTensorOfAFileLiesInMemory) {
  ASSERT_OK_AND_ASSIGN(const Model model, open_model(data_path("gguf/llama.Q4_0.gguf"), Opening::kPieces));
  for (const TensorView& weight : model.weights.tensors()) {
    EXPECT_NE(weight.source, nullptr) << weight.name;
    EXPECT_TRUE(weight.data.empty()) << weight.name;
    EXPECT_GT(weight.bytes(), 0u) << weight.name;
  }
  EXPECT_EQ(model.files.tensors.copied_bytes(), 0u);
}

// The table of tokens stays in the file, whose rows are read as they are needed.
TEST(InPieces, AFileThatCanNoLongerBeReadIsAnErrorOfTheStep) {
  const TempDir dir;
  std::filesystem::copy_file(data_path("gguf/llama.Q4_0.gguf"), dir / "x.gguf");
  ASSERT_OK_AND_ASSIGN(const Model model, open_model(dir / "x.gguf", Opening::kPieces));
  const BackendOptions options{
      .threads = 1, .context = 32, .slots = 1, .max_step_tokens = 16, .disabled_passes = {}};
  ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("cpu", model.spec, model.weights, options));
  ASSERT_OK(backend->step(step_of({{3, 0, 0}}), nullptr));
  std::filesystem::resize_file(dir / "x.gguf", 100);
  const auto logits = backend->step(step_of({{4, 1, 0}}), nullptr);
  ASSERT_FALSE(logits.has_value());
  EXPECT_EQ(logits.error().code, ErrorCode::kIo);
  EXPECT_NE(logits.error().message.find("x.gguf cannot be read"), std::string::npos)
      << logits.error().message;
  EXPECT_EQ(make_backend("cpu", model.spec, model.weights, options).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace doppler
