// Products in one dispatch, waiting for one another or side by side, give the same bits as one after the
// other, token after token, whoever else reads what they hand over.
#include "backend/gpu/decode_join.h"

#include <bit>
#include <set>

#include "gpu_harness.h"
#include "harness.h"
#include "model_fixture.h"
#include "plan/fuse.h"

namespace doppler::gpu {
namespace {

using namespace testing;
using doppler::testing::data_path;
using doppler::testing::encoded;
using doppler::testing::TinyModel;

// Everything that a program for single tokens can show, as it shows it.
class Everything final : public Tap {
 public:
  bool wants(Stage, int) const override { return true; }
  void on_stage(const TapEvent& event) override {
    seen.insert(seen.end(), event.data.begin(), event.data.end());
  }
  std::vector<float> seen;
};

// A family, and `mixed`: the values' projections are of another format than those of queries and keys.
struct JoinCase {
  const char* family;
  bool mixed = false;
};

constexpr std::uint32_t kTokens = 40;

// A model's context, and what its programs compute.
class JoinTest : public ::testing::Test {
 protected:
  void prepare(const ModelSpec& spec, const Weights& weights) {
    ASSERT_OK_AND_ASSIGN(Plan plan, build_plan(spec, weights, 64));
    ASSERT_OK(fuse_plan(plan, weights, kGpuPasses, {}));
    BackendOptions options{.threads = 2, .context = 64, .max_step_tokens = 8};
    options.kv_type = KvType::kF32;
    options.gpu_setup.self_check = false;
    options.gpu_setup.most_split_bytes =
        1;  // splits are put together by a kernel of their own from position 32 on
    context_ = std::make_unique<Context>(device(Mode::kUnchecked), std::move(plan), weights, options);
    ASSERT_OK(context_->allocate());
  }

  Result<std::vector<float>> logits_at(const DecodeProgram& program, std::uint32_t position) {
    std::vector<std::uint32_t> words = context_->first_step();
    words[context_->layout.ids()] = 5 + position % 50;
    words[context_->layout.positions()] = position;
    DOPPLER_TRY(context_->device->write(context_->step, 0, std::as_bytes(std::span(words))));
    Recorder recorder(*context_->device);
    program.record_logits(recorder, position);
    DOPPLER_TRY(recorder.submit());
    DOPPLER_ASSIGN(const auto bytes, context_->device->download(program.logits()));
    std::vector<float> logits(context_->plan.vocab_size);
    std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
    return logits;
  }

  // A software adapter's loop ends after 65,535 rounds, in which a busy machine may not have let those run
  // that it waits for: NaN, and the token is computed again.
  Result<std::vector<float>> awaited_logits_at(const DecodeProgram& program, std::uint32_t position) {
    constexpr int kMostTimes = 200;
    std::vector<float> logits;
    for (int times = 0; times < kMostTimes && (logits.empty() || std::isnan(logits[0])); ++times) {
      DOPPLER_ASSIGN(logits, logits_at(program, position));
    }
    return logits;
  }

  // The logits of the tokens of a sequence, one after the other.
  Result<std::vector<float>> logits_of(const DecodeProgram& program, std::uint32_t tokens) {
    std::vector<float> all;
    for (std::uint32_t position = 0; position < tokens; ++position) {
      DOPPLER_ASSIGN(const std::vector<float> logits, awaited_logits_at(program, position));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // Of the program as it is and with these of its products in one dispatch.
  void expect_same_bits(DecodeProgram& joined, std::span<const Joint> joints, std::uint32_t tokens) {
    const std::size_t before = joined.dispatches(0);
    ASSERT_OK_AND_ASSIGN(DecodeProgram apart, DecodeProgram::create(*context_));
    ASSERT_OK(join(*context_, joined, joints));
    ASSERT_LT(joined.dispatches(0), before);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, logits_of(apart, tokens));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> got, logits_of(joined, tokens));
    EXPECT_EQ(expected, got);
  }

  std::unique_ptr<Context> context_;
};

class Join : public JoinTest, public ::testing::WithParamInterface<JoinCase> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    Json config = doppler::testing::tiny_config(GetParam().family);
    config.update(
        {{"hidden_size", 256}, {"intermediate_size", 320}, {"moe_intermediate_size", 256}, {"head_dim", 64}});
    if (GetParam().mixed) config["hidden_size"] = 512;  // so that the smallest product fills a workgroup
    model_ = std::make_unique<TinyModel>(GetParam().family, config);
    for (auto& [name, tensor] : model_->tensors) {
      if (GetParam().mixed && name.find("v_proj") != std::string::npos)
        tensor = encoded(tensor, DType::kBF16);
    }
    ASSERT_OK_AND_ASSIGN(weights_, model_->bind());
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, model_->spec());
    prepare(spec, weights_);
  }

  void expect_same_bits() {
    ASSERT_OK_AND_ASSIGN(DecodeProgram joined, DecodeProgram::create(*context_));
    const std::vector<Joint> joints = all_joints(*context_, joined);
    const auto besides =
        std::ranges::count_if(joints, [](const Joint& each) { return each.beside.has_value(); });
    EXPECT_EQ(besides, GetParam().mixed ? 3 : 0);
    // Late positions have other products before a gate and up, none beside one another.
    JoinTest::expect_same_bits(joined, joints, GetParam().mixed ? 8 : kTokens);
  }

  std::unique_ptr<TinyModel> model_;
  Weights weights_;
};

TEST_P(Join, GivesTheBitsOfKernelsByThemselves) {
  expect_same_bits();
}

using JoinMixed = Join;
TEST_P(JoinMixed, GivesTheBitsOfKernelsByThemselves) {
  expect_same_bits();
}

// The product of early positions would be joined, the one of late positions not: what a token after a late
// one finds handed over would be of a token before.
TEST_P(Join, LeavesBothWhereOneOfTwoThatTakeTurnsIsNotWanted) {
  ASSERT_OK_AND_ASSIGN(DecodeProgram program, DecodeProgram::create(*context_));
  std::vector<Joint> joints = all_joints(*context_, program);
  ASSERT_OK_AND_ASSIGN(DecodeProgram apart, DecodeProgram::create(*context_));
  std::set<std::size_t> seconds;
  std::erase_if(joints, [&](const Joint& each) { return !seconds.insert(each.product).second; });
  ASSERT_LT(std::ranges::count_if(joints, [](const Joint& each) { return each.pair.has_value(); }),
            std::ssize(program.pairs()));
  ASSERT_OK(join(*context_, program, joints));
  ASSERT_OK_AND_ASSIGN(std::vector<float> expected, logits_of(apart, kTokens));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> got, logits_of(program, kTokens));
  EXPECT_EQ(expected, got);
  // And again from the first token on, behind late ones.
  ASSERT_OK_AND_ASSIGN(const std::vector<float> again, logits_of(program, kTokens));
  EXPECT_EQ(expected, again);
}

// A tap that looks at what is handed over does not keep two products apart, and sees the same.
TEST_P(Join, ShowsTapsWhatIsHandedOver) {
  const auto shown = [&](const DecodeProgram& program) -> Result<std::vector<float>> {
    const TapRing& taps = *program.taps();
    const StepInput input;
    Everything tap;
    for (std::uint32_t position = 0; position < 3; ++position) {
      DOPPLER_TRY(awaited_logits_at(program, position));
      DOPPLER_ASSIGN(const Buffer back, context_->device->make_read_back("taps", taps.token_bytes()));
      Recorder recorder(*context_->device);
      taps.record_copy(recorder, 0, 1, back);
      DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
      DOPPLER_TRY(context_->device->read(back, taps.token_bytes(), submission,
                                         [&](auto bytes) { taps.show(bytes, input, tap); }));
    }
    return tap.seen;
  };
  const Looks looks = looks_of(context_->plan, Everything());
  ASSERT_OK_AND_ASSIGN(DecodeProgram joined, DecodeProgram::create(*context_, looks));
  ASSERT_OK_AND_ASSIGN(const DecodeProgram apart, DecodeProgram::create(*context_, looks));
  const std::vector<Joint> joints = all_joints(*context_, joined);
  if (joints.empty()) GTEST_SKIP() << "experts whose results are shown one by one hand nothing over";
  EXPECT_TRUE(std::ranges::any_of(joints, [](const Joint& each) { return each.pair && each.pair->keeps; }));
  ASSERT_OK(join(*context_, joined, joints));
  ASSERT_LT(joined.dispatches(0), apart.dispatches(0));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, shown(apart));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> got, shown(joined));
  EXPECT_FALSE(expected.empty());
  EXPECT_TRUE(got == expected);
}

// A model, and the threads of a row.
struct AheadCase {
  const char* name;
  const char* file;
  std::uint32_t lanes;
};

class JoinAhead : public JoinTest, public ::testing::WithParamInterface<AheadCase> {};

// A thread that waits has its next unit under way: with one unit behind the first, with several, and with
// lanes that have fewer than others or none.
TEST_P(JoinAhead, GivesTheBitsOfKernelsByThemselves) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path(GetParam().file)));
  prepare(model.spec, model.weights);
  ASSERT_OK_AND_ASSIGN(DecodeProgram joined, DecodeProgram::create(*context_));
  const auto shape_of = [&](std::size_t site) {
    const std::uint32_t share = (joined.sites()[site].units + GetParam().lanes - 1) / GetParam().lanes;
    return GemvShape{.rows = 32, .lanes = GetParam().lanes, .units = std::bit_ceil(share), .at_once = 1};
  };
  std::vector<Joint> joints;
  std::size_t ahead = 0;
  for (const DecodeProgram::Pair& pair : joined.pairs()) {
    if (!are_apart(joined, pair)) continue;
    joints.push_back({.product = pair.second,
                      .pair = pair,
                      .first = shape_of(pair.first),
                      .second = shape_of(pair.second)});
    ahead += loads_ahead(joined.sites()[pair.second], joints.back().second) ? 1 : 0;
  }
  EXPECT_GE(ahead, 2u);
  expect_same_bits(joined, joints, kTokens);
}

std::string name_of(const ::testing::TestParamInfo<AheadCase>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Shapes, JoinAhead,
                         ::testing::Values(AheadCase{"FourUnits", "gguf/llama_k256.Q4_K_M.gguf", 1},
                                           AheadCase{"TwoUnits", "gguf/llama_k256.Q4_K_M.gguf", 2},
                                           AheadCase{"FiveOfEight", "gguf/gemma3_k288.Q4_0.gguf", 1},
                                           AheadCase{"FourAndOne", "gguf/gemma3_k288.Q4_0.gguf", 2},
                                           AheadCase{"TwoTwoAndOne", "gguf/gemma3_k288.Q4_0.gguf", 3},
                                           AheadCase{"OneLaneTooMany", "gguf/gemma3_k288.Q4_0.gguf", 4}),
                         name_of);

std::string family_of(const ::testing::TestParamInfo<JoinCase>& info) {
  return info.param.family;
}
INSTANTIATE_TEST_SUITE_P(Families, Join, ::testing::Values(JoinCase{"gemma3"}, JoinCase{"mixtral"}),
                         family_of);
INSTANTIATE_TEST_SUITE_P(More, Join, ::testing::Values(JoinCase{"llama"}, JoinCase{"qwen3"}), family_of);
INSTANTIATE_TEST_SUITE_P(Families, JoinMixed,
                         ::testing::Values(JoinCase{"llama", true}, JoinCase{"gemma3", true}), family_of);

}  // namespace
}  // namespace doppler::gpu
