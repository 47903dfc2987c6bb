// Kernels change their shapes while the fastest are looked for: what one shape has left in a buffer never
// becomes a result of another.
#include "backend/gpu/decode_grouping.h"
#include "backend/gpu/tune.h"

#include <atomic>
#include <set>

#include "backend/gpu/decode_program.h"
#include "gpu_harness.h"
#include "harness.h"
#include "model_fixture.h"
#include "plan/fuse.h"

namespace doppler::gpu {
namespace {

using namespace testing;
using doppler::testing::TinyModel;

// A model whose head has more tiles of rows than a head has workgroups.
class Tune : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kVocab = 6000;

  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    Json config = doppler::testing::tiny_config("llama");
    config["vocab_size"] = kVocab;
    make("llama", config);
  }

  void make(const std::string& family, const Json& config, Mode mode = Mode::kUnchecked) {
    model_ = std::make_unique<TinyModel>(family, config);
    ASSERT_OK_AND_ASSIGN(weights_, model_->bind());
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, model_->spec());
    make(spec, mode);
  }

  void make(const ModelSpec& spec, Mode mode) {
    ASSERT_OK_AND_ASSIGN(Plan plan, build_plan(spec, weights_, 64));
    ASSERT_OK(fuse_plan(plan, weights_, kGpuPasses, {}));
    BackendOptions options{.threads = 2, .context = 64, .max_step_tokens = 8};
    options.kv_type = KvType::kF32;
    options.gpu_setup.self_check = false;
    context_ = std::make_unique<Context>(device(mode), std::move(plan), weights_, options);
    ASSERT_OK(context_->allocate());
    ASSERT_OK_AND_ASSIGN(auto program, DecodeProgram::create(*context_));
    program_ = std::make_unique<DecodeProgram>(std::move(program));
  }

  Status write_token(std::uint32_t id) {
    std::vector<std::uint32_t> words = context_->first_step();
    words[context_->layout.ids()] = id;
    words[StepLayout::kPad] = UINT32_MAX;
    return context_->device->write(context_->step, 0, std::as_bytes(std::span(words)));
  }
  Result<std::vector<float>> logits_after(std::uint32_t id) {
    DOPPLER_TRY(write_token(id));
    Recorder recorder(*context_->device);
    program_->record_logits(recorder, 0);
    DOPPLER_TRY(recorder.submit());
    DOPPLER_ASSIGN(const auto bytes, context_->device->download(program_->logits()));
    std::vector<float> logits(context_->plan.vocab_size);
    std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
    return logits;
  }
  // The likeliest token after this one, by the logits.
  Result<std::uint32_t> likeliest_after(std::uint32_t id) {
    DOPPLER_ASSIGN(const std::vector<float> logits, logits_after(id));
    return static_cast<std::uint32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  // And as the device chooses it.
  Result<std::uint32_t> chosen_after(std::uint32_t id) {
    DOPPLER_TRY(write_token(id));
    Recorder recorder(*context_->device);
    program_->record_greedy(recorder, 0);
    DOPPLER_TRY(recorder.submit());
    DOPPLER_ASSIGN(const auto bytes, context_->device->download(program_->ring()));
    std::uint32_t token = 0;
    std::memcpy(&token, bytes.data(), 4);
    return token;
  }
  Status reshape_heads(std::uint32_t groups) {
    for (std::size_t i = 0; i < program_->sites().size(); ++i) {
      const GemvSite& site = program_->sites()[i];
      if (site.where != GemvSite::Where::kBody)
        DOPPLER_TRY(program_->reshape(*context_, i, site.shape, groups));
    }
    return {};
  }

  std::unique_ptr<TinyModel> model_;
  Weights weights_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<DecodeProgram> program_;
};

TEST_F(Tune, ForgetsTheCandidatesOfAHeadWithMoreWorkgroups) {
  for (std::uint32_t id = 0; id < 40; ++id) {
    ASSERT_OK(reshape_heads(500));
    ASSERT_OK(chosen_after((id * 977 + 5) % kVocab));
    ASSERT_OK(reshape_heads(7));
    ASSERT_OK_AND_ASSIGN(const std::uint32_t expected, likeliest_after(id));
    ASSERT_OK_AND_ASSIGN(const std::uint32_t chosen, chosen_after(id));
    EXPECT_EQ(chosen, expected) << "after token " << id;
  }
}

// A first load waits for a driver once: shapes that are measured compile with the program.
TEST_F(Tune, CompilesWhatItMeasuresWithTheProgram) {
  constexpr std::size_t kShapes = 2;
  std::atomic<int> compiled = 0;
  gpu::shader_watcher() = [&](std::string_view, const ShaderValues&) { ++compiled; };
  const auto ahead = [&](const DecodeProgram& made) { return tune_ahead(*context_, made, kShapes); };
  auto program = DecodeProgram::create(*context_, {}, nullptr, ahead);
  const int with_program = compiled.exchange(0);
  constexpr double kSeconds = 0;  // the first kind of product only
  const Result<std::vector<TuneRow>> measured =
      program ? tune(*context_, *program, kSeconds, kShapes) : std::unexpected(program.error());
  gpu::shader_watcher() = nullptr;
  ASSERT_OK(program);
  ASSERT_OK(measured);
  EXPECT_GT(with_program, 0);
  EXPECT_GT(measured->size(), 1u);
  EXPECT_EQ(compiled, 0);
}

// Models of floats, 8-bit blocks and experts; with sums by shuffles, and through workgroup memory.
class SameSums : public Tune, public ::testing::WithParamInterface<std::tuple<const char*, Mode>> {};

// What a load measures must not change what a user reads.
TEST_P(SameSums, WhateverTheShape) {
  const auto [file, mode] = GetParam();
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(doppler::testing::data_path(file)));
  weights_ = model.weights;
  make(model.spec, mode);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, logits_after(7));
  std::size_t reshaped = 0;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < program_->sites().size(); ++i) {
    const GemvSite& site = program_->sites()[i];
    // The greedy heads leave no logits; of sites of one kind the first stands for all.
    if (site.where == GemvSite::Where::kGreedyHead || !seen.insert(site.key()).second) continue;
    const GemvShape own = site.shape;
    const std::uint32_t groups = site.head_groups;
    constexpr std::size_t kMost = 7;  // each is a kernel to compile
    for (const GemvShape& shape : site.shapes(*context_->device, kMost)) {
      ASSERT_OK(program_->reshape(*context_, i, shape, groups));
      ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, logits_after(7));
      EXPECT_TRUE(logits == expected)
          << site.key() << ": " << shape.rows << " rows, " << shape.lanes << " lanes, " << shape.units
          << " units, " << shape.at_once << " at once";
      ++reshaped;
    }
    ASSERT_OK(program_->reshape(*context_, i, own, groups));
  }
  EXPECT_GE(reshaped, 15u);
}

std::string file_and_mode(const ::testing::TestParamInfo<std::tuple<const char*, Mode>>& test) {
  return doppler::testing::as_test_name(std::get<0>(test.param)) +
         (std::get<1>(test.param) == Mode::kNoSubgroups ? "_without_subgroups" : "");
}
INSTANTIATE_TEST_SUITE_P(Files, SameSums,
                         ::testing::Values(std::tuple("models/gemma3", Mode::kUnchecked),
                                           std::tuple("gguf/llama_k256.Q4_K_M.gguf", Mode::kUnchecked)),
                         file_and_mode);
INSTANTIATE_TEST_SUITE_P(More, SameSums,
                         ::testing::Values(std::tuple("gguf/gemma3_k288.Q4_0.gguf", Mode::kUnchecked),
                                           std::tuple("models/gpt_oss", Mode::kUnchecked),
                                           std::tuple("gguf/gemma3_k288.Q4_0.gguf", Mode::kNoSubgroups)),
                         file_and_mode);

// Behind an expert that rounding chose otherwise logits differ, which says nothing of a shape: each is judged
// by what its own product leaves.
TEST_F(Tune, TakesShapesThatLeaveTheSameAndNoOther) {
  make("mixtral", doppler::testing::tiny_config("mixtral"));
  constexpr double kSeconds = 0.01;
  constexpr std::size_t kCandidates = 2;
  ASSERT_OK_AND_ASSIGN(const std::vector<TuneRow> rows, tune(*context_, *program_, kSeconds, kCandidates));
  ASSERT_FALSE(rows.empty());
  EXPECT_TRUE(std::ranges::any_of(rows, &TuneRow::chosen));
  EXPECT_TRUE(std::ranges::none_of(rows, &TuneRow::wrong));
}

// What is measured decides, once; what is remembered is not measured again.
TEST_F(Tune, RunsOpByOpWithoutSubgroupsWhereThatIsFaster) {
  Json config = doppler::testing::tiny_config("llama");
  config["vocab_size"] = kVocab;
  make("llama", config, Mode::kNoSubgroups);
  EXPECT_TRUE(program_->declined().empty());
  const std::size_t kernels = program_->body().size();
  ASSERT_OK(choose_grouping(*context_, *program_));
  ASSERT_EQ(context_->tuned.size(), 1u);
  const std::string key = context_->tuned.begin()->first;
  const bool was_faster = context_->tuned.begin()->second.head_groups == 1;
  EXPECT_EQ(program_->body().size() > kernels, was_faster);
  for (const std::uint32_t faster : {0u, 1u}) {
    make("llama", config, Mode::kNoSubgroups);
    context_->tuned[key] = {{.rows = 1, .lanes = 1, .units = 1}, faster};
    ASSERT_OK_AND_ASSIGN(const std::uint32_t expected, likeliest_after(5));
    ASSERT_OK(choose_grouping(*context_, *program_));
    EXPECT_EQ(context_->tuned.size(), 1u);
    EXPECT_EQ(program_->body().size() > kernels, faster == 1);
    EXPECT_EQ(!program_->declined().empty(), faster == 1);
    ASSERT_OK_AND_ASSIGN(const std::uint32_t chosen, likeliest_after(5));
    EXPECT_EQ(chosen, expected);
  }
}

TEST_F(Tune, GroupsOpsWhereSubgroupsAreWideEnough) {
  if (device(Mode::kUnchecked)->features().subgroup_size < 8) GTEST_SKIP() << "they are not, here";
  ASSERT_OK(choose_grouping(*context_, *program_));
  EXPECT_TRUE(context_->tuned.empty());
  EXPECT_TRUE(program_->declined().empty());
}

}  // namespace
}  // namespace doppler::gpu
