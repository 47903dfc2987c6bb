// Prompts on the GPU: whole models in steps of many tokens, stage by stage, against the reference backend.
#include <fmt/format.h>

#include "backend/gpu/batch_fusion.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kContext = 96;

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
    options.context = kContext;
    options.gpu.poison = true;
    auto backend = make_backend("gpu", fixture_->model.spec, fixture_->model.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }
  void expect_stages(const std::map<std::string, std::vector<float>>& got,
                     const std::map<std::string, std::vector<float>>& expected) {
    EXPECT_EQ(got.size(), expected.size());
    for (const auto& [name, values] : expected) {
      const auto found = got.find(name);
      ASSERT_TRUE(found != got.end()) << name;
      EXPECT_LT(relative_error(found->second, values), tolerance_of(GetParam())) << name;
    }
  }

  std::unique_ptr<FixtureModel> fixture_;
  std::vector<std::int32_t> sequence_;
};

TEST_P(Prompts, PassTheReferencesStagesInPiecesOfAnySize) {
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", fixture_->model.spec,
                                                          fixture_->model.weights, {.context = kContext}));
  KeepStages expected;
  run_in_pieces(*reference, sequence_, {70}, &expected);
  const auto gpu = make();
  ASSERT_TRUE(gpu);
  for (const std::size_t piece : {70, 33, 7}) {
    SCOPED_TRACE(piece);
    KeepStages got;
    gpu->clear(0);
    run_in_pieces(*gpu, sequence_, {piece}, &got);
    expect_stages(got.stages, expected.stages);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Prompts, ::testing::ValuesIn(kDenseFixtures),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace doppler
