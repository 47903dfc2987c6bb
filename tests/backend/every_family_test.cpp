// Every family, with random weights and the default switches of its class: the cpu backend computes at each
// stage what the reference does, of a prompt and of single tokens.
#include "harness.h"
#include "model_fixture.h"

namespace doppler {
namespace {

using namespace testing;

class EveryFamily : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryFamily, RunsAlikeOnTheHostBackends) {
  const TinyModel tiny(GetParam());
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  const TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(const Weights weights, bind_weights(spec, rule_of(GetParam()).weight_names, store));
  const BackendOptions options{
      .threads = 2, .context = 32, .slots = 1, .max_step_tokens = 16, .disabled_passes = {}};
  const std::vector<std::int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8};
  std::map<std::string, std::vector<float>> expected;
  for (const char* name : {"reference", "cpu"}) {
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend(name, spec, weights, options));
    KeepStages kept;
    run_in_pieces(*backend, ids, {8, 1}, &kept);
    if (expected.empty()) expected = kept.stages;
    // Keys and values as heads have them, of latent attention, are computed by the reference alone.
    std::erase_if(expected, [&](const auto& stage) {
      const std::string_view text = stage.first;
      return spec.layers[0].attention.is_latent() &&
             (text.ends_with(".k_proj") || text.ends_with(".v_proj") || text.ends_with(".k_rope"));
    });
    std::erase_if(kept.stages, [&](const auto& stage) { return !expected.contains(stage.first); });
    EXPECT_EQ(kept.stages.size(), expected.size());
    for (const auto& [stage, values] : expected)
      EXPECT_LT(relative_error(kept.stages[stage], values),
                spec.layers[0].attention.softcap > 0 ? 1e-3 : 2e-4)
          << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamily, ::testing::ValuesIn(doppler::testing::family_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace doppler
