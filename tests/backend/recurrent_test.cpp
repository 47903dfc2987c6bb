// The ops of recurrent layers: on numbers made by hand, the kernels of the cpu backend against plain loops,
// and the state of a cache as sequences begin, share steps, are cut and copied.
#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cpu/kernels.h"
#include "backend/reference/ops.h"
#include "backend/slot_lengths.h"
#include "harness.h"

namespace doppler {
namespace {

using testing::load_fixture;
using testing::relative_error;
using testing::run_in_pieces;

using Floats = std::vector<float>;

// One op of the reference backend with inputs, weights and a state of its own.
struct Trial final : reference::RecurrentState {
  OpKind kind;
  OpParams params;
  std::vector<Floats> inputs;
  std::vector<std::pair<Shape, Floats>> weights;
  std::size_t width = 0;
  Floats state;
  std::vector<std::int32_t> positions;

  float* of(std::size_t) override { return state.data(); }
  Floats run() {
    reference::OpCall call{.kind = kind, .params = params};
    for (const Floats& input : inputs) call.inputs.push_back({input, input.size() / positions.size()});
    std::vector<TensorView> views;
    for (const auto& [shape, values] : weights)
      views.push_back({"weight", DType::kF32, shape, std::as_bytes(std::span(values))});
    for (const TensorView& view : views) call.weights.push_back(&view);
    Floats out(positions.size() * width);
    call.outputs = {{out, width, 1}};
    call.positions = positions;
    call.state = this;
    reference::Threads threads(1);
    const Status done = reference::run_op(call, threads);
    EXPECT_TRUE(done.has_value());
    return out;
  }
};

TEST(RecurrentOps, AConvolutionSumsTheLastInputsAndKeepsThem) {
  Trial trial;
  trial.kind = OpKind::kConvolution;
  trial.params = ConvolutionParams{3, Activation::kIdentity};
  trial.inputs = {{1, 10, 2, 20, 3, 30, 4, 40}};  // two channels
  trial.weights = {{{2, 3}, {100, 10, 1, 0, 0, 2}}};
  trial.width = 2;
  trial.state = {7, 7, 7, 7};  // of a sequence before
  trial.positions = {0, 1, 2, 3};
  EXPECT_EQ(trial.run(), (Floats{1, 20, 12, 40, 123, 60, 234, 80}));
  EXPECT_EQ(trial.state, (Floats{3, 30, 4, 40}));
  trial.inputs = {{5, 50}};
  trial.positions = {4};
  EXPECT_EQ(trial.run(), (Floats{345, 100})) << "it goes on where it was";
}

TEST(RecurrentOps, TheDeltaRuleReadsTheDecayedStateAndAnswersFromTheUpdated) {
  Trial trial;
  trial.kind = OpKind::kDeltaRule;
  trial.params = DeltaParams{.heads = 2, .key_heads = 1, .key_dim = 2, .value_dim = 1};
  const float half = std::log(0.5f);
  // Both value heads share the one key head; the second writes nothing.
  trial.inputs = {{1, 2, 1, 0}, {1, 0, 1, 1}, {8, 8, 6, 6}, {1, 0, 0.5f, 0}, {0, 0, half, half}};
  trial.width = 2;
  trial.state = {9, 9, 9, 9};
  trial.positions = {0, 1};
  const Floats out = trial.run();
  // First: S = k v = (8, 0), o = 8. Then S = (4, 0), k'S = 4, change = (6 - 4) / 2 = 1, S = (5, 1), o = 5.
  EXPECT_LT(relative_error(out, Floats{8, 0, 5, 0}), 1e-6);
  EXPECT_LT(relative_error(trial.state, Floats{5, 1, 0, 0}), 1e-6);
}

TEST(RecurrentOps, MambasStateDecaysTakesInAndIsRead) {
  Trial trial;
  trial.kind = OpKind::kScan;
  trial.params = ScanParams{.heads = 1, .head_dim = 2, .groups = 1, .states = 2};
  const float half = std::log(0.5f);
  trial.inputs = {{1, 2, 3, 4}, {1, 10, 2, 0}, {1, 1, 1, 2}, {0.5f, 2}, {half, half}};
  trial.weights = {{{1}, {100}}};
  trial.width = 2;
  trial.state = {9, 9, 9, 9};
  trial.positions = {0, 1};
  // S = step x B: (0.5, 5), (1, 10); y = 5.5 + 100, 11 + 200. Then S / 2 + 2 x B: (12.25, 2.5), (16.5, 5).
  EXPECT_LT(relative_error(trial.run(), Floats{105.5f, 211, 17.25f + 300, 26.5f + 400}), 1e-6);
  EXPECT_LT(relative_error(trial.state, Floats{12.25f, 2.5f, 16.5f, 5}), 1e-6);
}

TEST(RecurrentOps, AChannelsStatesDecayEachAtItsRate) {
  Trial trial;
  trial.kind = OpKind::kChannelScan;
  trial.params = ScanParams{.heads = 1, .head_dim = 1, .groups = 1, .states = 2};
  const float two = std::log(2.0f);
  trial.inputs = {{3, 0}, {1, 2}, {1, 1}, {1, two}};
  trial.inputs[1] = {1, 2, 5, 5}, trial.inputs[2] = {1, 1, 1, 10};
  trial.weights = {{{1, 2}, {0, std::log(2.0f)}}, {{1}, {10}}};  // rates -1 and -2
  trial.width = 1;
  trial.state = {9, 9};
  trial.positions = {0, 1};
  // S = (3, 6), y = 9 + 30. Then x = 0: S = (3 / 2, 6 / 4), y = 1.5 + 15.
  EXPECT_LT(relative_error(trial.run(), Floats{39, 16.5f}), 1e-6);
}

TEST(RecurrentOps, ColumnsAreTakenByGroupAndScaled) {
  Trial trial;
  trial.kind = OpKind::kColumns;
  ColumnsParams params;
  params.ranges = {
      {{.groups = 2, .first = 1, .width = 2}, {.groups = 1, .first = 0, .width = 1, .scale = 3}}};
  trial.params = params;
  trial.inputs = {{1, 2, 3, 4, 5, 6}};
  trial.width = 5;
  trial.positions = {0};
  EXPECT_EQ(trial.run(), (Floats{2, 3, 5, 6, 3}));
}

TEST(RecurrentOps, ATimeStepIsASoftplusWithinLimits) {
  Trial trial;
  trial.kind = OpKind::kTimeStep;
  trial.params = TimeStepParams{.low = 0.01, .high = 5};
  trial.inputs = {{-1, 99, -99, 0}};
  trial.weights = {{{4}, {1, 1, 1, -30}}};
  trial.width = 4;
  trial.positions = {0};
  EXPECT_LT(relative_error(trial.run(), Floats{std::log(2.0f), 5, 0.01f, 0.01f}), 1e-6);
}

Floats random_values(std::size_t count, std::mt19937& random, float low = -1, float high = 1) {
  std::uniform_real_distribution<float> any(low, high);
  Floats values(count);
  for (float& value : values) value = any(random);
  return values;
}

class RecurrentKernels : public ::testing::TestWithParam<cpu::Kernels> {};

TEST_P(RecurrentKernels, OfTheDeltaRuleAreThePlainLoops) {
  for (const std::uint32_t values : {1u, 7u, 16u, 40u, 128u}) {
    std::mt19937 random(values);
    const std::uint32_t keys = 12;
    Trial trial;
    trial.kind = OpKind::kDeltaRule;
    trial.params = DeltaParams{.heads = 1, .key_heads = 1, .key_dim = keys, .value_dim = values};
    trial.inputs = {random_values(keys, random),
                    random_values(keys, random),
                    random_values(values, random),
                    {0.7f},
                    {-0.3f}};
    trial.width = values;
    trial.state = random_values(std::size_t{keys} * values, random);
    trial.positions = {1};
    Floats state = trial.state, out(values);
    GetParam().recurrent->delta({.q = trial.inputs[0].data(),
                                 .k = trial.inputs[1].data(),
                                 .v = trial.inputs[2].data(),
                                 .beta = 0.7f,
                                 .decay = std::exp(-0.3f),
                                 .key_dim = keys,
                                 .value_dim = values,
                                 .state = state.data(),
                                 .out = out.data()});
    EXPECT_LT(relative_error(out, trial.run()), 1e-5) << values;
    EXPECT_LT(relative_error(state, trial.state), 1e-6) << values;
  }
}

TEST_P(RecurrentKernels, OfMambaAreThePlainLoops) {
  for (const std::uint32_t states : {1u, 5u, 16u, 33u, 128u}) {
    std::mt19937 random(states);
    const std::uint32_t rows = 3;
    Trial trial;
    trial.kind = OpKind::kScan;
    trial.params = ScanParams{.heads = 1, .head_dim = rows, .groups = 1, .states = states};
    trial.inputs = {random_values(rows, random),
                    random_values(states, random),
                    random_values(states, random),
                    {0.4f},
                    {-0.2f}};
    trial.weights = {{{1}, {1.5f}}};
    trial.width = rows;
    trial.state = random_values(std::size_t{rows} * states, random);
    trial.positions = {1};
    Floats state = trial.state, out(rows);
    GetParam().recurrent->scan({.x = trial.inputs[0].data(),
                                .b = trial.inputs[1].data(),
                                .c = trial.inputs[2].data(),
                                .step = 0.4f,
                                .decay = std::exp(-0.2f),
                                .skip = 1.5f,
                                .rows = rows,
                                .states = states,
                                .state = state.data(),
                                .out = out.data()});
    EXPECT_LT(relative_error(out, trial.run()), 1e-5) << states;
    EXPECT_LT(relative_error(state, trial.state), 1e-6) << states;

    trial.kind = OpKind::kChannelScan;
    trial.params = ScanParams{.heads = rows, .head_dim = 1, .groups = 1, .states = states};
    trial.inputs = {random_values(rows, random), trial.inputs[1], trial.inputs[2],
                    random_values(rows, random, 0.01f, 1)};
    const Floats logs = random_values(std::size_t{rows} * states, random), skip = random_values(rows, random);
    trial.weights = {{{rows, states}, logs}, {{rows}, skip}};
    state = trial.state;
    Floats rates = logs;
    for (float& rate : rates) rate = -std::exp(rate);
    GetParam().recurrent->channel_scan({.x = trial.inputs[0].data(),
                                        .b = trial.inputs[1].data(),
                                        .c = trial.inputs[2].data(),
                                        .step = trial.inputs[3].data(),
                                        .rates = rates.data(),
                                        .skip = skip.data(),
                                        .begin = 0,
                                        .end = rows,
                                        .states = states,
                                        .state = state.data(),
                                        .out = out.data()});
    EXPECT_LT(relative_error(out, trial.run()), 1e-5) << states;
    EXPECT_LT(relative_error(state, trial.state), 1e-6) << states;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, RecurrentKernels, ::testing::ValuesIn(cpu::all_kernels()),
                         [](const auto& parameter) { return std::string(parameter.param.target); });

// --- whole models

struct RecurrentCase {
  const char *backend, *model;
};
class RecurrentModel : public ::testing::TestWithParam<RecurrentCase> {
 protected:
  void SetUp() override {
    auto fixture = load_fixture(GetParam().model);
    ASSERT_OK(fixture);
    fixture_ = std::move(*fixture);
    BackendOptions options{.threads = 2, .context = 64, .slots = 3, .max_step_tokens = 32};
    options.gpu_setup.self_check = false;
    options.gpu_setup.tune = false;
    auto made = make_backend(GetParam().backend, fixture_->model.spec, fixture_->model.weights, options);
    if (!made && made.error().code == ErrorCode::kNotFound) GTEST_SKIP() << made.error().message;
    ASSERT_OK(made);
    backend_ = std::move(*made);
  }
  bool has_bits() const { return std::string_view(GetParam().backend) != "gpu"; }
  void expect_same(const Floats& got, const Floats& wanted) const {
    if (has_bits()) {
      EXPECT_EQ(got, wanted);
    } else {
      EXPECT_LT(relative_error(got, wanted), 1e-4);
    }
  }
  Floats fresh(std::int32_t slot, const std::vector<std::int32_t>& ids) {
    backend_->clear(static_cast<std::uint32_t>(slot));
    return run_in_pieces(*backend_, ids, {ids.size()}, nullptr, slot);
  }

  std::unique_ptr<testing::FixtureModel> fixture_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(RecurrentModel, IsTheSameInPieces) {
  const Floats whole = fresh(0, fixture_->prompt);
  for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{1}, {3}, {5, 1, 2}}) {
    backend_->clear(1);
    expect_same(run_in_pieces(*backend_, fixture_->prompt, sizes, nullptr, 1), whole);
  }
}

// Two sequences take turns in one step: each goes on from its own state.
TEST_P(RecurrentModel, IsTheSameInCompany) {
  const std::vector<std::int32_t> ids = fixture_->prompt, other(ids.rbegin(), ids.rend());
  const Floats alone = fresh(0, ids), other_alone = fresh(0, other);
  backend_->clear(1);
  std::vector<testing::Token> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    tokens.push_back({ids[i], static_cast<std::int32_t>(i), 2});
    tokens.push_back({other[i], static_cast<std::int32_t>(i), 1});
  }
  const auto logits = backend_->step(testing::step_of(tokens), nullptr);
  ASSERT_OK(logits);
  const std::size_t vocab = backend_->plan().vocab_size;
  Floats first, second;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Floats& of = i % 2 == 0 ? first : second;
    of.insert(of.end(), logits->begin() + static_cast<std::ptrdiff_t>(i * vocab),
              logits->begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
  }
  expect_same(first, alone);
  expect_same(second, other_alone);
}

TEST_P(RecurrentModel, BeginsAnewAfterClear) {
  const Floats once = fresh(0, fixture_->prompt);
  run_in_pieces(*backend_, fixture_->greedy, {1}, nullptr, 0, fixture_->prompt.size());
  expect_same(fresh(0, fixture_->prompt), once);
}

TEST_P(RecurrentModel, CopiesItsStateWithTheCache) {
  fresh(0, fixture_->prompt);
  CacheAccess& cache = *backend_->cache();
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes, cache.read(0));
  const std::vector<std::int32_t> next(fixture_->greedy.begin(), fixture_->greedy.begin() + 4);
  const std::size_t length = fixture_->prompt.size();
  const Floats wanted = run_in_pieces(*backend_, next, {1}, nullptr, 0, length);
  fresh(1, {5, 6, 7});
  ASSERT_OK(cache.write(1, length, bytes));
  expect_same(run_in_pieces(*backend_, next, {1}, nullptr, 1, length), wanted);
  EXPECT_ERROR(cache.write(2, length, std::span(bytes).first(bytes.size() - 4)), "bytes");
}

TEST_P(RecurrentModel, CannotBeCutBack) {
  fresh(0, fixture_->prompt);
  const std::size_t length = fixture_->prompt.size();
  EXPECT_TRUE(backend_->cache()->can_cut(0, length));
  EXPECT_TRUE(backend_->cache()->can_cut(0, 0));
  EXPECT_FALSE(backend_->cache()->can_cut(0, length - 1));
  EXPECT_ERROR(backend_->cache()->cut(0, 3), "recurrent layers have gone on");
}

constexpr RecurrentCase kRecurrentCases[] = {
    {"reference", "lfm2"}, {"reference", "qwen3_5"}, {"reference", "mamba2"}, {"reference", "jamba"},
    {"cpu", "lfm2"},       {"cpu", "qwen3_5"},       {"cpu", "mamba2"},       {"cpu", "jamba"},
#if DOPPLER_GPU
    {"gpu", "lfm2"},       {"gpu", "qwen3_5"},       {"gpu", "mamba2"},       {"gpu", "jamba"},
#endif
};
INSTANTIATE_TEST_SUITE_P(Backends, RecurrentModel, ::testing::ValuesIn(kRecurrentCases),
                         [](const auto& parameter) {
                           return std::string(parameter.param.backend) + "_" + parameter.param.model;
                         });

}  // namespace
}  // namespace doppler
