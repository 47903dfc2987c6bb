// What the self-check refuses is not taken: the next variant, shape or way to attend is put in its place,
// with a line that says so. What passed is remembered.
#include "backend/gpu/token_check.h"
#include "base/files.h"
#include "environment.h"
#include "harness.h"
#include "kernel_variants.h"

namespace doppler::gpu {
namespace {

using namespace testing;
using doppler::testing::EmptyCache;
using doppler::testing::TempDir;

TEST(SelfCheck, TakesTheNextVariantAndSaysWhy) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device(Mode::kUnchecked);
  if (!d.features().subgroups) GTEST_SKIP() << "the adapter has no subgroups to get wrong";
  for (const auto& [variant, file, from, to] :
       {std::tuple(norm_variant(640), "reduce.wgsl", "v += subgroupShuffleXor(v, ${1 << k}u);", "v += v;"),
        std::tuple(rope_variant(true, true, true), "reduce.wgsl", "v += subgroupShuffleXor(v, ${1 << k}u);",
                   "v += v;"),
        std::tuple(combine_variant(true, 0, true), "quantise_vec.wgsl",
                   "most = max(most, subgroupShuffleXor(most, 4u));", ""),
        std::tuple(quantise_variant(true, 200, false), "quantise_vec.wgsl",
                   "most = max(most, subgroupShuffleXor(most, 4u));", "")}) {
    // Blocks are made without small ones.
    if (d.features().subgroup_size < 8 && std::string_view(file) == "quantise_vec.wgsl") continue;
    const Broken broken(file, from, to);
    SelfCheck check(d, {});
    ASSERT_OK_AND_ASSIGN(const auto kernel, check.check(nullptr, variant.file, variant.values));
    EXPECT_NE(kernel->label().find("SUBGROUPS=0"), std::string::npos) << kernel->label();
    ASSERT_EQ(check.refusals().size(), 1u);
    EXPECT_NE(check.refusals()[0].find("computes the kernel " + variant.name()), std::string::npos);
    EXPECT_NE(check.refusals()[0].find("should be"), std::string::npos);
    EXPECT_EQ(check.runs(), 2u);
    const Variant alone[] = {variant};
    EXPECT_ERROR(check.choose(alone), variant.name().c_str(), "No other variant of it is left",
                 "--backend cpu");
  }
}

// Kernels of a program are declared, then compiled and checked together; of those the wrong one is replaced
// when it is asked for again.
TEST(SelfCheck, FindsWhatIsWrongAmongKernelsThatAreCheckedTogether) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device(Mode::kUnchecked);
  if (!d.features().subgroups) GTEST_SKIP() << "the adapter has no subgroups to get wrong";
  ThreadPool pool(2);
  const auto caches = [&](SelfCheck& check) {
    KernelCache kernels(d);
    kernels.check_with(
        [&](std::shared_ptr<const Kernel> compiled, std::string_view file, const ShaderValues& values) {
          return check.check(std::move(compiled), file, values);
        },
        [&](std::span<KernelCache::Compiled> compiled, ThreadPool& threads) {
          return check.check_ahead(compiled, threads);
        });
    return kernels;
  };
  const Variant variants[] = {norm_variant(640), attention_variant(true, 0, true, 5)};
  const Variant& norm = variants[0];
  const auto declare = [&](KernelCache& kernels) {
    kernels.defer();
    for (const Variant& variant : variants) {
      auto kernel = kernels.get(variant.file, variant.values);
      ASSERT_OK(kernel);
      EXPECT_EQ((*kernel)->pipeline(), nullptr);
      EXPECT_NE((*kernel)->layout(), nullptr);
    }
  };
  {
    SelfCheck check(d, {});
    KernelCache kernels = caches(check);
    declare(kernels);
    ASSERT_OK_AND_ASSIGN(const bool passed, kernels.finish(pool));
    EXPECT_TRUE(passed);
    EXPECT_EQ(check.runs(), 2u);
    ASSERT_OK_AND_ASSIGN(const auto kernel, kernels.get(norm.file, norm.values));
    EXPECT_NE(kernel->pipeline(), nullptr);
    EXPECT_EQ(check.runs(), 2u);
  }
  const Broken wrong("reduce.wgsl", "v += subgroupShuffleXor(v, ${1 << k}u);", "v += v;");
  SelfCheck check(d, {});
  KernelCache kernels = caches(check);
  declare(kernels);
  ASSERT_OK_AND_ASSIGN(const bool passed, kernels.finish(pool));
  EXPECT_FALSE(passed);
  EXPECT_TRUE(check.refusals().empty());
  ASSERT_OK_AND_ASSIGN(const auto kernel, kernels.get(norm.file, norm.values));
  EXPECT_NE(kernel->label().find("SUBGROUPS=0"), std::string::npos) << kernel->label();
  EXPECT_EQ(check.refusals().size(), 1u);
}

TEST(SelfCheck, RemembersWhatPassed) {
  DOPPLER_NEEDS_ADAPTER();
  const TempDir folder;
  Device& d = *device(Mode::kUnchecked);
  const Variant a = norm_variant(64), b = norm_variant(128);
  SelfCheck first(d, folder / "deep" / "er");
  ASSERT_OK(first.check(nullptr, a.file, a.values));
  EXPECT_EQ(first.runs(), 1u);
  first.remember();
  SelfCheck second(d, folder / "deep" / "er");
  ASSERT_OK(second.check(nullptr, a.file, a.values));
  EXPECT_EQ(second.runs(), 0u);
  ASSERT_OK(second.check(nullptr, b.file, b.values));
  EXPECT_EQ(second.runs(), 1u);
  // Another device, another file: its kernels are others.
  SelfCheck elsewhere(*device(Mode::kChecked), folder / "deep" / "er");
  ASSERT_OK(elsewhere.check(nullptr, a.file, a.values));
  EXPECT_EQ(elsewhere.runs(), 1u);

  // A file that somebody broke is as good as none, and one that cannot be written is no error.
  const auto file = *std::filesystem::directory_iterator(folder / "deep" / "er");
  for (const char* text : {"", "{", "[]", "{\"passed\": 1}", "{\"passed\": [1, null]}"}) {
    doppler::testing::write_file(file.path(), text);
    SelfCheck broken(d, folder / "deep" / "er");
    ASSERT_OK(broken.check(nullptr, a.file, a.values));
    EXPECT_EQ(broken.runs(), 1u) << text;
  }
  doppler::testing::write_file(folder / "file", "");
  SelfCheck nowhere(d, folder / "file" / "below");
  ASSERT_OK(nowhere.check(nullptr, a.file, a.values));
  nowhere.remember();
}

TEST(SelfCheck, TokensBetweenTwoExpertsAreToldFromWrongOnes) {
  const CheckedToken expected{.logits = {1, -2, 0.5f},
                              .routing = {{0, {{3, 1, 1.0001f}, {0, 2}}}, {1, {{1, 2, 3}, {2, 1}}}}};
  bool tied = true;
  EXPECT_EQ(token_difference(expected, expected, 1e-3, tied), "");
  EXPECT_FALSE(tied);

  CheckedToken other = expected;  // the same experts in another order, and logits within what is allowed
  other.routing[1].ids = {1, 2};
  other.logits[0] = 1.001f;
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied), "");
  EXPECT_FALSE(tied);
  other.logits[0] = 1.1f;
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied),
            "gives the token 0 the logit 1.1 where it should be 1");

  other.routing[0].ids = {0, 1};  // between experts 1 and 2: all behind is another computation
  other.routing[1].logits = {9, 9, 9};
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied), "");
  EXPECT_TRUE(tied);

  other.routing[0].logits[1] = 2;  // its router is wrong
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied),
            "gives the expert 1 of layer 0 the logit 2 where it should be 1");
  EXPECT_FALSE(tied);
  other.routing.erase(0);
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied), "shows no experts of layer 0");
  other = expected;
  other.logits[2] = NAN;
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied),
            "gives the token 2 the logit nan where it should be 0.5");
}

TEST(SelfCheck, RunsSingleTokensAsABatchWhereTheirProgramIsWrong) {
  DOPPLER_NEEDS_ADAPTER();
  const EmptyCache cache;
  ASSERT_OK_AND_ASSIGN(const auto fixture, doppler::testing::load_fixture("llama"));
  const BackendOptions options{
      .threads = 2, .context = 96, .slots = 1, .max_step_tokens = 80, .disabled_passes = {}};
  const auto why = [&]() -> Result<std::string> {
    DOPPLER_ASSIGN(const auto backend,
                   make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    EXPECT_EQ(backend->can_continue({}),
              backend->describe()->front().why.find("wrongly") == std::string::npos);
    EXPECT_EQ(backend->length(0), 0u);
    StepInput input;
    input.add(1, 0, 0, true);
    DOPPLER_TRY(backend->step(input, nullptr));
    DOPPLER_ASSIGN(const auto rows, backend->describe());
    const bool told = std::ranges::any_of(
        backend->fallbacks(), [&](const Fallback& fallback) { return fallback.why == rows.front().why; });
    EXPECT_EQ(told, rows.front().variant == "as a batch");
    return rows.front().variant == "as a batch" ? rows.front().why : std::string();
  };
  const auto expect_refused = [&](const char* file, const char* from, const char* to, const char* said) {
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const std::string reason, why());
    EXPECT_NE(reason.find("computes single tokens wrongly"), std::string::npos) << file << ": " << reason;
    EXPECT_NE(reason.find(said), std::string::npos) << file << ": " << reason;
  };
  expect_refused("head.wgsl", "      logits[${ROW0}u + row] = logit;",
                 "      logits[${ROW0}u + row] = logit + f32(row & 1u);", "gives the token");
  expect_refused("head.wgsl", "best_row = ${ROW0}u + row;", "best_row = ${ROW0}u + row + 1u;",
                 "does not choose the likeliest token");
}

// Whether a line says that this kernel is computed wrongly.
bool tells_of(const std::vector<Fallback>& fallbacks, std::string_view kernel) {
  return std::ranges::any_of(fallbacks, [&](const Fallback& told) {
    return told.why.find(fmt::format("computes the kernel {} ", kernel)) != std::string::npos;
  });
}

BackendOptions untuned(std::uint64_t context, std::uint32_t slots, std::uint32_t step_tokens) {
  BackendOptions options{.threads = 2, .context = context, .slots = slots, .max_step_tokens = step_tokens};
  options.gpu_setup.tune = false;
  return options;
}

struct Prompted {
  std::vector<float> logits;
  std::vector<Fallback> fallbacks;
  std::size_t agree = 0;  // rows_that_agree()
  bool checks = false;    // guesses
};
// A prompt of so many tokens, in pieces of these sizes, on a GPU of which nothing is remembered.
Result<Prompted> prompt_anew(const Model& model, const BackendOptions& options, std::int32_t tokens,
                             const std::vector<std::size_t>& sizes) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < tokens; ++i)
    ids.push_back((i * i + 7 * i) % static_cast<std::int32_t>(model.spec.vocab_size));
  const EmptyCache cache;
  DOPPLER_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
  Prompted seen{.logits = doppler::testing::run_in_pieces(*backend, ids, sizes)};
  seen.fallbacks = backend->fallbacks(), seen.agree = backend->rows_that_agree();
  seen.checks = backend->continuer()->prepare_check(4, {}).has_value();
  return seen;
}

// Of the ways in which a prompt attends the first is broken, then the first two: the next one runs, the
// product behind quantises for itself where nobody leaves it blocks, and a line says so.
TEST(SelfCheck, TakesTheNextWayToAttendWhereTheFirstAreWrong) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       load_model(doppler::testing::data_path("gguf/gemma3_k288.Q4_0.gguf")));
  BackendOptions options = untuned(64, 1, 48);
  options.gpu_setup.no_tiles = true;  // attention on tensor cores is another kernel
  const auto look = [&] { return prompt_anew(model, options, 44, {40, 1}); };
  ASSERT_OK_AND_ASSIGN(const Prompted whole, look());
  const auto expect_without = [&](const char* kernel, const char* file, const char* from, const char* to) {
    SCOPED_TRACE(kernel);
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const Prompted other, look());
    // Other orders of sums, where a last bit decides between two codes of an activation.
    EXPECT_LT(doppler::testing::relative_error(other.logits, whole.logits), 0.02);
    EXPECT_GT(other.fallbacks.size(), whole.fallbacks.size());
    EXPECT_TRUE(tells_of(other.fallbacks, kernel));
  };
  expect_without("attention_combine.wgsl", "prompt_parts.wgsl", "part_of(position) + 1u - first)",
                 "part_of(position) - first)");
  expect_without("attention_tiled.wgsl", "attention_tiled.wgsl", "vec2f(most${r}, all)",
                 "vec2f(most${r}, 1.0)");
  expect_without("attention_tiled.wgsl", "attention_tiled.wgsl", "(at <= vec4u(to${r}))",
                 "(at < vec4u(to${r}))");
}

// Kernels of several ops of a prompt are broken, with subgroups and without: their ops run by themselves, and
// leave what the products behind read.
TEST(SelfCheck, TakesOpsOneByOneWhereTheirKernelIsWrong) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       load_model(doppler::testing::data_path("gguf/gemma3_k288.Q4_0.gguf")));
  const BackendOptions options = untuned(128, 1, 80);
  const auto look = [&] { return prompt_anew(model, options, 78, {70, 7, 1}); };
  ASSERT_OK_AND_ASSIGN(const Prompted whole, look());
  EXPECT_GT(whole.agree, 1u);
  for (const auto& [file, from, to] :
       {std::tuple("batch_norm.wgsl", "+ v${i}] = made.word;", "+ v${i}] = made.word + 1u;"),
        std::tuple("batch_quantise.wgsl", "activate(x.w)) * factor", "activate(x.w)) * factor.yxzw"),
        std::tuple("rope_append.wgsl", "q_out[to + 1u] = pair.y;", "q_out[to + 1u] = pair.x;")}) {
    SCOPED_TRACE(to);
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const Prompted other, look());
    // Other orders of sums, where a last bit decides between two codes of an activation.
    EXPECT_LT(doppler::testing::relative_error(other.logits, whole.logits), 0.02);
    EXPECT_TRUE(tells_of(other.fallbacks, file));
    EXPECT_EQ(other.agree, 1u);
  }
}

// The norm is broken only where it leaves blocks that share their scales, as a prompt's products read them:
// newest tokens have theirs, so that guesses are checked as before.
TEST(SelfCheck, KeepsGuessesWhereOnlyPromptsDoWithout) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       load_model(doppler::testing::data_path("gguf/llama_k256.Q4_K_M.gguf")));
  BackendOptions options = untuned(128, 1, 80);
  options.gpu_setup.no_tiles = true;
  const auto look = [&] { return prompt_anew(model, options, 78, {70, 7, 1}); };
  ASSERT_OK_AND_ASSIGN(const Prompted whole, look());
  EXPECT_GT(whole.agree, 1u);
  EXPECT_TRUE(whole.checks);
  const Broken broken("batch_norm.wgsl", "+ v${i}] = made.word;", "+ v${i}] = made.word + ${WIDE}u;");
  ASSERT_OK_AND_ASSIGN(const Prompted other, look());
  EXPECT_LT(doppler::testing::relative_error(other.logits, whole.logits), 0.02);
  EXPECT_TRUE(tells_of(other.fallbacks, "batch_norm.wgsl"));
  EXPECT_EQ(other.agree, whole.agree);
  EXPECT_TRUE(other.checks);
}

// What newest tokens attend with is broken: the program for single tokens does without it, and so does a step
// of several sequences, with the blocks that the product behind reads.
TEST(SelfCheck, TakesTheNextWayToAttendForNewestTokens) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       load_model(doppler::testing::data_path("gguf/gemma3_k288.Q4_0.gguf")));
  const BackendOptions options = untuned(64, 2, 48);
  struct Seen {
    std::vector<float> logits;  // of steps of two sequences, then of a single token
    std::vector<Fallback> fallbacks;
    std::size_t agree = 0;  // rows_that_agree()
    bool continues = false, checks = false;
  };
  const auto look = [&]() -> Result<Seen> {
    const EmptyCache cache;
    DOPPLER_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
    Seen seen{.checks = backend->continuer()->prepare_check(4, {}).has_value()};
    for (std::int32_t i = 0; i < 12; ++i) {
      StepInput two;
      two.add(i * 31 % 97, i, 0, true);
      two.add(i * 57 % 89, i, 1, true);
      DOPPLER_ASSIGN(const auto logits, backend->step(two, nullptr));
      seen.logits.insert(seen.logits.end(), logits.begin(), logits.end());
    }
    StepInput one;
    one.add(5, 12, 1, true);
    DOPPLER_ASSIGN(const auto logits, backend->step(one, nullptr));
    seen.logits.insert(seen.logits.end(), logits.begin(), logits.end());
    seen.fallbacks = backend->fallbacks();
    seen.agree = backend->rows_that_agree();
    seen.continues = backend->can_continue({});
    return seen;
  };
  ASSERT_OK_AND_ASSIGN(const Seen whole, look());
  EXPECT_TRUE(whole.continues && whole.checks);
  EXPECT_GT(whole.agree, 1u);
  for (const auto& [file, from, to, kernel] :
       {std::tuple("splits.wgsl", "s.end = position + 1u;", "s.end = position;", "attention_decode.wgsl"),
        std::tuple("attention_decode.wgsl", "let from_x = token * ${QKV_STRIDE / 4}u",
                   "let from_x = token * ${QKV_STRIDE / 4}u + 1u", "attention_decode.wgsl"),
        std::tuple("attention_combine.wgsl", "token * ${WIDTH / 4}u", "token", "attention_combine.wgsl")}) {
    SCOPED_TRACE(to);
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const Seen other, look());
    // Other orders of sums, where a last bit decides between two codes of an activation.
    EXPECT_LT(doppler::testing::relative_error(other.logits, whole.logits), 0.02);
    EXPECT_TRUE(other.continues);
    EXPECT_EQ(other.agree, 1u);
    EXPECT_FALSE(other.checks);  // guesses would be taken for what a single token does not choose
    EXPECT_TRUE(tells_of(other.fallbacks, kernel));
  }
}

// The shape that looks best is broken, the others are not.
TEST(SelfCheck, TakesTheNextShapesWhereTheFirstAreWrong) {
  DOPPLER_NEEDS_ADAPTER();
  const EmptyCache cache;
  ASSERT_OK_AND_ASSIGN(const auto fixture, doppler::testing::load_fixture("llama"));
  BackendOptions options{.threads = 2, .context = 96, .slots = 1, .max_step_tokens = 80};
  options.gpu_setup.tune =
      false;  // else the second load may measure other shapes as the fastest, and break none
  struct Seen {
    std::string head;  // "R=8 LANES=1 UNITS=1"
    std::vector<Fallback> fallbacks;
    bool continues = false;
  };
  const auto look = [&]() -> Result<Seen> {
    DOPPLER_ASSIGN(const auto backend,
                   make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    DOPPLER_ASSIGN(const auto rows, backend->describe());
    Seen seen{.head = {}, .fallbacks = backend->fallbacks(), .continues = backend->can_continue({})};
    for (const VariantRow& row : rows) {
      if (!row.variant.starts_with("head.wgsl")) continue;
      const KernelLabel label(row.variant);
      seen.head =
          fmt::format("R={} LANES={} UNITS={}", label.get("R"), label.get("LANES"), label.get("UNITS"));
    }
    return seen;
  };
  ASSERT_OK_AND_ASSIGN(const Seen whole, look());
  ASSERT_TRUE(whole.continues);
  std::uint32_t r = 0, lanes = 0, units = 0;
  ASSERT_EQ(std::sscanf(whole.head.c_str(), "R=%u LANES=%u UNITS=%u", &r, &lanes, &units), 3) << whole.head;
  const Broken broken(
      "head.wgsl", "best_row = ${ROW0}u + row;",
      fmt::format("best_row = ${{ROW0}}u + row + select(0u, 1u, ${{R}}u == {}u && ${{LANES}}u == "
                  "{}u && ${{UNITS}}u == {}u);",
                  r, lanes, units));
  const EmptyCache fresh;
  ASSERT_OK_AND_ASSIGN(const Seen next, look());
  EXPECT_TRUE(next.continues);
  EXPECT_NE(next.head, whole.head);
  ASSERT_EQ(next.fallbacks.size(), whole.fallbacks.size() + 1);
  EXPECT_NE(next.fallbacks.front().what.find("other shapes"), std::string::npos)
      << next.fallbacks.front().what;
  EXPECT_NE(next.fallbacks.front().why.find("does not choose the likeliest token"), std::string::npos)
      << next.fallbacks.front().why;
}

TEST(SelfCheck, ChecksAWholeModelOnce) {
  DOPPLER_NEEDS_ADAPTER();
  const EmptyCache cache;
  EXPECT_EQ(gpu::CacheFile::user_folder(), cache / "doppler");
  ASSERT_OK_AND_ASSIGN(const auto fixture, doppler::testing::load_fixture("llama"));
  BackendOptions options{.threads = 2, .context = 64, .max_step_tokens = 8, .disabled_passes = {}};
  options.gpu_setup.tune = false;  // what a second load measures may be another program
  // Kernels are made, and checked, for the first step that needs them.
  const auto first_step = [&]() -> Status {
    DOPPLER_ASSIGN(const auto backend,
                   make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    StepInput input;
    input.add(1, 0, 0, false);
    input.add(2, 1, 0, true);
    DOPPLER_TRY(backend->step(input, nullptr));
    EXPECT_TRUE(backend->can_continue({}))  // the program for single tokens passes, too
        << (backend->fallbacks().empty() ? "" : backend->fallbacks().front().why);
    return {};
  };
  ASSERT_OK(first_step());
  ASSERT_TRUE(std::filesystem::exists(cache / "doppler"));
  std::filesystem::path checked;
  for (const auto& entry : std::filesystem::directory_iterator(cache / "doppler")) {
    if (entry.path().filename().string().starts_with("gpu-checked-")) checked = entry.path();
  }
  ASSERT_OK_AND_ASSIGN(const std::string text, read_text_file(checked, 1 << 20));
  EXPECT_NE(text.find("\"gemv.wgsl "), std::string::npos) << text;
  EXPECT_NE(text.find("\"batch_norm.wgsl "), std::string::npos) << text;
  // Remembered: the broken kernel is not looked at again.
  const Broken broken("batch_norm.wgsl", "x = h${i} * g", "x = h${i} * g * 2.0");
  ASSERT_OK(first_step());
}

}  // namespace
}  // namespace doppler::gpu
