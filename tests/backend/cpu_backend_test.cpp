// The cpu backend runs whole models: against the reference backend and transformers, and always with the same
// bits.
#include <fmt/format.h>

#include "base/float16.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kContext = 64;

class WholeModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(fixture_, load_fixture(GetParam()));
    sequence_ = fixture_->prompt;
    // Decoding is forced along the recorded ids; the last one is only an answer.
    sequence_.insert(sequence_.end(), fixture_->greedy.begin(), fixture_->greedy.end() - 1);
  }

  std::unique_ptr<Backend> make(BackendOptions options = {.threads = 2},
                                const cpu::Kernels& kernels = cpu::best_kernels()) {
    options.context = kContext;
    auto backend = make_cpu_backend_for(kernels, fixture_->model.spec, fixture_->model.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }

  // The prompt in one step, then token by token.
  std::vector<std::size_t> as_generated() const { return {fixture_->prompt.size(), 1}; }

  std::unique_ptr<FixtureModel> fixture_;
  std::vector<std::int32_t> sequence_;
};

TEST_P(WholeModel, AgreesWithTheReferenceBackendAtEveryStage) {
  BackendOptions options{.context = kContext};
  ASSERT_OK_AND_ASSIGN(const auto reference,
                       make_backend("reference", fixture_->model.spec, fixture_->model.weights, options));
  KeepStages expected;
  run_in_pieces(*reference, sequence_, as_generated(), &expected);
  for (const cpu::Kernels& kernels : cpu::all_kernels()) {
    SCOPED_TRACE(kernels.target);
    KeepStages got;
    run_in_pieces(*make({.threads = 2}, kernels), sequence_, as_generated(), &got);
    EXPECT_EQ(got.stages.size(), expected.stages.size());
    for (const auto& [name, values] : expected.stages) {
      EXPECT_LT(relative_error(got.stages[name], values), tolerance_of(GetParam())) << name;
    }
  }
}

TEST_P(WholeModel, AgreesWithTransformersInPrefill) {
  KeepStages tap;
  run_in_pieces(*make(), fixture_->prompt, {fixture_->prompt.size()}, &tap);
  // Transformers keeps Phi's fused projections in one tensor.
  const auto join = [&](const std::string& prefix, std::vector<std::string> parts, const std::string& whole) {
    std::vector<float>& rows = tap.stages[prefix + whole];
    for (std::size_t t = 0; t < fixture_->prompt.size(); ++t) {
      for (const std::string& part : parts) {
        const std::vector<float>& from = tap.stages[prefix + part];
        const std::size_t width = from.size() / fixture_->prompt.size();
        rows.insert(rows.end(), from.begin() + static_cast<std::ptrdiff_t>(t * width),
                    from.begin() + static_cast<std::ptrdiff_t>((t + 1) * width));
      }
    }
  };
  for (std::size_t i = 0; i < fixture_->model.spec.layers.size(); ++i) {
    join(fmt::format("layers.{}.", i), {"q_proj", "k_proj", "v_proj"}, "qkv_proj");
    join(fmt::format("layers.{}.", i), {"ffn_gate", "ffn_up"}, "ffn_gate_up");
  }
  std::size_t compared = 0;
  for (const auto& [name, tensor] : fixture_->recording.tensors()) {
    if (name == "prompt_ids" || name == "greedy_ids" || name == "decode_logits") continue;
    ASSERT_TRUE(tap.stages.contains(name)) << name;
    EXPECT_LT(relative_error(tap.stages[name], fixture_->recorded(name)), tolerance_of(GetParam())) << name;
    ++compared;
  }
  EXPECT_GT(compared, 10 * fixture_->model.spec.layers.size());
}

TEST_P(WholeModel, AgreesWithTransformersWhenDecoding) {
  const std::vector<float> logits = run_in_pieces(*make(), sequence_, as_generated());
  const std::size_t vocab = fixture_->model.spec.vocab_size, prompt = fixture_->prompt.size();
  const std::span<const float> decoded = std::span(logits).subspan(prompt * vocab);
  EXPECT_LT(relative_error(decoded, fixture_->recorded("decode_logits")), tolerance_of(GetParam()));
  for (std::size_t i = 0; i < fixture_->greedy.size(); ++i) {
    const auto row = std::span(logits).subspan((prompt - 1 + i) * vocab, vocab);
    EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), fixture_->greedy[i]) << "step " << i;
  }
}

TEST_P(WholeModel, GivesTheSameBitsForAnyThreadsAndPieces) {
  for (const cpu::Kernels& kernels : cpu::all_kernels()) {
    SCOPED_TRACE(kernels.target);
    const std::vector<float> expected =
        run_in_pieces(*make({.threads = 1}, kernels), sequence_, as_generated());
    for (const std::size_t threads : {1, 2, 4}) {
      for (const std::size_t piece : {1, 3, 7, 256}) {
        EXPECT_TRUE(run_in_pieces(*make({.threads = threads}, kernels), sequence_, {piece}) == expected)
            << threads << " threads, pieces of " << piece;
      }
    }
  }
}

TEST_P(WholeModel, GivesTheSameBitsBesideAnotherSequence) {
  const std::vector<float> expected = run_in_pieces(*make(), sequence_, as_generated());
  const auto backend = make({.threads = 2, .slots = 3});
  const std::size_t vocab = fixture_->model.spec.vocab_size;
  // The other sequence is the same ids backwards, two tokens for each of ours, in slot 2; ours is in slot 1.
  std::vector<float> got;
  for (std::size_t i = 0; i < sequence_.size(); ++i) {
    const auto other = [&](std::size_t at) {
      return sequence_[sequence_.size() - 1 - at % sequence_.size()];
    };
    const auto p = static_cast<std::int32_t>(i);
    const StepInput input =
        step_of({{other(2 * i), 2 * p, 2}, {sequence_[i], p, 1}, {other(2 * i + 1), 2 * p + 1, 2}});
    ASSERT_OK_AND_ASSIGN(const auto logits, backend->step(input, nullptr));
    got.insert(got.end(), logits.begin() + static_cast<std::ptrdiff_t>(vocab),
               logits.begin() + static_cast<std::ptrdiff_t>(2 * vocab));
    if (2 * (i + 2) > kContext) break;
  }
  ASSERT_GE(got.size(), fixture_->prompt.size() * vocab);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
}

TEST_P(WholeModel, LookingDoesNotDisturb) {
  const auto backend = make();
  KeepStages tap;
  const std::vector<float> looked_at = run_in_pieces(*backend, sequence_, as_generated(), &tap);
  backend->clear(0);
  EXPECT_TRUE(run_in_pieces(*backend, sequence_, as_generated()) == looked_at);
  // The stages, too, are those that other groupings pass through.
  KeepStages in_pieces;
  backend->clear(0);
  run_in_pieces(*backend, sequence_, {5}, &in_pieces);
  EXPECT_TRUE(in_pieces.stages == tap.stages);
}

TEST_P(WholeModel, FusedOpsAreTheirParts) {
  const std::vector<float> fused = run_in_pieces(*make(), sequence_, as_generated());
  for (const auto& disabled : std::vector<std::vector<std::string>>{
           {"gated_ffn"}, {"group_matmuls"}, {"gated_ffn", "group_matmuls"}}) {
    EXPECT_TRUE(run_in_pieces(*make({.threads = 2, .disabled_passes = disabled}), sequence_,
                              as_generated()) == fused);
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, WholeModel, ::testing::ValuesIn(kDenseFixtures),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace doppler
