// Faults that inject() puts in: each changes what is computed at the place that the table says, and nothing
// before it. A run with the fault is compared with one without, on the same backend, bit by bit.
#include <fmt/format.h>

#include <cstring>
#include <map>

#include "inspect/faults.h"
#include "inspect/recording.h"
#include "testing.h"

namespace doppler {
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
  Ward(const std::string& family, const std::string& backend) {
    auto loaded = load_model(testing::data_path("models") / family);
    auto recording = open_recording(testing::data_path("models") / family / "reference.safetensors");
    if (!loaded || !recording) {
      ADD_FAILURE() << family;
      return;
    }
    model_ = std::move(*loaded);
    ids = recording->prompt_ids;
    healthy.model = &model_;
    healthy.spec = model_.spec;
    healthy.weights = model_.weights;
    healthy.backend_name = backend;
    healthy.sample = [](const GenerateOptions&, TokenId, std::span<const float>, std::span<const TokenId>,
                        std::uint64_t) -> Result<TokenId> { return 0; };
    options = {.threads = 1, .context = 64, .slots = 2, .max_step_tokens = 64};
    options.gpu.tune = false;
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
    if (const char* only = std::getenv("ONLY"); only && fault.name.find(only) == std::string_view::npos)
      continue;
    SCOPED_TRACE(fmt::format("{} on {} of {}", fault.name, backend, family));
    expect_at_its_place(fault, ward);
    ++count;
  }
  EXPECT_GT(count, 40u);
}

TEST(Injection, FaultsShowAtTheirPlacesOnTheReference) {
  for (const char* family : {"gemma3", "llama3", "qwen3"}) expect_all_at_their_places(family, "reference");
}

TEST(Injection, FaultsShowAtTheirPlacesOnTheCpu) {
  for (const char* family : {"gemma3", "llama3", "qwen3"}) expect_all_at_their_places(family, "cpu");
}

#if DOPPLER_GPU
TEST(Injection, FaultsShowAtTheirPlacesOnTheGpu) {
  for (const char* family : {"gemma3", "llama3", "qwen3"}) expect_all_at_their_places(family, "gpu");
}
#endif

TEST(Injection, EveryFaultNamesAKnownCause) {
  for (const FaultInfo& fault : all_faults()) EXPECT_NE(find_cause(fault.cause), nullptr) << fault.name;
}

}  // namespace
}  // namespace doppler
