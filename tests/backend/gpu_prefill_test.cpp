// Prompts on the GPU: whole models in steps of many tokens, stage by stage, against the reference backend.
#include <fmt/format.h>

#include <atomic>

#include "backend/gpu/kernel.h"
#include "changed_shaders.h"
#include "environment.h"
#include "gpu_harness.h"
#include "harness.h"
#include "model_fixture.h"
#include "plan/fuse.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kPrefillContext = 96;

class Prompts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(fixture_, load_fixture(GetParam()));
    while (sequence_.size() < 70) {
      sequence_.insert(sequence_.end(), fixture_->prompt.begin(), fixture_->prompt.end());
      sequence_.insert(sequence_.end(), fixture_->greedy.begin(), fixture_->greedy.end());
    }
    sequence_.resize(70);
  }
  std::unique_ptr<Backend> make(BackendOptions options = {}) {
    options.threads = 2;
    options.context = kPrefillContext;
    options.gpu.poison = true;
    auto backend = make_backend("gpu", fixture_->model.spec, fixture_->model.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }
  void expect_stages(const std::map<std::string, std::vector<float>>& got,
                     const std::map<std::string, std::vector<float>>& expected, double allowed) {
    EXPECT_EQ(got.size(), expected.size());
    for (const auto& [name, values] : expected) {
      const auto found = got.find(name);
      ASSERT_TRUE(found != got.end()) << name;
      EXPECT_LT(relative_error(found->second, values), allowed) << name;
    }
  }

  std::unique_ptr<FixtureModel> fixture_;
  std::vector<std::int32_t> sequence_;
};

TEST_P(Prompts, PassTheReferencesStagesInPiecesOfAnySize) {
  ASSERT_OK_AND_ASSIGN(
      const auto reference,
      make_backend("reference", fixture_->model.spec, fixture_->model.weights, {.context = kPrefillContext}));
  KeepStages expected;
  run_in_pieces(*reference, sequence_, {70}, &expected);
  const auto gpu = make();
  ASSERT_TRUE(gpu);
  for (const std::size_t piece : {70, 33, 7}) {
    SCOPED_TRACE(piece);
    KeepStages got;
    gpu->clear(0);
    run_in_pieces(*gpu, sequence_, {piece}, &got);
    expect_stages(got.stages, expected.stages, tolerance_of(GetParam(), *gpu));
  }
}

// One family for each kind of op between the products; tests/diagnosis runs all of them.
INSTANTIATE_TEST_SUITE_P(Fixtures, Prompts, ::testing::Values("qwen2", "gemma2", "gemma3"), named_by_param);

// Weights of 4 bits and more, so activations of 8.
class QuantisedPrompts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(std::string("gguf/") + GetParam() + ".gguf")));
    for (std::int32_t i = 0; i < 52; ++i)
      sequence_.push_back((i * i + 7 * i) % static_cast<std::int32_t>(model_.spec.vocab_size));
  }
  std::unique_ptr<Backend> make(BackendOptions options = {}, std::string_view name = "gpu") {
    options.threads = 2;
    options.context = context_;
    if (!options.kv_type) options.kv_type = KvType::kF32;
    options.gpu.poison = true;
    auto backend = make_backend(name, model_.spec, model_.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }
  // As the last tokens see it, after pieces of different sizes.
  std::vector<float> run(Backend& backend, const std::vector<std::size_t>& pieces, Tap* tap = nullptr) {
    backend.clear(0);
    return run_in_pieces(backend, sequence_, pieces, tap);
  }

  Model model_;
  std::vector<std::int32_t> sequence_;
  std::uint64_t context_ = kPrefillContext;
};

// Where a float sum's last bit decides, activations round to the other of two neighbouring codes.
constexpr double kCodeTolerance = 0.02;
// On tensor cores a prompt's activations are not rounded to codes at all, which is as far from those that
// are.
double code_tolerance() {
  const bool halves =
      gpu::testing::device(gpu::testing::Mode::kUnchecked)->features().tiles == gpu::Tiles::kDevice;
  return kCodeTolerance * (halves ? 2 : 1);
}
// Halves have eleven bits; two or three layers pass their errors on.
constexpr double kHalfTolerance = 5e-3;

TEST_P(QuantisedPrompts, LookingDoesNotDisturb) {
  const auto gpu = make();
  ASSERT_TRUE(gpu);
  const std::vector<float> plain = run(*gpu, {40, 3});
  EXPECT_TRUE(run(*gpu, {40, 3}) == plain) << "the second time";
  KeepStages tap;
  EXPECT_TRUE(run(*gpu, {40, 3}, &tap) == plain) << "with every stage looked at";
  // The stages are those of the cpu backend, which rounds activations as well.
  const auto cpu = make({}, "cpu");
  KeepStages expected;
  const std::vector<float> logits = run(*cpu, {40, 3}, &expected);
  const double allowed = 2 * code_tolerance();
  EXPECT_LT(relative_error(plain, logits), allowed);
  EXPECT_EQ(tap.stages.size(), expected.stages.size());
  for (const auto& [name, values] : expected.stages)
    EXPECT_LT(relative_error(tap.stages[name], values), allowed) << name;
}

TEST_P(QuantisedPrompts, ComeOutTheSameWithEveryPassSwitchedOff) {
  const auto with_all = make();
  ASSERT_TRUE(with_all);
  const std::vector<float> expected = run(*with_all, {40, 3});
  std::vector<std::string> all;
  for (const FusionPass& pass : all_fusion_passes()) {
    if (!pass.name.starts_with("batch_")) continue;
    all.emplace_back(pass.name);
    SCOPED_TRACE(pass.name);
    const auto without = make({.disabled_passes = {std::string(pass.name)}});
    ASSERT_TRUE(without);
    EXPECT_LT(relative_error(run(*without, {40, 3}), expected), code_tolerance());
  }
  all.emplace_back("group_matmuls");
  const auto plain = make({.disabled_passes = all});
  ASSERT_TRUE(plain);
  EXPECT_LT(relative_error(run(*plain, {40, 3}), expected), code_tolerance());
}

TEST_P(QuantisedPrompts, AreTheReferencesWithFloatActivations) {
  const auto exact = make({.exact = true});
  const auto reference = make({}, "reference");
  ASSERT_TRUE(exact && reference);
  EXPECT_LT(relative_error(run(*exact, {40, 3}), run(*reference, {40, 3})), 2e-4);
}

// Tensor cores multiply halves, with loops in their place where there are none. Stages come closer to the
// reference's than 8-bit activations do, up to the logits, whose one row is multiplied in 8 bits.
TEST_P(QuantisedPrompts, OnTensorCoresRoundToHalves) {
  BackendOptions options;
  options.kv_type = KvType::kF16;
  options.gpu_setup.plain_tiles = true;
  options.gpu_setup.tune = false;
  options.gpu_setup.self_check = false;  // HalfProducts has it
  std::atomic<int> kernels = 0, attentions = 0;
  gpu::shader_watcher() = [&](std::string_view file, const gpu::ShaderValues&) {
    kernels += file == "gemm_half.wgsl" ? 1 : 0;
    attentions += file == "attention_half.wgsl" ? 1 : 0;
  };
  const auto gpu = make(options), reference = make({}, "reference");
  ASSERT_TRUE(gpu && reference);
  sequence_.resize(40);
  KeepStages got, expected;
  const std::vector<float> logits = run(*gpu, {40}, &got);
  EXPECT_LT(relative_error(logits, run(*reference, {40}, &expected)), 2 * kCodeTolerance);
  EXPECT_TRUE(run(*gpu, {40}) == logits) << "without looking";
  EXPECT_EQ(got.stages.size(), expected.stages.size());
  std::size_t halves = 0;
  for (const auto& [name, values] : expected.stages) {
    if (name.contains("logits")) continue;
    EXPECT_LT(relative_error(got.stages[name], values), kHalfTolerance) << name;
    ++halves;
  }
  EXPECT_GT(halves, 20u);
  gpu::shader_watcher() = nullptr;
  EXPECT_GT(kernels.load(), 0);
  EXPECT_GT(attentions.load(), 0);
}

// Few heads leave most of a GPU without work, so that a prompt's positions are dealt out; what puts them
// together leaves the codes that the product behind reads.
TEST_P(QuantisedPrompts, OfMorePositionsThanAPartAreTheCpus) {
  context_ = 320;
  for (std::int32_t i = 52; i < 300; ++i)
    sequence_.push_back((i * i + 7 * i) % static_cast<std::int32_t>(model_.spec.vocab_size));
  std::atomic<int> parted = 0;
  gpu::shader_watcher() = [&](std::string_view file, const gpu::ShaderValues& values) {
    parted +=
        file == "attention_combine.wgsl" && values.contains("PARTED") && values.at("BLOCKS") != 0 ? 1 : 0;
  };
  const auto gpu = make(), cpu = make({}, "cpu");
  ASSERT_TRUE(gpu && cpu);
  const std::vector<float> whole = run(*gpu, {240, 60});
  gpu::shader_watcher() = nullptr;
  EXPECT_GT(parted.load(), 0);
  const std::vector<float> expected = run(*cpu, {240, 60}), pieces = run(*gpu, {130, 64, 106});
  if (gpu->precision().wide_blocks_from == 0) {
    EXPECT_LT(relative_error(whole, expected), code_tolerance());
    EXPECT_LT(relative_error(pieces, expected), code_tolerance());
  } else {
    // One scale for 256 values instead of 32 makes errors of activations half as large again.
    const auto reference = make({}, "reference");
    ASSERT_TRUE(reference);
    const std::vector<float> exact = run(*reference, {240, 60});
    const double allowed = 2 * relative_error(expected, exact);
    EXPECT_LT(relative_error(whole, exact), allowed);
    EXPECT_LT(relative_error(pieces, exact), allowed);
  }
  KeepStages tap;
  EXPECT_TRUE(run(*gpu, {240, 60}, &tap) == whole) << "with every stage looked at";
}

// A prompt beside other sequences in the same step: their tokens share tiles.
TEST_P(QuantisedPrompts, GiveTheSameBesideOthers) {
  const auto gpu = make({.slots = 3});
  ASSERT_TRUE(gpu);
  const std::vector<float> alone = run(*gpu, {40, 12});
  gpu->clear(0);
  std::vector<Token> first, second;
  const auto add = [&](std::vector<Token>& step, std::int32_t slot, std::int32_t begin, std::int32_t end) {
    for (std::int32_t i = begin; i < end; ++i)
      step.push_back({sequence_[static_cast<std::size_t>(i)], i, slot});
  };
  add(first, 2, 0, 9);
  add(first, 1, 0, 40);
  add(first, 0, 0, 1);
  add(second, 1, 40, 52);
  add(second, 2, 9, 21);
  std::vector<float> beside;
  const std::size_t vocab = model_.spec.vocab_size;
  for (const auto& [step, begin, count] : {std::tuple(&first, std::size_t{9}, std::size_t{40}),
                                           std::tuple(&second, std::size_t{0}, std::size_t{12})}) {
    ASSERT_OK_AND_ASSIGN(const auto logits, gpu->step(step_of(*step), nullptr));
    const auto own = logits.subspan(begin * vocab, count * vocab);
    beside.insert(beside.end(), own.begin(), own.end());
  }
  EXPECT_LT(relative_error(beside, alone), kCodeTolerance);
}

INSTANTIATE_TEST_SUITE_P(Files, QuantisedPrompts, ::testing::Values("gemma3_k288.Q4_0", "llama_k256.Q4_K_M"),
                         named_by_param);

// A product of few rows and many columns leaves parts, which the norm behind it adds up: with a norm of their
// own before the sum, and without.
class SplitPrompts : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitPrompts, AreAddedByTheNormBehind) {
  constexpr std::size_t kTokens = 70;  // more than the steps have that are not prompts
  Json config = tiny_config(GetParam());
  config["intermediate_size"] = 2048;
  config["head_dim"] = 32;
  TinyModel tiny(GetParam(), config);
  for (auto& [name, tensor] : tiny.tensors) {
    if (name.find("down_proj") != std::string::npos) tensor = encoded(tensor, DType::kQ8_0);
  }
  ASSERT_OK_AND_ASSIGN(const Weights weights, tiny.bind());
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<std::int32_t>(i * i % 64));
  const auto logits_of = [&](std::string_view backend) -> Result<std::vector<float>> {
    BackendOptions options{.threads = 2, .context = kPrefillContext, .kv_type = KvType::kF32};
    options.gpu.poison = true;
    options.gpu_setup.no_tiles = true;  // products on tensor cores leave no parts
    DOPPLER_ASSIGN(const auto made, make_backend(backend, spec, weights, options));
    return run_in_pieces(*made, ids, {kTokens});
  };
  std::atomic<int> added = 0;
  gpu::shader_watcher() = [&](std::string_view file, const gpu::ShaderValues& values) {
    const auto parts = values.find("PARTS");
    if (file == "batch_norm.wgsl" && parts != values.end() && parts->second > 1) ++added;
  };
  const auto gpu = logits_of("gpu"), cpu = logits_of("cpu");
  gpu::shader_watcher() = nullptr;
  ASSERT_OK(gpu);
  ASSERT_OK(cpu);
  EXPECT_GT(added.load(), 0);
  EXPECT_LT(relative_error(*gpu, *cpu), code_tolerance());
  // Where the norm does that wrongly, they are added before it.
  const EmptyCache cache;
  const gpu::testing::Broken broken("batch_norm.wgsl", "p${i} = part${i};",
                                    "p${i} = part${i} * f32(${PARTS < 2}u);");
  const auto summed = logits_of("gpu");
  ASSERT_OK(summed);
  EXPECT_LT(relative_error(*summed, *cpu), code_tolerance());
}

INSTANTIATE_TEST_SUITE_P(Families, SplitPrompts, ::testing::Values("llama", "gemma3"), named_by_param);

}  // namespace
}  // namespace doppler
