// Faults that inject() puts in: each changes what is computed at the place that the table says, and nothing
// before it. A run with the fault is compared with one without, on the same backend, bit by bit.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "diagnosis/compare/recording.h"
#include "diagnosis/faults/faults.h"
#include "testing.h"

namespace doppler::diagnosis {
namespace {

using When = FaultPlace::When;

// Everything that a run computes, in order.
class Everything final : public Tap {
 public:
  struct Seen {
    std::string key;
    std::vector<float> data;
  };
  std::vector<Seen> stages;
  bool wants(Stage stage, int) const override { return stage != Stage::kAttnScores; }
  void on_stage(const TapEvent& event) override {
    stages.push_back({stage_key(event.stage, event.layer), {event.data.begin(), event.data.end()}});
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// The first stage of the right run that the other has not, or computes otherwise, in any of its steps.
std::string first_difference(const Everything& right, const Everything& other) {
  std::map<std::string, std::vector<const std::vector<float>*>> of;
  for (const auto& seen : other.stages) of[seen.key].push_back(&seen.data);
  std::map<std::string, std::size_t> step;
  for (const auto& seen : right.stages) {
    const std::size_t at = step[seen.key]++;
    if (at >= of[seen.key].size() || !same_bits(*of[seen.key][at], seen.data)) return seen.key;
  }
  return "";
}

// Several steps of one backend.
struct Runs {
  Everything prompt, decode, again, beside;
};

Result<Runs> run_all(Backend& backend, const std::vector<std::int32_t>& ids) {
  Runs runs;
  DOPPLER_TRY(feed(backend, 0, ids, 0, true, &runs.prompt));
  const std::int32_t more[] = {7, 9};
  DOPPLER_TRY(feed(backend, 0, more, 1, true, &runs.decode));
  backend.clear(0);
  DOPPLER_TRY(feed(backend, 0, ids, 0, true, &runs.again));
  backend.clear(0);
  StepInput both;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    both.add(ids[t], t, 0, true);
    both.add(ids[ids.size() - 1 - t], t, 1, true);
  }
  DOPPLER_TRY(backend.step(both, &runs.beside));
  return runs;
}

// A fixture, and what it computes on a backend when nothing is wrong.
class Ward {
 public:
  Ward(const std::string& family, const std::string& backend)
      : Ward(testing::data_path("models") / family, {}, backend) {
    auto recording = open_recording(testing::data_path("models") / family / "reference.safetensors");
    if (!recording) ADD_FAILURE() << recording.error().message;
    if (recording) ids = recording->prompt_ids;
  }
  Ward(const std::filesystem::path& path, std::vector<std::int32_t> prompt, const std::string& backend)
      : ids(std::move(prompt)) {
    auto loaded = load_model(path);
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      return;
    }
    model_ = std::move(*loaded);
    healthy.model = &model_;
    healthy.spec = model_.spec;
    healthy.weights = model_.weights;
    healthy.backend_name = backend;
    healthy.sample = [](const GenerateOptions&, TokenId, std::span<const float>, std::span<const TokenId>,
                        std::uint64_t) -> Result<TokenId> { return 0; };
    options = {.threads = 1, .context = 64, .slots = 2, .max_step_tokens = 64};
    options.gpu_setup.tune = false;
  }

  Result<Runs> right(bool with_hooks) {
    auto& kept = right_[with_hooks];
    if (!kept) {
      Fault nothing;  // the same passes are off
      BackendOptions with = options;
      if (with_hooks) with.fault = &nothing;
      DOPPLER_ASSIGN(const auto backend,
                     make_backend(healthy.backend_name, healthy.spec, healthy.weights, with));
      DOPPLER_ASSIGN(kept, run_all(*backend, ids));
    }
    return *kept;
  }

  Subject healthy;
  BackendOptions options;
  std::vector<std::int32_t> ids;

 private:
  Model model_;
  std::map<bool, std::optional<Runs>> right_;
};

void expect_at_its_place(const FaultInfo& fault, Ward& ward) {
  Subject subject = ward.healthy;
  ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject(fault.name, subject));
  if (place.when == When::kSubmit || place.when == When::kText || place.when == When::kChoice) return;
  ASSERT_OK_AND_ASSIGN(const auto backend, subject.backend(subject, ward.options));
  ASSERT_OK_AND_ASSIGN(const Runs runs, run_all(*backend, ward.ids));
  ASSERT_OK_AND_ASSIGN(const Runs right, ward.right(backend->options().fault != nullptr));
  const std::string in_prompt = first_difference(right.prompt, runs.prompt);
  if (place.when == When::kPrompt) {
    EXPECT_EQ(in_prompt, place.key());
    return;
  }
  if (place.when == When::kRepeated) {
    EXPECT_EQ(first_difference(runs.prompt, runs.again), place.key());
    return;
  }
  EXPECT_EQ(in_prompt, "");
  const std::pair<When, Everything Runs::*> later[] = {
      {When::kDecode, &Runs::decode}, {When::kAgain, &Runs::again}, {When::kBeside, &Runs::beside}};
  for (const auto& [when, run] : later) {
    if (place.when != when) continue;
    EXPECT_EQ(first_difference(right.*run, runs.*run), place.key());
  }
}

void expect_all_at_their_places(const std::string& family, const std::string& backend) {
  Ward ward(family, backend);
  std::size_t count = 0;
  for (const FaultInfo& fault : all_faults()) {
    if (!applies(fault.name, ward.healthy)) continue;
    SCOPED_TRACE(fmt::format("{} on {} of {}", fault.name, backend, family));
    expect_at_its_place(fault, ward);
    ++count;
  }
  EXPECT_GT(count, 40u);
}

// Those that only models with experts have.
TEST(Injection, FaultsOfExpertsShowAtTheirPlaces) {
  for (const auto& [family, faults] : {std::pair{"gpt_oss", 8u}, {"glm4_moe", 6u}}) {
    for (const char* backend : {"reference", "cpu"}) {
      Ward ward(family, backend);
      std::size_t count = 0;
      for (const FaultInfo& fault : all_faults()) {
        const bool of_experts = fault.name.starts_with("router_") || fault.name.starts_with("expert") ||
                                fault.name.starts_with("mxfp4_") || fault.name == "sinks_missing";
        // No value of the fixture reaches the limit.
        if (!of_experts || fault.name == "expert_clamp_missing" || !applies(fault.name, ward.healthy))
          continue;
        SCOPED_TRACE(fmt::format("{} on {} of {}", fault.name, backend, family));
        expect_at_its_place(fault, ward);
        ++count;
      }
      EXPECT_EQ(count, faults) << family;
    }
  }
}

// Those of layers that keep a state, latent attention, partial rotation, multipliers and gates.
TEST(Injection, FaultsOfStatesAndLatentsShowAtTheirPlaces) {
  constexpr std::string_view kOthers[] = {"latent_norm_missing",           "query_latent_norm_missing",
                                          "latent_rope_on_first_dims",     "rope_on_last_dims",
                                          "yarn_attention_factor_missing", "yarn_range_rounded",
                                          "residual_scale_missing",        "logit_scale_missing",
                                          "shared_expert_ungated",         "step_bias_missing"};
  const std::pair<const char*, std::size_t> cases[] = {{"mamba2", 12}, {"qwen3_5", 12},    {"jamba", 8},
                                                       {"lfm2", 5},    {"deepseek_v3", 4}, {"gpt_oss", 2},
                                                       {"granite", 2}, {"qwen3_next", 13}};
  for (const auto& [family, faults] : cases) {
    for (const char* backend : {"reference", "cpu"}) {
      Ward ward(family, backend);
      std::size_t count = 0;
      for (const FaultInfo& fault : all_faults()) {
        const bool of_states = fault.name.starts_with("convolution_") || fault.name.starts_with("decay_") ||
                               fault.name.starts_with("state");
        const bool other = std::ranges::find(kOthers, fault.name) != std::end(kOthers);
        if ((!of_states && !other) || !applies(fault.name, ward.healthy)) continue;
        SCOPED_TRACE(fmt::format("{} on {} of {}", fault.name, backend, family));
        ++count;
        // Without what reads it, the cpu backend computes the gate in another pass, which rounds otherwise.
        if (fault.name == "shared_expert_ungated" && ward.healthy.backend_name == "cpu") continue;
        expect_at_its_place(fault, ward);
      }
      EXPECT_EQ(count, faults) << family;
    }
  }
}

constexpr const char* kInjectedFamilies[] = {"gemma3", "llama3", "qwen3"};

TEST(Injection, FaultsShowAtTheirPlacesOnTheReference) {
  for (const char* family : kInjectedFamilies) expect_all_at_their_places(family, "reference");
}

TEST(Injection, FaultsShowAtTheirPlacesOnTheCpu) {
  for (const char* family : kInjectedFamilies) expect_all_at_their_places(family, "cpu");
}

#if DOPPLER_GPU
// One of each way into the gpu backend, because making a backend takes a software adapter half a second:
// tokens as the ops see them, values as they are written back, the cache, decoding, and edits of kernels'
// texts. bench/fault_benchmark runs all of them.
TEST(Injection, FaultsShowAtTheirPlacesOnTheGpu) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"gemma3", {"norm_offset_missing", "kv_append_off_by_one"}},
      {"llama3", {"rope_position_off_by_one", "gpu_rows_limit"}},
      {"qwen3", {"activation_on_both", "decode_breaks_odd_layers"}}};
  for (const auto& [family, names] : cases) {
    Ward ward(family, "gpu");
    for (const FaultInfo& fault : all_faults()) {
      if (std::ranges::find(names, fault.name) == names.end()) continue;
      SCOPED_TRACE(fmt::format("{} on gpu of {}", fault.name, family));
      expect_at_its_place(fault, ward);
    }
  }
}

// A wrong kernel that the self-check knows is refused before it computes anything.
TEST(Injection, TheSelfCheckRefusesAnEditedKernel) {
  Ward ward("llama3", "gpu");
  BackendOptions options = ward.options;
  options.gpu_setup.shader_edits = {{"batch_norm.wgsl", "* g * weight[v${i}]", "* g + weight[v${i}]"}};
  options.disabled_passes = {"batch_norm"};
  const auto backend = make_backend("gpu", ward.healthy.spec, ward.healthy.weights, options);
  const auto fed =
      backend ? feed(**backend, 0, ward.ids, 0, true, nullptr) : std::unexpected(backend.error());
  EXPECT_ERROR(fed, "computes the kernel batch_norm.wgsl");
}

TEST(Injection, AnEditThatFindsNothingIsAnError) {
  Ward ward("llama3", "gpu");
  BackendOptions options = ward.options;
  options.gpu_setup.shader_edits = {{"embed.wgsl", "no such text", ""}};
  const auto backend = make_backend("gpu", ward.healthy.spec, ward.healthy.weights, options);
  const auto fed =
      backend ? feed(**backend, 0, ward.ids, 0, true, nullptr) : std::unexpected(backend.error());
  EXPECT_ERROR(fed, "The shader embed.wgsl has no text no such text to edit.");
}
#endif

// A fault that does nothing changes no bit, though passes are off for it.
TEST(Injection, WithoutAFaultBitsAreEqual) {
  for (const char* family : kInjectedFamilies) {
    for (const char* backend : {"reference", "cpu"}) {
      Ward ward(family, backend);
      ASSERT_OK_AND_ASSIGN(const Runs plain, ward.right(false));
      ASSERT_OK_AND_ASSIGN(const Runs with, ward.right(true));
      for (const auto run : {&Runs::prompt, &Runs::decode, &Runs::again, &Runs::beside})
        EXPECT_EQ(first_difference(plain.*run, with.*run), "") << family << " on " << backend;
    }
  }
}

// Blocks of the quantised fixtures.
TEST(Injection, FaultsOfQuantisedBlocksShowAtTheirPlaces) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"gguf/llama.Q4_0.gguf", {"nibble_order", "row_blocks_misaligned"}},
      {"gguf/llama.Q5_1.gguf", {"scale_min_swapped"}},
      {"gguf/llama_k256.Q4_K_M.gguf", {"nibble_order", "scale_min_swapped", "row_blocks_misaligned"}}};
  for (const auto& [file, names] : cases) {
    Ward ward(testing::data_path(file), {2, 17, 33, 5, 101, 40}, "cpu");
    for (const FaultInfo& fault : all_faults()) {
      if (std::ranges::find(names, fault.name) == names.end()) continue;
      SCOPED_TRACE(fmt::format("{} of {}", fault.name, file));
      ASSERT_TRUE(applies(fault.name, ward.healthy));
      expect_at_its_place(fault, ward);
    }
  }
}

// What is wrong before the first op, or after the last.
TEST(Injection, TextAndChoiceChange) {
  ASSERT_OK_AND_ASSIGN(const Loaded demo, load_all(std::filesystem::path(DOPPLER_SOURCE_DIR) / "demo",
                                                   {.backend = "reference", .context = 64}));
  const Subject healthy = subject_of(demo, "cpu");
  const auto ids_with = [&](std::string_view fault) {
    Subject subject = healthy;
    EXPECT_TRUE(inject(fault, subject)) << fault;
    const auto ids = subject.prompt_ids("The color of the sky is");
    EXPECT_TRUE(ids);
    return ids.value_or(std::vector<TokenId>());
  };
  ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> right, healthy.prompt_ids("The color of the sky is"));
  std::vector<TokenId> doubled = right;
  doubled.insert(doubled.begin(), right[0]);
  EXPECT_EQ(ids_with("double_bos"), doubled);
  EXPECT_EQ(ids_with("bos_missing"), std::vector<TokenId>(right.begin() + 1, right.end()));
  EXPECT_GT(ids_with("merges_dropped").size(), right.size() * 2);

  std::vector<float> logits(256, 0.0f);
  logits[3] = 9, logits[4] = 8, logits[5] = 7;
  const auto choice_with = [&](std::string_view fault, const GenerateOptions& options, TokenId pad) {
    Subject subject = healthy;
    EXPECT_TRUE(fault.empty() || inject(fault, subject)) << fault;
    const TokenId history[] = {3};
    return subject.sample(options, pad, logits, history, 0).value_or(-1);
  };
  EXPECT_EQ(choice_with("", {}, 3), 4);
  EXPECT_EQ(choice_with("pad_wins", {}, 3), 3);
  const GenerateOptions penalty = {.repeat_penalty = 4};
  EXPECT_EQ(choice_with("", penalty, -1), 4);
  EXPECT_EQ(choice_with("penalty_skipped", penalty, -1), 3);
  const GenerateOptions flat = {.temperature = 1e9, .top_k = 2};
  EXPECT_LE(choice_with("", flat, -1), 4);
  bool outside = false;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const GenerateOptions seeded = {.temperature = 1e9, .top_k = 2, .seed = seed};
    outside = outside || choice_with("top_k_stripe", seeded, -1) > 4;
  }
  EXPECT_TRUE(outside);
}

TEST(Injection, UnknownAndUnfittingFaultsAreRefused) {
  Ward ward("llama3", "cpu");
  Subject subject = ward.healthy;
  EXPECT_ERROR(inject("rope_tetha", subject), "There is no fault rope_tetha.");
  EXPECT_ERROR(inject("qk_norm_missing", subject), "The fault qk_norm_missing does not apply",
               "but to models with q/k norm");
  EXPECT_ERROR(inject("gpu_rope_pairs", subject), "does not apply");
  EXPECT_FALSE(subject.backend);  // nothing was put in
}

TEST(Injection, EveryFaultNamesAKnownCause) {
  for (const FaultInfo& fault : all_faults()) EXPECT_NE(find_cause(fault.cause), nullptr) << fault.name;
}

}  // namespace
}  // namespace doppler::diagnosis
