// Every kernel that models of many kinds compile, as text for other compilers: those of browsers refuse more
// than the native one. tests/web/shaders_test.py gives the texts to the compiler that Chromium has.
#include <filesystem>
#include <fstream>
#include <set>

#include "gpu_harness.h"
#include "harness.h"
#include "system/threads.h"

namespace doppler {
namespace {

using namespace testing;

// A shader's file and values.
using Source = std::pair<std::string, gpu::ShaderValues>;

// The kernels that loading and running a model asks for: a prompt, single tokens, tokens drawn by chance, and
// guesses.
class Collected {
 public:
  Collected() {
    gpu::shader_watcher() = [this](std::string_view file, const gpu::ShaderValues& values) {
      const system::Lock lock(mutex_);
      sources_.emplace(std::string(file), values);
    };
  }
  ~Collected() { gpu::shader_watcher() = nullptr; }

  void run(const std::string& path) {
    ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path(path)));
    BackendOptions options{.context = 64, .slots = 2, .max_step_tokens = 32};
    options.gpu_setup.tune = false;
    options.gpu_setup.self_check = false;
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
    StepInput prompt;
    for (std::uint64_t i = 0; i < 20; ++i) prompt.add(static_cast<TokenId>(i % 7), i, 0, i == 19);
    ASSERT_OK(backend->step(prompt, nullptr));
    if (backend->continuer() == nullptr) return;
    GenerateOptions sampling;
    sampling.temperature = 0.7f;
    sampling.top_k = 20;
    sampling.top_p = 0.9f;
    sampling.repeat_penalty = 1.1f;
    const TokenId history[] = {1};
    ASSERT_OK(backend->continuer()->continue_sequence(
        {.slot = 0, .id = 1, .most = 2, .sampling = &sampling, .history = history}));
    ASSERT_OK(backend->continuer()->next_tokens());
    ASSERT_OK(backend->continuer()->stop_sequence(21));
    if (backend->continuer()->most_together() < 2) return;
    for (TokenId& id : prompt.slots) id = 1;
    ASSERT_OK(backend->step(prompt, nullptr));
    const GenerateOptions greedy;
    for (const std::uint32_t slot : {0u, 1u})
      ASSERT_OK(backend->continuer()->join({.slot = slot, .id = 1, .most = 1, .sampling = &greedy}));
    ASSERT_OK(backend->continuer()->tokens_of_all());
    constexpr std::size_t kChecked = 16;  // with the guesses of a check
    if (backend->rows_that_agree() < kChecked) return;
    GenerateOptions drawn;
    drawn.temperature = 0.5;
    for (const GenerateOptions& way : {greedy, drawn})
      ASSERT_OK(backend->continuer()->prepare_check(kChecked, way));
  }
  const std::set<Source>& sources() const { return sources_; }

 private:
  system::Mutex mutex_;
  std::set<Source> sources_;
};

TEST(ShaderTexts, CanBeWrittenForBrowsers) {
  DOPPLER_NEEDS_ADAPTER();
  Collected collected;
  for (const char* model : {"models/gemma3", "models/gpt_oss", "models/qwen3_5", "models/deepseek_v3",
                            "gguf/gemma3_k288.Q4_K_M.gguf", "gguf/llama.Q8_0.gguf"})
    collected.run(model);
  EXPECT_GT(collected.sources().size(), 100u);
  const char* const folder =
      std::getenv("DOPPLER_SHADER_TEXTS");  // where tests/web/shaders_test.py wants them
  std::size_t number = 0;
  for (const auto& [file, values] : collected.sources()) {
    for (const std::uint32_t size : {1u, 4u, 32u}) {
      // The largest subgroups' kernels are those of this device, whose values may depend on its size.
      gpu::ShaderValues common =
          gpu::common_values({.subgroups = size > 1, .subgroup_size = size, .fma_rounds_once = size == 32});
      common["STRICT_BARRIERS"] = 1;
      if (size != 32) {
        if (file != "norm.wgsl" && file != "attention.wgsl" && file != "gemm.wgsl")
          continue;  // those that take any
      } else {
        common["SUBGROUP_SIZE"] =
            gpu::testing::device(gpu::testing::Mode::kUnchecked)->features().subgroup_size;
      }
      ASSERT_OK_AND_ASSIGN(const std::string text, gpu::expand_shader(file, values, common, {}));
      EXPECT_NE(text.find("@compute"), std::string::npos) << file;
      if (folder == nullptr) continue;
      std::ofstream out(std::filesystem::path(folder) / fmt::format("{}.{:04}.wgsl", file, number++));
      for (const auto& [name, value] : values) out << "// " << name << "=" << value << "\n";
      out << text;
      EXPECT_TRUE(out.flush().good());
    }
  }
}

}  // namespace
}  // namespace doppler
