// Attention of newest tokens with heads as wide and as many to a KV head as models have them: how threads and
// memory of a workgroup are shared out depends on both (split_attention.h), and fixtures are narrow.
#include "gpu_harness.h"
#include "harness.h"
#include "model_fixture.h"

namespace doppler {
namespace {

using namespace testing;

struct HeadSizes {
  const char* what;
  std::uint32_t dim, heads, kv_heads;
  KvType cache = KvType::kF16;
  std::uint32_t workgroup_bytes = UINT32_MAX;
};

class GpuHeads : public ::testing::TestWithParam<HeadSizes> {
 protected:
  static constexpr std::uint32_t kSequences = 3, kPrompt = 30, kSteps = 4;  // into the second split of 32

  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    Json config = tiny_config("llama");
    config.update({{"num_hidden_layers", 1},
                   {"head_dim", GetParam().dim},
                   {"num_attention_heads", GetParam().heads},
                   {"num_key_value_heads", GetParam().kv_heads}});
    model_ = std::make_unique<TinyModel>("llama", config);
    ASSERT_OK_AND_ASSIGN(weights_, model_->bind());
    ASSERT_OK_AND_ASSIGN(spec_, model_->spec());
  }
  Result<std::unique_ptr<Backend>> make(const char* name) const {
    BackendOptions options{
        .threads = 2, .context = 64, .slots = kSequences, .max_step_tokens = kPrompt + kSteps};
    options.kv_type = GetParam().cache;
    options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
    options.gpu_setup.tune = false;
    options.gpu_setup.most_workgroup_bytes = GetParam().workgroup_bytes;
    return make_backend(name, spec_, weights_, options);
  }
  // The logits of each sequence's newest tokens, step by step: in one step for all, or one for each.
  static std::vector<float> logits_of(Backend& backend, bool together) {
    std::vector<std::int32_t> prompt(kPrompt);
    for (std::uint32_t i = 0; i < kPrompt; ++i) prompt[i] = static_cast<std::int32_t>(i * 7 % 61);
    for (std::uint32_t slot = 0; slot < kSequences; ++slot) {
      backend.clear(static_cast<std::int32_t>(slot));
      run_in_pieces(backend, prompt, {kPrompt}, nullptr, static_cast<std::int32_t>(slot));
    }
    std::vector<float> all;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      std::vector<Token> tokens;
      for (std::uint32_t slot = 0; slot < kSequences; ++slot) {
        tokens.push_back({static_cast<std::int32_t>(5 + 11 * slot + step),
                          static_cast<std::int32_t>(kPrompt + step), static_cast<std::int32_t>(slot)});
        if (together && slot + 1 < kSequences) continue;
        const auto logits = backend.step(step_of(tokens), nullptr);
        EXPECT_TRUE(logits) << logits.error().message;
        if (!logits) return all;
        all.insert(all.end(), logits->begin(), logits->end());
        tokens.clear();
      }
    }
    return all;
  }

  std::unique_ptr<TinyModel> model_;
  Weights weights_;
  ModelSpec spec_;
};

TEST_P(GpuHeads, AreThoseOfTheReferenceAloneAndInCompany) {
  ASSERT_OK_AND_ASSIGN(const auto gpu, make("gpu"));
  ASSERT_OK_AND_ASSIGN(const auto reference, make("reference"));
  const std::vector<float> alone = logits_of(*gpu, false), together = logits_of(*gpu, true);
  EXPECT_EQ(alone.size(), std::size_t{kSteps} * kSequences * spec_.vocab_size);
  EXPECT_TRUE(alone == together);
  // Parts of an attention are as exact as the cache.
  const double most = GetParam().cache == KvType::kF16 ? 2e-3 : 2e-5;
  EXPECT_LE(relative_error(alone, logits_of(*reference, false)), most);
}

std::string what_of(const ::testing::TestParamInfo<HeadSizes>& test) {
  return test.param.what;
}
INSTANTIATE_TEST_SUITE_P(Widths, GpuHeads,
                         ::testing::Values(HeadSizes{"WideOnesThatAllShare", 256, 4, 1},  // as Gemma 3 1B
                                           HeadSizes{"AsFloats", 128, 4, 1, KvType::kF32},
                                           // Rows of 16 x 264 bytes a head, behind 1,536.
                                           HeadSizes{"RowsOfAHeadAtATime", 64, 4, 1, KvType::kF16, 8192},
                                           HeadSizes{"RowsOfTwoAtATime", 64, 4, 1, KvType::kF16, 12288},
                                           // Of a workgroup of 16 threads.
                                           HeadSizes{"MoreThanTeams", 8, 8, 2},
                                           HeadSizes{"MoreQuadsThanThreads", 72, 2, 1}),
                         what_of);
INSTANTIATE_TEST_SUITE_P(More, GpuHeads,
                         ::testing::Values(HeadSizes{"HalfOfThoseThatShare", 64, 8, 1},  // as gpt-oss
                                           HeadSizes{"SeveralVectorsAThread", 48, 3, 1},
                                           HeadSizes{"TheWidest", 512, 2, 1}),
                         what_of);

}  // namespace
}  // namespace doppler
