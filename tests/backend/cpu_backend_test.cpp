// The cpu backend runs whole models: against the reference backend and transformers, and always with the same
// bits.
#include <fmt/format.h>

#include "backend/kv_cache.h"
#include "base/float16.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kCpuContext = 64;

class WholeModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(fixture_, load_fixture(GetParam()));
    sequence_ = fixture_->prompt;
    // Decoding is forced along the recorded ids; the last one is only an answer.
    sequence_.insert(sequence_.end(), fixture_->greedy.begin(), fixture_->greedy.end() - 1);
  }

  std::unique_ptr<Backend> make(BackendOptions options = {.threads = 2},
                                const cpu::Kernels& kernels = cpu::all_kernels().front()) {
    options.context = kCpuContext;
    auto backend = make_cpu_backend_for(kernels, fixture_->model.spec, fixture_->model.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }

  // The prompt in one step, then token by token.
  std::vector<std::size_t> as_generated() const { return {fixture_->prompt.size(), 1}; }

  std::unique_ptr<FixtureModel> fixture_;
  std::vector<std::int32_t> sequence_;
};

// No family of today has them: a table of another tensor's rows is as good as one of positions.
TEST_P(WholeModel, AddsLearnedPositionsAsTheReferenceDoes) {
  BackendOptions options{.threads = 2, .context = kCpuContext};
  const Model& model = fixture_->model;
  if (model.spec.learned_positions > 0) return;  // all other tests run them
  options.change_plan = [](Plan& plan) { plan.ops[0].weights.push_back(plan.ops[0].weights[0]); };
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", model.spec, model.weights, options));
  const auto cpu = make(options);
  ASSERT_NE(cpu, nullptr);
  KeepStages got, expected;
  run_in_pieces(*cpu, sequence_, as_generated(), &got);
  run_in_pieces(*reference, sequence_, as_generated(), &expected);
  EXPECT_LE(relative_error(got.stages["embed_out"], expected.stages["embed_out"]), 1e-6);
  EXPECT_NE(got.stages["embed_out"], std::vector<float>(got.stages["embed_out"].size()));
}

TEST_P(WholeModel, AgreesWithTheReferenceBackendAtEveryStage) {
  BackendOptions options{.context = kCpuContext};
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
    if (2 * (i + 2) > kCpuContext) break;
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

// Beyond 128 positions attention works in chunks, and with few tokens shares them out among threads; windows
// of 8 tokens have gone round their rings many times.
class LongContext : public WholeModel {};

TEST_P(LongContext, AgreesWithTheReferenceBackendAndWithItself) {
  constexpr std::size_t kTokens = 620;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < kTokens; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * i + 7 * i) % fixture_->model.spec.vocab_size));
  }
  const BackendOptions base{.threads = 1, .context = kTokens, .max_step_tokens = 100};
  ASSERT_OK_AND_ASSIGN(const auto reference,
                       make_backend("reference", fixture_->model.spec, fixture_->model.weights, base));
  KeepStages expected_stages;
  const std::vector<float> expected = run_in_pieces(*reference, ids, {100}, &expected_stages);
  std::vector<float> first;
  const std::pair<std::size_t, std::vector<std::size_t>> runs[] = {
      {1, {100}}, {2, {99, 1, 1, 1, 7, 64, 1}}, {4, {3}}};  // threads, pieces
  for (const auto& [threads, pieces] : runs) {
    BackendOptions options = base;
    options.threads = threads;
    ASSERT_OK_AND_ASSIGN(const auto backend,
                         make_backend("cpu", fixture_->model.spec, fixture_->model.weights, options));
    KeepStages stages;
    const std::vector<float> got = run_in_pieces(*backend, ids, pieces, &stages);
    EXPECT_LT(relative_error(got, expected), tolerance_of(GetParam()));
    const char* scores = "layers.0.attn_scores";
    EXPECT_LT(relative_error(stages.stages[scores], expected_stages.stages[scores]), 2e-4);
    if (first.empty()) first = got;
    EXPECT_TRUE(got == first) << threads << " threads, pieces of " << pieces[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, LongContext, ::testing::Values("llama", "mistral", "gemma2", "gemma3"),
                         named_by_param);

// The same model in another dtype. Weights of a folder are bfloat16, which float32 holds exactly and float16
// nearly.
class StoredAs : public ::testing::TestWithParam<DType> {};

TEST_P(StoredAs, AgreesWithTheReferenceBackendOnTheSameWeights) {
  TempDir folder;
  ASSERT_OK_AND_ASSIGN(const auto fixture, load_fixture("qwen2"));  // it has biases
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>> bytes;
  for (const auto& [name, tensor] : fixture->model.files.tensors.tensors()) {
    std::vector<float> values(*element_count(tensor.shape));
    ASSERT_OK(decode_f32(tensor, 0, values));
    std::vector<std::uint16_t> halves;
    for (const float v : values) halves.push_back(f32_to_f16(v));
    const auto raw =
        GetParam() == DType::kF32 ? std::as_bytes(std::span(values)) : std::as_bytes(std::span(halves));
    bytes.emplace_back(raw.begin(), raw.end());
    tensors.push_back({name, GetParam(), tensor.shape, bytes.back()});
  }
  ASSERT_OK(testing::write_tensors(folder / "model.safetensors", tensors));
  write_file(folder / "config.json", read_file(data_path("models/qwen2/config.json")));
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(folder.path()));
  ASSERT_OK_AND_ASSIGN(const auto reference,
                       make_backend("reference", model.spec, model.weights, {.context = kCpuContext}));
  const std::vector<float> expected = run_in_pieces(*reference, fixture->prompt, {fixture->prompt.size()});
  for (const cpu::Kernels& kernels : cpu::all_kernels()) {
    ASSERT_OK_AND_ASSIGN(const auto backend, make_cpu_backend_for(kernels, model.spec, model.weights,
                                                                  {.threads = 2, .context = kCpuContext}));
    const std::vector<float> got = run_in_pieces(*backend, fixture->prompt, {1, 19});
    EXPECT_LT(relative_error(got, expected), 2e-5) << kernels.target;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StoredAs, ::testing::Values(DType::kF32, DType::kF16),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

class CpuBackendLimits : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(fixture_, load_fixture("llama")); }
  Result<std::unique_ptr<Backend>> make(const BackendOptions& options) {
    return make_cpu_backend(fixture_->model.spec, fixture_->model.weights, options);
  }
  std::unique_ptr<FixtureModel> fixture_;
};

TEST_F(CpuBackendLimits, RefusesAStepBeforeAnythingChanges) {
  ASSERT_OK_AND_ASSIGN(const auto backend,
                       make({.threads = 1, .context = 8, .slots = 2, .max_step_tokens = 4}));
  ASSERT_OK(backend->step(step_of({{1, 0, 0}, {2, 1, 0}}), nullptr));
  EXPECT_ERROR(backend->step(step_of({{3, 2, 0}, {-1, 3, 0}}), nullptr), "token id -1");
  EXPECT_ERROR(backend->step(step_of({{3, 2, 0}, {4, 4, 0}}), nullptr), "position 4", "continues at 3");
  EXPECT_ERROR(backend->step(step_of({{3, 0, 2}}), nullptr), "slot 2");
  EXPECT_ERROR(backend->step(step_of({{1, 2, 0}, {1, 3, 0}, {1, 4, 0}, {1, 5, 0}, {1, 6, 0}}), nullptr),
               "5 tokens");
  EXPECT_EQ(backend->length(0), 2u);
  EXPECT_EQ(backend->length(1), 0u);
  backend->clear(0);
  EXPECT_EQ(backend->length(0), 0u);
  // A cleared slot starts as a new one does.
  const std::vector<float> again =
      run_in_pieces(*backend, {fixture_->prompt.begin(), fixture_->prompt.begin() + 4}, {4});
  EXPECT_EQ(again.size(), 4 * fixture_->model.spec.vocab_size);
}

TEST_F(CpuBackendLimits, GivesNoRowsWhereNoLogitsAreWanted) {
  ASSERT_OK_AND_ASSIGN(const auto backend, make({.threads = 2, .context = 64}));
  ASSERT_OK_AND_ASSIGN(const auto none, backend->step(step_of({{1, 0, 0}, {2, 1, 0}}, false), nullptr));
  EXPECT_TRUE(none.empty());
  StepInput input = step_of({{3, 2, 0}, {4, 3, 0}, {5, 4, 0}});
  input.wants_logits = {1, 0, 1};
  ASSERT_OK_AND_ASSIGN(const auto two, backend->step(input, nullptr));
  const std::vector<float> some(two.begin(), two.end());
  backend->clear(0);
  const std::vector<float> all = run_in_pieces(*backend, {1, 2, 3, 4, 5}, {5});
  const auto vocab = static_cast<std::ptrdiff_t>(fixture_->model.spec.vocab_size);
  EXPECT_TRUE(std::equal(some.begin(), some.begin() + vocab, all.begin() + 2 * vocab));
  EXPECT_TRUE(std::equal(some.begin() + vocab, some.end(), all.begin() + 4 * vocab));
}

TEST_F(CpuBackendLimits, RefusesMoreMemoryThanThereIs) {
  EXPECT_ERROR(make({.context = INT32_MAX}), "KV cache", "Lower the context");
  EXPECT_ERROR(make({.context = UINT64_MAX}), "context", "out of range");
  EXPECT_ERROR(make({.context = 64, .max_step_tokens = UINT32_MAX}), "activations",
               "Lower the context or the step size");
}

TEST_F(CpuBackendLimits, CountsTheMemoryItTakes) {
  ASSERT_OK_AND_ASSIGN(const auto small, make({.threads = 1, .context = 64}));
  ASSERT_OK_AND_ASSIGN(const auto large, make({.threads = 1, .context = 4096}));
  const auto kv_bytes = [&](std::uint64_t context) {
    return *KvCache::bytes_needed(small->plan().kv_layers, {.context = context, .reach = 256});
  };
  EXPECT_EQ(small->memory().cache, kv_bytes(64));
  EXPECT_GT(small->memory().activations, 0u);
  EXPECT_EQ(large->memory().cache - small->memory().cache, kv_bytes(4096) - kv_bytes(64));
  const std::uint64_t before = small->memory().activations;
  run_in_pieces(*small, fixture_->prompt, {fixture_->prompt.size()});
  EXPECT_GE(small->memory().activations,
            before + fixture_->prompt.size() * fixture_->model.spec.vocab_size * sizeof(float));
}

TEST_F(CpuBackendLimits, NamesAPassThatDoesNotExist) {
  EXPECT_ERROR(make({.context = 64, .disabled_passes = {"nonsense"}}), "nonsense", "gated_ffn");
}

INSTANTIATE_TEST_SUITE_P(Dense, WholeModel, ::testing::ValuesIn(kDenseFixtures), named_by_param);

}  // namespace
}  // namespace doppler
