// The newest tokens of several sequences in one step: each has the logits that it has alone, to the bit.
#include <algorithm>
#include <cctype>
#include <string>
#include <tuple>

#include "gpu_harness.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

// Columns of one product, and tiles of 16, 32 and 64 tokens.
constexpr std::uint32_t kCounts[] = {3, 12};
constexpr std::uint32_t kMost = 12, kSteps = 2, kStep = 512;

class GpuCompany : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(std::get<0>(GetParam()))));
    BackendOptions options{.threads = 2, .context = 640, .slots = kMost, .max_step_tokens = kStep};
    options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
    options.gpu_setup.tune = false;
    options.exact = std::get<1>(GetParam());
    ASSERT_OK_AND_ASSIGN(backend_, make_backend("gpu", model_.spec, model_.weights, options));
  }

  // A length of its own for each: some have one split of an attention, some more than workgroups share.
  static std::uint64_t length(std::uint32_t slot) { return slot == 1 ? 600 : 2 + slot * 17 % 180; }
  std::int32_t token(std::uint32_t slot, std::uint64_t at) const {
    return static_cast<std::int32_t>((at * 31 + 7 + 11 * slot) % model_.spec.vocab_size);
  }
  Status feed_prompts(std::uint32_t count) {
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      backend_->clear(slot);
      StepInput input;
      for (std::uint64_t i = 0; i < length(slot); ++i) {
        input.add(token(slot, i), i, slot, false);
        if (input.size() < kStep && i + 1 < length(slot)) continue;
        DOPPLER_TRY(backend_->step(input, nullptr));
        input = {};
      }
    }
    return {};
  }
  // The logits of each sequence's newest token, by slot.
  Result<std::vector<float>> logits_after(std::uint32_t count, bool together) {
    DOPPLER_TRY(feed_prompts(count));
    std::vector<float> all;
    for (std::uint32_t s = 0; s < kSteps; ++s) {
      StepInput input;
      for (std::uint32_t slot = 0; slot < count; ++slot) {
        const std::uint64_t at = length(slot) + s;
        input.add(token(slot, at), at, slot, true);
        if (together && slot + 1 < count) continue;
        DOPPLER_ASSIGN(const std::span<const float> logits, backend_->step(input, nullptr));
        all.insert(all.end(), logits.begin(), logits.end());
        input = {};
      }
    }
    return all;
  }

  // A sequence that goes on greedily: its tokens, and then the keys and values of all of them.
  struct Said {
    std::vector<TokenId> tokens;
    std::vector<std::byte> cache;
    bool operator==(const Said&) const = default;
  };
  Continuation continuation(std::uint32_t slot) {
    history_ = {token(slot, length(slot))};
    // They end one after the other, so that the last one is alone in the end.
    return {.slot = slot,
            .id = history_[0],
            .most = 4 + std::uint64_t{6} * slot,
            .sampling = &greedy_,
            .history = history_,
            .stops = {}};
  }
  Result<Said> alone(std::uint32_t slot) {
    DOPPLER_TRY(backend_->continuer()->continue_sequence(continuation(slot)));
    Said said;
    for (;;) {
      DOPPLER_ASSIGN(const auto some, backend_->continuer()->next_tokens());
      if (some.empty()) break;
      said.tokens.insert(said.tokens.end(), some.begin(), some.end());
    }
    DOPPLER_TRY(backend_->continuer()->stop_sequence(length(slot) + said.tokens.size()));
    DOPPLER_ASSIGN(said.cache, backend_->cache()->read(slot));
    return said;
  }
  Result<std::vector<Said>> in_company(std::uint32_t count) {
    std::vector<Said> all(count);
    for (std::uint32_t slot = 0; slot < count; ++slot)
      DOPPLER_TRY(backend_->continuer()->join(continuation(slot)));
    for (;;) {
      DOPPLER_ASSIGN(const auto some, backend_->continuer()->tokens_of_all());
      if (some.empty()) break;
      for (const SlotToken& each : some) all[each.slot].tokens.push_back(each.id);
    }
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      DOPPLER_TRY(backend_->continuer()->leave(slot, length(slot) + all[slot].tokens.size()));
      DOPPLER_ASSIGN(all[slot].cache, backend_->cache()->read(slot));
    }
    return all;
  }

  Model model_;
  std::unique_ptr<Backend> backend_;
  const GenerateOptions greedy_{};
  std::vector<TokenId> history_;
};

// Whoever comes and goes: the keys and values of every layer are the same bits, the last one's too.
TEST_P(GpuCompany, LeavesEachItsKeysAndValues) {
  constexpr std::uint32_t kTogether = 4;
  ASSERT_OK(feed_prompts(kTogether));
  ASSERT_OK_AND_ASSIGN(const std::vector<Said> together, in_company(kTogether));
  ASSERT_OK(feed_prompts(kTogether));
  for (std::uint32_t slot = 0; slot < kTogether; ++slot) {
    ASSERT_OK_AND_ASSIGN(const Said expected, alone(slot));
    EXPECT_EQ(together[slot].tokens, expected.tokens) << "sequence " << slot;
    EXPECT_TRUE(together[slot].cache == expected.cache) << "sequence " << slot;
  }
}

TEST_P(GpuCompany, LeavesEachItsLogits) {
  ASSERT_NE(backend_->continuer(), nullptr);
  ASSERT_GE(backend_->continuer()->most_together(), kMost);
  for (const std::uint32_t count : kCounts) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> alone, logits_after(count, false));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> together, logits_after(count, true));
    ASSERT_EQ(alone.size(), together.size());
    std::size_t others = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) others += alone[i] != together[i] ? 1 : 0;
    EXPECT_EQ(others, 0u) << "of " << alone.size() << " logits of " << count << " sequences";
  }
}

// Guesses that are checked: tokens that follow one another in one step, then one by one.
TEST_P(GpuCompany, LeavesTokensOfOneSequenceTheirLogits) {
  ASSERT_GE(backend_->rows_that_agree(), 12u);
  for (const std::uint32_t count : kCounts) {
    for (const std::uint32_t slot : {0u, 1u}) {
      const auto logits_of = [&](bool together) -> Result<std::vector<float>> {
        DOPPLER_TRY(feed_prompts(2));
        std::vector<float> all;
        StepInput input;
        input.guesses = together;
        for (std::uint32_t i = 0; i < count; ++i) {
          input.add(token(slot, length(slot) + i), length(slot) + i, slot, true);
          if (together && i + 1 < count) continue;
          DOPPLER_ASSIGN(const std::span<const float> logits, backend_->step(input, nullptr));
          all.insert(all.end(), logits.begin(), logits.end());
          input = {};
        }
        return all;
      };
      ASSERT_OK_AND_ASSIGN(const std::vector<float> alone, logits_of(false));
      ASSERT_OK_AND_ASSIGN(const std::vector<float> together, logits_of(true));
      EXPECT_TRUE(alone == together) << count << " tokens of sequence " << slot;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<const char*, bool>>& test) {
  return as_test_name(std::get<0>(test.param)) + (std::get<1>(test.param) ? "_in_floats" : "");
}

INSTANTIATE_TEST_SUITE_P(Files, GpuCompany,
                         ::testing::Combine(::testing::Values("gguf/gemma3_k288.Q4_0.gguf", "models/llama",
                                                              "models/gpt_oss"),
                                            ::testing::Values(false)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(More, GpuCompany,
                         ::testing::Combine(::testing::Values("models/qwen2", "models/olmo3", "models/cohere",
                                                              "models/olmoe_clip"),
                                            ::testing::Values(false)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Floats, GpuCompany,
                         ::testing::Combine(::testing::Values("gguf/llama.Q8_0.gguf"),
                                            ::testing::Values(true)),
                         name_of);

}  // namespace
}  // namespace doppler
