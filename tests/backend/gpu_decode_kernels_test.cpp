// What gemv.wgsl does before and after the product for a single token (norm_prologue.wgsl,
// combine_prologue.wgsl, prologue_x.wgsl), and next_token.wgsl, with what other tests of whole models cannot
// provoke.
#include "base/float16.h"
#include "gpu_weights.h"
#include "random_blocks.h"

namespace doppler::gpu {
namespace {

using namespace testing;

// A product with the matrix, whatever comes before and after it.
Launch gemv(const GpuMatrix& matrix, std::size_t rows, std::uint32_t r, std::uint32_t lanes, bool eight_bits,
            ShaderValues more) {
  ShaderValues values = format_values(matrix);
  values.merge(ShaderValues{{"R", r},
                            {"LANES", lanes},
                            {"UNITS", (matrix.units + lanes - 1) / lanes},
                            {"ROWS", i64(rows)},
                            {"PRO", 0},
                            {"EPI", 0},
                            {"ACT", eight_bits ? 1 : 0},
                            {"BIAS", 0},
                            {"QUANTISE_OUT", 0},
                            {"EMIT_PARTS", 0},
                            {"EMIT_ACT", 0}});
  for (const auto& [name, value] : more) values[name] = value;
  if (values["QUANTISE_OUT"] == 0) values.merge(ShaderValues{{"OUT_STRIDE", i64(rows)}, {"OUT_OFFSET", 0}});
  Launch launch(Mode::kUnchecked, "gemv.wgsl", values);
  launch.bound("codes", matrix.shards[0].codes);
  if (matrix.format.has_scales()) launch.bound("scales", matrix.shards[0].scales);
  return launch;
}

// Codes and scales of x in rows of `width`, as quantise.wgsl makes them.
struct Quantised {
  std::vector<std::uint32_t> codes;
  std::vector<float> scales;
  Quantised(const std::vector<float>& x, std::size_t width) {
    const std::size_t units = (width + 63) / 64, rows = x.size() / width;
    Launch launch(Mode::kUnchecked, "quantise.wgsl",
                  {{"THREADS", 64},
                   {"UNITS_K", i64(units)},
                   {"WIDTH", i64(width)},
                   {"X_STRIDE", i64(width)},
                   {"X_OFFSET", 0}});
    launch.in("x", x).out("x8", rows * units * 16).out("xs", rows * units * 4);
    EXPECT_TRUE(launch.run({1, static_cast<std::uint32_t>(rows), 1}));
    codes = launch.get<std::uint32_t>("x8");
    scales = launch.get("xs");
  }
};

double inverse_root(const std::vector<double>& x, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
}

class NormPrologue : public ::testing::Test {
 protected:
  static constexpr std::size_t kWidth = 244, kRows = 8;  // one workgroup
  static constexpr double kEps = 1e-6;

  // Of a branch whose mean square is near the epsilon, and a residual that leaves `rest` of it (0: is no
  // larger than the branch).
  static void check(bool post, double rest, double allowed) {
    SCOPED_TRACE(fmt::format("post {}, rest {}", post, rest));
    const RandomTensor weight(DType::kBF16, kRows, kWidth, 3);
    const GpuMatrix matrix = upload(Mode::kUnchecked, {&weight.view});
    Random random;
    const std::vector<float> branch = random.floats(kWidth, 2e-3f), weights = random.floats(2 * kWidth);
    std::vector<double> p(branch.begin(), branch.end()), h, x;
    const double f = inverse_root(p, kEps);
    for (std::size_t i = 0; i < kWidth && post; ++i) p[i] *= f * weights[kWidth + i];
    std::vector<float> residual = random.floats(kWidth, rest == 0 ? 2e-3f : static_cast<float>(rest));
    for (std::size_t i = 0; i < kWidth; ++i) {
      if (rest != 0) residual[i] -= static_cast<float>(p[i]);
      h.push_back(residual[i] + p[i]);
    }
    const double g = inverse_root(h, kEps);
    for (std::size_t i = 0; i < kWidth; ++i) x.push_back(h[i] * g * weights[i]);
    Launch launch = gemv(matrix, kRows, 8, 4, false,
                         {{"PRO", 1},
                          {"WIDTH", kWidth},
                          {"EPS_BITS", bits_of(kEps)},
                          {"ADD", 1},
                          {"CARRY", 1},
                          {"POST", post ? 1 : 0},
                          {"EMIT_NORMED", 1},
                          {"EMIT_BLOCKS", 0},
                          {"EMIT_POST", post ? 1 : 0}});
    launch.in("residual", residual).in("branch", branch).in("norm_weights", weights);
    launch.out("carried", kWidth).out("normed_out", kWidth).out("out", kRows);
    if (post) launch.out("post_out", kWidth);
    ASSERT_TRUE(launch.run({1, 1, 1}));
    expect_near(launch.get("carried"), h, 2e-6 * (post ? 1 : 2e-3), "the sum");
    if (post) expect_near(launch.get("post_out"), p, 5e-6, "the normed branch");
    expect_near(launch.get("normed_out"), x, allowed, "the normed sum");
    std::vector<double> out(kRows, 0);
    for (std::size_t i = 0; i < kRows * kWidth; ++i) out[i / kWidth] += weight.values[i] * x[i % kWidth];
    expect_near(launch.get("out"), out, allowed * 3e3, "the product");
  }
};

TEST_F(NormPrologue, OfSmallNumbers) {
  DOPPLER_NEEDS_ADAPTER();
  check(false, 0, 1e-5);
  check(true, 0, 1e-5);
}

// The residual stream may be all but the opposite of what the layer adds.
TEST_F(NormPrologue, OfABranchThatTheResidualCancels) {
  DOPPLER_NEEDS_ADAPTER();
  check(true, 3e-3, 2e-3);
}

// The same codes as those of the kernel for many tokens.
TEST(Prologue, QuantisesAsTheKernelForManyTokensDoes) {
  DOPPLER_NEEDS_ADAPTER();
  constexpr std::size_t kWidth = 736, kRows = 40;
  const RandomTensor weight(DType::kQ4_1, kRows, kWidth, 5);
  const GpuMatrix matrix = upload(Mode::kUnchecked, {&weight.view});
  Random random;
  std::vector<float> weights = random.floats(kWidth);
  std::fill_n(&weights[64], 32, 0.0f);                         // a block of zeros
  for (std::size_t i = 96; i < 160; ++i) weights[i] *= 1e-3f;  // and small ones
  Launch fused = gemv(matrix, kRows, 8, 4, true,
                      {{"PRO", 1},
                       {"WIDTH", kWidth},
                       {"EPS_BITS", bits_of(1e-6)},
                       {"ADD", 0},
                       {"CARRY", 0},
                       {"POST", 0},
                       {"EMIT_NORMED", 1},
                       {"EMIT_BLOCKS", 0},
                       {"EMIT_POST", 0}});
  fused.in("residual", random.floats(kWidth)).in("norm_weights", weights);
  fused.out("normed_out", kWidth).out("out", kRows);
  ASSERT_TRUE(fused.run({kRows / 8, 1, 1}));
  const Quantised x(fused.get("normed_out"), kWidth);
  Launch plain = gemv(matrix, kRows, 8, 4, true, {});
  plain.in("x8", x.codes).in("xs", x.scales).out("out", kRows);
  ASSERT_TRUE(plain.run({kRows / 8, 1, 1}));
  EXPECT_EQ(fused.get("out"), plain.get("out"));
}

// Splits whose largest scores differ by more than an exponential can hold, in each of the places that are
// loaded together; what lies behind the last split is no number.
class CombinePrologue : public ::testing::TestWithParam<std::tuple<bool, std::size_t>> {};

TEST_P(CombinePrologue, OfScoresFarApart) {
  DOPPLER_NEEDS_ADAPTER();
  const auto [half, count] = GetParam();
  constexpr std::size_t kDim = 20, kHeads = 12, kWidth = kDim * kHeads, kMost = 64, kRows = 8;
  const RandomTensor weight(DType::kBF16, kRows, kWidth, 3);
  const GpuMatrix matrix = upload(Mode::kUnchecked, {&weight.view});
  Random random;
  std::vector<float> parts = random.floats(kHeads * kMost * kDim), marks;
  std::vector<double> expected;
  for (std::size_t head = 0; head < kHeads; ++head) {
    std::vector<double> sums(kDim, 0);
    double total = 0;
    for (std::size_t split = 0; split < kMost; ++split) {
      float* part = &parts[(head * kMost + split) * kDim];
      if (split >= count) {
        std::fill_n(part, kDim, NAN);
        marks.insert(marks.end(), {1e4f, NAN});
        continue;
      }
      const bool leads = split == head * (count - 1) / (kHeads - 1);  // from the first split to the last
      const float largest = random.floats(1)[0] + (leads ? 150.0f : 0.0f);
      marks.insert(marks.end(), {largest, 1.0f + static_cast<float>(split) / 8});
      const double shares = marks.back() * std::exp(static_cast<double>(largest));
      total += shares;
      for (std::size_t d = 0; d < kDim; ++d) {
        if (half) part[d] = f16_to_f32(f32_to_f16(part[d]));
        sums[d] += part[d] * shares;
      }
    }
    for (const double sum : sums) expected.push_back(sum / total);
  }
  Launch launch = gemv(matrix, kRows, 8, 4, false,
                       {{"PRO", 2},
                        {"WIDTH", kWidth},
                        {"DIM", kDim},
                        {"MOST_SPLITS", kMost},
                        {"KV_HALF", half ? 1 : 0},
                        {"SINKS", 0},
                        {"POSITIONS", 2},
                        {"WINDOW", 0},
                        {"EMIT_ATTN", 1}});
  launch.in("step", std::vector<std::uint32_t>{7, 7, static_cast<std::uint32_t>(count * 32 - 5)})
      .in("marks", marks);
  if (half) {
    std::vector<std::uint32_t> words(parts.size() / 2, 0);
    for (std::size_t i = 0; i < parts.size(); ++i)
      words[i / 2] |= std::uint32_t{f32_to_f16(parts[i])} << (16 * (i % 2));
    launch.in("parts", words);
  } else {
    launch.in("parts", parts);
  }
  launch.out("attn_out", kWidth).out("out", kRows);
  ASSERT_TRUE(launch.run({1, 1, 1}));
  expect_near(launch.get("attn_out"), expected, 1e-5, "the attention");
}
// Eights of splits: one, one and a split more, not quite two, and all that there may be.
INSTANTIATE_TEST_SUITE_P(All, CombinePrologue,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(8, 9, 11, 64)),
                         [](const auto& test) {
                           const char* of = std::get<0>(test.param) ? "Halves" : "Floats";
                           return fmt::format("{}SplitsOf{}", std::get<1>(test.param), of);
                         });

// Float weights a few pieces at a time have the bits of whole units, in rows that end within a thread's
// share, too, and in threads that have a row of gate and one of up.
struct StreamedCase {
  const char* name;
  DType type;
  bool gated;
};
class StreamedGemv : public ::testing::TestWithParam<StreamedCase> {};

TEST_P(StreamedGemv, AddsAsWholeUnitsDo) {
  DOPPLER_NEEDS_ADAPTER();
  const auto& [name, type, gated] = GetParam();
  constexpr std::size_t kRows = 90;
  // The last lane has a unit less than the others, as many, or none. Of gated kernels, each of which takes a
  // software adapter's compiler seconds, only some.
  using Widths = std::vector<std::size_t>;
  using Streams = std::vector<std::int64_t>;
  for (const std::size_t width : gated ? Widths{64 * 11 - 4} : Widths{64 * 11 - 4, 64 * 12, 64 * 8}) {
    const RandomTensor weight(type, gated ? 2 * kRows : kRows, width, 3);
    const GpuMatrix matrix = upload(Mode::kUnchecked, {&weight.view});
    const std::vector<float> x = Random().floats(width);
    std::map<std::string, std::vector<float>> whole;
    for (const std::int64_t stream : gated ? Streams{0, 2} : Streams{0, 1, 2, 4}) {
      SCOPED_TRACE(stream);
      ShaderValues more = {
          {"X_VEC", 0}, {"WIDTH", i64(width)}, {"X_STRIDE", i64(width)}, {"X_OFFSET", 0}, {"UNITS", 4}};
      if (stream != 0) more["STREAM"] = stream;
      std::vector<std::string> outputs = {"out"};
      if (gated) {
        more.merge(ShaderValues{{"EPI", 1}, {"ACTIVATION", 0}, {"EMIT_PARTS", 1}});
        outputs.insert(outputs.end(), {"gate_out", "up_out"});
      }
      Launch launch = gemv(matrix, kRows, 8, 3, false, more);
      launch.in("x", x);
      for (const std::string& output : outputs) launch.out(output, kRows);
      ASSERT_TRUE(launch.run({(kRows + 7) / 8, 1, 1}));
      for (const std::string& output : outputs) {
        if (stream == 0) {
          whole[output] = launch.get(output);
        } else {
          EXPECT_EQ(launch.get(output), whole[output]) << output;
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, StreamedGemv,
                         ::testing::Values(StreamedCase{"bf16", DType::kBF16, false},
                                           StreamedCase{"f16", DType::kF16, false},
                                           StreamedCase{"bf16_gated", DType::kBF16, true}),
                         [](const auto& each) { return std::string(each.param.name); });

// Gate and up of two tokens, gated and, but for floats, quantised by the workgroups that made them.
TEST(GatedGemv, QuantisesWhatItMade) {
  DOPPLER_NEEDS_ADAPTER();
  constexpr std::size_t kWidth = 96, kRows = 160, kTokens = 2;
  const RandomTensor weight(DType::kQ8_0, 2 * kRows, kWidth, 5);
  const GpuMatrix matrix = upload(Mode::kUnchecked, {&weight.view});
  float most = 0;
  for (const float value : weight.values) most = std::max(most, std::abs(value));
  const Quantised x(Random().floats(kTokens * kWidth, 0.02f / most), kWidth);
  std::vector<float> first;
  for (const bool quantises : {true, false}) {
    SCOPED_TRACE(quantises);
    Launch launch = gemv(matrix, kRows, 64, 2, true,
                         {{"EPI", 1},
                          {"ACTIVATION", 0},
                          {"QUANTISE_OUT", quantises ? 1 : 0},
                          {"EMIT_PARTS", 1},
                          {"EMIT_ACT", 1}});
    launch.in("x8", x.codes).in("xs", x.scales);
    launch.out("gate_out", kTokens * kRows).out("up_out", kTokens * kRows).out("act_out", kTokens * kRows);
    if (quantises) {
      launch.value("OUT_UNITS", 3).out("out8", kTokens * 3 * 16).out("outs", kTokens * 3 * 4);
    } else {
      launch.out("out", kTokens * kRows);
    }
    ASSERT_TRUE(launch.run({3, kTokens, 1}));
    std::vector<double> gates, ups, acts;
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t row = 0; row < 2 * kRows; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < kWidth; ++k) {
          const std::size_t at = t * 128 + k;
          const auto code = static_cast<std::int8_t>(x.codes[at / 4] >> (at % 4 * 8));
          sum += static_cast<double>(x.scales[at / 32 * 2]) * code * weight.values[row * kWidth + k];
        }
        (row < kRows ? gates : ups).push_back(sum);
      }
    }
    double largest = 0;
    for (std::size_t i = 0; i < gates.size(); ++i) {
      acts.push_back(gates[i] / (1 + std::exp(-gates[i])) * ups[i]);
      largest = std::max(largest, std::abs(acts.back()));
    }
    EXPECT_LT(largest, 0.01) << "too large to see that small blocks have codes";
    expect_near(launch.get("gate_out"), gates, 1e-5, "gate");
    expect_near(launch.get("up_out"), ups, 1e-5, "up");
    const std::vector<float> act = launch.get("act_out");
    expect_near(act, acts, 1e-6, "act");
    if (!quantises) {
      EXPECT_EQ(launch.get("out"), act);
      continue;
    }
    const Quantised expected(act, kRows);
    EXPECT_EQ(launch.get<std::uint32_t>("out8"), expected.codes);
    EXPECT_EQ(launch.get("outs"), expected.scales);
  }
}

// More tiles of rows than workgroups, in units that fill the lanes (4) or leave some over (3).
TEST(Head, HasTheLogitsAndTheLikeliestOfEachWorkgroup) {
  DOPPLER_NEEDS_ADAPTER();
  constexpr std::size_t kRows = 90, kGroups = 3, kR = 8;  // 12 tiles
  for (const auto& [stored, units] : std::initializer_list<std::pair<StoredAs, std::size_t>>{
           {DType::kQ4_0, 4}, {DType::kQ4_0, 3}, {kHeadOfBF16, 4}, {kHeadOfBF16, 3}}) {
    SCOPED_TRACE(fmt::format("{} in {} units", stored.name(), units));
    const std::size_t width = units * 64;
    const RandomTensor weight(stored.type, kRows, width, 7);
    const GpuMatrix matrix = upload(Mode::kUnchecked, {&weight.view}, UINT64_MAX, stored.format());
    Random random;
    const std::vector<float> residual = random.floats(width), weights = random.floats(width);
    const double f = inverse_root(std::vector<double>(residual.begin(), residual.end()), 1e-6);
    std::vector<double> logits(kRows, 0);
    for (std::size_t i = 0; i < kRows * width; ++i)
      logits[i / width] += weight.values[i] * residual[i % width] * f * weights[i % width];
    const std::size_t pad = std::ranges::max_element(logits) - logits.begin();
    ShaderValues values = format_values(matrix);
    values.merge(ShaderValues{{"R", kR},          {"LANES", 2},          {"UNITS", 2},
                              {"ROWS", kRows},    {"ROW0", 5},           {"GROUPS", kGroups},
                              {"ACT", 0},         {"WIDTH", i64(width)}, {"STORE_LOGITS", 1},
                              {"GREEDY", 1},      {"EMIT_RAW", 0},       {"SOFTCAP", 0},
                              {"CANDIDATE0", 2},  {"PAD_WORD", 1},       {"ADD", 0},
                              {"CARRY", 0},       {"POST", 0},           {"EMIT_NORMED", 0},
                              {"EMIT_BLOCKS", 0}, {"EMIT_POST", 0},      {"EPS_BITS", bits_of(1e-6)}});
    Launch launch(Mode::kUnchecked, "head.wgsl", values);
    launch.bound("codes", matrix.shards[0].codes).bound("scales", matrix.shards[0].scales);
    launch.in("residual", residual).in("norm_weights", weights);
    launch.in("step", std::vector<std::uint32_t>{0, static_cast<std::uint32_t>(pad + 5), 0});
    launch.out("logits", kRows + 5).out("candidates", 2 * (kGroups + 2));
    ASSERT_TRUE(launch.run({kGroups, 1, 1}));
    const std::vector<float> got = launch.get("logits");
    double most = 0;
    for (const double logit : logits) most = std::max(most, std::abs(logit));
    expect_near({got.begin() + 5, got.end()}, logits, 1e-5 * most, "the logits");
    const auto candidates = launch.get<std::uint32_t>("candidates");
    for (std::size_t group = 0; group < kGroups; ++group) {
      std::size_t best = SIZE_MAX;
      for (std::size_t row = 0; row < kRows; ++row) {
        if (row / kR % kGroups == group && row != pad && (best == SIZE_MAX || got[row + 5] > got[best + 5]))
          best = row;
      }
      EXPECT_EQ(candidates[2 * (group + 2) + 1], best + 5) << group;
      EXPECT_EQ(candidates[2 * (group + 2)], std::bit_cast<std::uint32_t>(got[best + 5])) << group;
    }
  }
}

// The first of each workgroup's largest logits, but for one token; what is no number comes before all.
TEST(Likeliest, IsFoundByEachWorkgroup) {
  DOPPLER_NEEDS_ADAPTER();
  constexpr std::uint32_t kThreads = 32, kGroups = 3;
  for (const std::uint32_t vocab : {1u, 31u, 33u, 97u, 300u}) {
    for (const std::uint32_t wrong : {UINT32_MAX, vocab / 2, vocab}) {
      std::vector<float> logits;
      for (std::uint32_t row = 0; row < vocab; ++row) logits.push_back(static_cast<float>(row * 37 % 23));
      // In place of what is no number: equals everywhere, so that each thread sees several of the largest.
      if (wrong == vocab) std::ranges::fill(logits, 5.0f);
      constexpr float kNoNumbers[] = {NAN, HUGE_VALF, 3.4e38f};  // the last: as good as infinite
      if (wrong < vocab) logits[wrong] = kNoNumbers[wrong / 2 % 3];
      const std::uint32_t pad = vocab > 40 ? 14 : UINT32_MAX;  // of the first workgroup, and its largest
      if (pad != UINT32_MAX) logits[pad] = 50;
      Launch launch(Mode::kUnchecked, "likeliest.wgsl",
                    {{"THREADS", kThreads}, {"GROUPS", kGroups}, {"VOCAB", vocab}, {"PAD_WORD", 1}});
      launch.in("step", std::vector<std::uint32_t>{7, pad, 9}).in("logits", logits);
      launch.out("candidates", 2 * kGroups);
      ASSERT_TRUE(launch.run({kGroups, 1, 1}));
      const auto candidates = launch.get<std::uint32_t>("candidates");
      for (std::uint32_t group = 0; group < kGroups; ++group) {
        std::uint32_t best = UINT32_MAX;
        bool is_wrong = false;
        for (std::uint32_t row = 0; row < vocab; ++row) {
          if (row / kThreads % kGroups != group) continue;
          is_wrong = is_wrong || row == wrong;
          if (row != pad && (best == UINT32_MAX || logits[row] > logits[best])) best = row;
        }
        const std::uint32_t expected = is_wrong ? 0xfffffffe : best;
        EXPECT_EQ(candidates[2 * group + 1], expected) << vocab << " " << wrong << " " << group;
        const float value = is_wrong ? 3.4e38f : best == UINT32_MAX ? -3.4e38f : logits[best];
        EXPECT_EQ(std::bit_cast<float>(candidates[2 * group]), value)
            << vocab << " " << wrong << " " << group;
      }
    }
  }
}

class NextToken : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kVocab = 1000, kRing = 8, kCandidates = 70;
  struct Candidate {
    float value;
    std::uint32_t row;
  };

  // Candidates by place; elsewhere lie small values of rows in any order. The token that comes out.
  static std::uint32_t choose(const std::map<std::size_t, Candidate>& special) {
    std::vector<std::uint32_t> candidates;
    for (std::uint32_t i = 0; i < kCandidates; ++i) {
      const auto found = special.find(i);
      const Candidate c = found != special.end()
                              ? found->second
                              : Candidate{-static_cast<float>(i * 37 % 101), i * 31 % 97 + 200};
      candidates.insert(candidates.end(), {std::bit_cast<std::uint32_t>(c.value), c.row});
    }
    // Counted, position, id; words between them stay as they are.
    const std::vector<std::uint32_t> step = {1, 13, 2, 300, 3, 5, 4};
    Launch launch(Mode::kUnchecked, "next_token.wgsl",
                  {{"THREADS", 32},
                   {"RING", kRing},
                   {"VOCAB", kVocab},
                   {"IDS", 5},
                   {"POSITIONS", 3},
                   {"COUNTED", 1},
                   {"GREEDY", 1},
                   {"CANDIDATES", kCandidates}});
    launch.in("step", step).in("candidates", candidates).out("ring", kRing);
    EXPECT_TRUE(launch.run({1, 1, 1}));
    const auto ring = launch.get<std::uint32_t>("ring"), after = launch.get<std::uint32_t>("step");
    for (std::size_t i = 0; i < kRing; ++i)
      EXPECT_EQ(ring[i] == 0xffffffff, i != 13 % kRing || ring[i] >= kVocab);
    const std::uint32_t token = ring[13 % kRing];
    EXPECT_EQ(after, (std::vector<std::uint32_t>{1, 14, 2, 301, 3, std::min(token, kVocab - 1), 4}));
    return token;
  }
};

TEST_F(NextToken, IsTheLikeliest) {
  DOPPLER_NEEDS_ADAPTER();
  for (const std::size_t at : {0, 1, 31, 32, 64, 69}) EXPECT_EQ(choose({{at, {3, 17}}}), 17u) << at;
  EXPECT_EQ(choose({{5, {3, kVocab - 1}}, {40, {2, 8}}}), kVocab - 1);
}

TEST_F(NextToken, IsTheFirstOfEquals) {
  DOPPLER_NEEDS_ADAPTER();
  EXPECT_EQ(choose({{3, {3, 17}}, {35, {3, 16}}, {67, {3, 18}}}), 16u) << "which one thread sees";
  EXPECT_EQ(choose({{3, {3, 16}}, {35, {3, 17}}}), 16u) << "which one thread sees";
  for (const std::size_t apart : {1, 2, 4, 8, 16}) {
    EXPECT_EQ(choose({{4, {3, 17}}, {4 ^ apart, {3, 18}}}), 17u) << apart;
    EXPECT_EQ(choose({{4, {3, 18}}, {4 ^ apart, {3, 17}}}), 17u) << apart;
  }
}

// The head marks what is no number with a row that no vocabulary has.
TEST_F(NextToken, IsNoneWhereLogitsAreNoNumbers) {
  DOPPLER_NEEDS_ADAPTER();
  EXPECT_GE(choose({{9, {3.4e38f, 0xfffffffe}}, {10, {3, 17}}}), kVocab);
  EXPECT_GE(choose({{9, {3, kVocab}}}), kVocab);
}

// As embed.wgsl does of the id that the token becomes in `step`, in several workgroups, of which one writes
// there.
TEST_F(NextToken, IsEmbedded) {
  DOPPLER_NEEDS_ADAPTER();
  constexpr std::uint32_t kWidth = 192, kUnits = 3, kThreads = 32, kTiles = (kVocab + 63) / 64;
  const auto table = doppler::testing::random_floats(kTiles * 64 * kWidth, 3);
  const ShaderValues embeds = {{"THREADS", kThreads},
                               {"IDS", 5},
                               {"ADDS", 0},
                               {"WIDTH", kWidth},
                               {"ROW0", 0},
                               {"ROWS", kVocab},
                               {"TABLE", kVocab},
                               {"UNITS_K", kUnits},
                               {"FORM", 0},
                               {"SCALES", 0},
                               {"FACTOR_BITS", bits_of(1.5)}};
  const Workgroups groups = {(kWidth / 4 + kThreads - 1) / kThreads, 1, 1};
  for (const std::uint32_t chosen : {0u, 17u, kVocab - 1, 0xffffffffu}) {
    const std::uint32_t id = std::min(chosen, kVocab - 1);
    Launch expected(Mode::kUnchecked, "embed.wgsl", embeds);
    expected.in("step", std::vector<std::uint32_t>{0, 0, 0, 0, 0, id}).in("codes", table).out("out", kWidth);
    ASSERT_TRUE(expected.run(groups));
    ShaderValues values = {{"RING", kRing}, {"VOCAB", kVocab}, {"POSITIONS", 3},
                           {"COUNTED", 1},  {"GREEDY", 0},     {"EMBEDS", 1}};
    values.insert(embeds.begin(), embeds.end());
    Launch launch(Mode::kUnchecked, "next_token.wgsl", values);
    launch.in("step", std::vector<std::uint32_t>{1, 13, 2, 300, 3, 5, 4})
        .in("chosen", std::vector<std::uint32_t>{chosen})
        .in("codes", table)
        .out("ring", kRing)
        .out("out", kWidth);
    ASSERT_TRUE(launch.run(groups));
    EXPECT_EQ(launch.get("out"), expected.get("out")) << chosen;
    EXPECT_EQ(launch.get<std::uint32_t>("step"), (std::vector<std::uint32_t>{1, 14, 2, 301, 3, id, 4}));
    EXPECT_EQ(launch.get<std::uint32_t>("ring")[13 % kRing], chosen);
  }
}

}  // namespace
}  // namespace doppler::gpu
