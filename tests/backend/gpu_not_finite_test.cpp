// Numbers that are not finite reach the logits on a GPU, too: in products of 8 bits, where routers choose,
// and through caps.
#include <cmath>

#include "harness.h"

#if DOPPLER_GPU
namespace doppler {
namespace {

using namespace testing;

// The model with one value of a weight that is NaN.
void expect_not_finite(const std::filesystem::path& path, WeightRole role, int layer, std::size_t place) {
  SCOPED_TRACE(path.string());
  ASSERT_OK_AND_ASSIGN(Model model, load_model(path));
  TensorView tensor = model.weights[model.weights.find(role, layer)];
  std::vector<float> values(element_count(tensor.shape).value_or(0));
  ASSERT_OK(decode_f32(tensor, 0, values));
  values[place] = std::nanf("");
  tensor.dtype = DType::kF32;
  tensor.data = std::as_bytes(std::span(values));
  tensor.mapped = false;
  model.weights.add(role, layer, tensor);
  BackendOptions options{.context = 64, .max_step_tokens = 16};
  options.gpu_setup.tune = false;
  ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
  StepInput prompt;
  for (const std::int32_t id : {5, 9, 17, 30}) prompt.add(id, prompt.size(), 0, prompt.size() == 3);
  ASSERT_OK_AND_ASSIGN(const auto first, backend->step(prompt, nullptr));
  EXPECT_FALSE(std::isfinite(first[0])) << first[0];
  StepInput single;
  single.add(7, 4, 0, true);
  ASSERT_OK_AND_ASSIGN(const auto next, backend->step(single, nullptr));
  EXPECT_FALSE(std::isfinite(next[0])) << next[0];
}

TEST(GpuNotFinite, QuantisedActivationsKeepIt) {
  expect_not_finite(data_path("gguf/llama.Q4_0.gguf"), WeightRole::kAttnNorm, 0, 3);
  expect_not_finite(data_path("gguf/llama.Q4_0.gguf"), WeightRole::kFinalNorm, -1, 3);
}
TEST(GpuNotFinite, RoutersAndCapsKeepIt) {
  expect_not_finite(data_path("models/glm4_moe"), WeightRole::kRouter, 1, 0);
  expect_not_finite(data_path("models/gemma2"), WeightRole::kFinalNorm, -1, 0);
}

// Of a layer whose memory is a state: in its rate, through which the state itself is lost, and its
// convolution.
TEST(GpuNotFinite, StatesKeepIt) {
  expect_not_finite(data_path("models/qwen3_5"), WeightRole::kDecayRate, 0, 0);
  expect_not_finite(data_path("models/mamba2"), WeightRole::kDecayRate, 0, 0);
  expect_not_finite(data_path("models/lfm2"), WeightRole::kConvolution, 0, 0);
}

}  // namespace
}  // namespace doppler
#endif
