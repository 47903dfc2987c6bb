// Without any recording: what a trained model says of itself. The demo is the trained one; the fixtures are
// random, so that their loss says nothing.
#include "base/json.h"
#include "diagnosis/doctor/text_loss.h"
#include "diagnosis/doctor/trial.h"
#include "diagnosis/doctor_patients.h"
#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::examine;
using testing::PatientFolder;

const Loaded& demo() {
  static const Loaded kLoaded = [] {
    auto loaded = testing::load_patient(testing::patient_source("demo"));
    EXPECT_TRUE(loaded.has_value());
    return std::move(*loaded);
  }();
  return kLoaded;
}

Result<Diagnosis> examine_demo(std::string_view fault, std::vector<std::string> checks) {
  Subject subject = subject_of(demo(), "cpu");
  subject.options.threads = 2;
  if (!fault.empty()) DOPPLER_TRY(inject(fault, subject));
  return diagnose(subject, {.seconds = 240, .only = std::move(checks)});  // no clock decides
}

struct FaultCase {
  const char* fault;
  const char* check;  // that finds it
};
// One of each kind: a value, an order of ops, names, rows, a layer, and what the weights themselves show.
// bench/fault_benchmark --truth none has them all.
constexpr FaultCase kTrialFaults[] = {
    {"qk_norm_offset", "loss"}, {"residual_after_norm", "loss"},  {"rope_thetas_swapped", "loss"},
    {"k_v_swapped", "loss"},    {"rotary_rows_permuted", "loss"}, {"layer_left_out", "loss"},
    {"signs_lost", "layers"},   {"bf16_read_as_f16", "layers"},   {"final_norm_stale", "layers"},
    {"stale_layer", "layers"},
};

class Alone : public ::testing::TestWithParam<FaultCase> {};

TEST_P(Alone, NamesTheFaultAndNothingElse) {
  const auto& [fault, check] = GetParam();
  Subject subject = subject_of(demo(), "cpu");
  ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject(fault, subject));
  const auto infos = all_faults();
  const auto info = std::ranges::find(infos, std::string_view(fault), &FaultInfo::name);
  ASSERT_NE(info, infos.end());
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_demo(fault, {check}));
  ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].cause, info->cause) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].layer, place.layer) << all_findings(diagnosis);
}

INSTANTIATE_TEST_SUITE_P(Doctor, Alone, ::testing::ValuesIn(kTrialFaults),
                         [](const auto& test) { return std::string(test.param.fault); });

// Repairs that only make a broken model doubt more (caps, smaller scales) must not be named, nor those that
// are tried on healthy ones.
TEST(DoctorAlone, FindsNothingInAHealthyModelAndSaysWhatItSaw) {
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_demo("", {"loss", "weights", "layers"}));
  EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
  const auto loss = std::ranges::find(diagnosis.checks, std::string_view("loss"), &CheckResult::name);
  ASSERT_NE(loss, diagnosis.checks.end());
  EXPECT_NE(loss->text.find("none lowers it clearly"), std::string::npos) << loss->text;
}

TEST(DoctorAlone, SaysWhichRepairsWereLeftOutForLackOfTime) {
  const Subject subject = subject_of(demo(), "cpu");
  ASSERT_OK_AND_ASSIGN(const Diagnosis some, diagnose(subject, {.seconds = 0.2, .only = {"loss"}}));
  EXPECT_TRUE(some.healthy());
  EXPECT_NE(some.checks[0].text.find("left out for lack of time"), std::string::npos) << some.checks[0].text;
  ASSERT_OK_AND_ASSIGN(const Diagnosis none, diagnose(subject, {.seconds = 1e-6, .only = {"loss"}}));
  EXPECT_EQ(none.checks[0].state, CheckState::kSkipped);
  EXPECT_NE(none.checks[0].text.find("raise --seconds"), std::string::npos) << none.checks[0].text;
}

// A model that nobody trained guesses, whatever is changed.
TEST(DoctorAlone, SaysThatTheLossTellsNothingOfAnUntrainedModel) {
  PatientFolder patient("demo");
  patient.change_tensors([](testing::RawTensors& all) {
    std::uint64_t state = 7;
    for (auto& [name, tensor] : all) {
      if (tensor.shape.size() < 2) continue;
      tensor.each([&](float) {
        state = state * 6364136223846793005 + 1442695040888963407;
        return static_cast<float>(static_cast<double>(state >> 40) / double{1 << 24} - 0.5) * 0.05F;
      });
    }
  });
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(patient.path()));
  Subject subject = subject_of(loaded, "cpu");
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, diagnose(subject, {.seconds = 240, .only = {"loss"}}));
  EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
  EXPECT_NE(diagnosis.checks[0].text.find("says nothing of this model"), std::string::npos)
      << diagnosis.checks[0].text;
}

// The same text, cut as other tokenizers would: what the model reads far better is what it was trained with.
TEST(DoctorAlone, NamesTheStepOfATokenizerThatMakesAModelReadBadly) {
  for (const Json& normalizer :
       {Json(), Json{{"type", "Sequence"},
                     {"normalizers",
                      {{{"type", "Lowercase"}},
                       {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}}) {
    PatientFolder patient("demo");
    patient.change_json("tokenizer.json", [&](Json& t) { t["normalizer"] = normalizer; });
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), {}));
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, "normalizer") << all_findings(diagnosis);
  }
}

TEST(DoctorAlone, ReadsItsTextsAsItShould) {
  Subject subject = subject_of(demo(), "cpu");
  std::vector<std::vector<TokenId>> texts;
  for (const std::string_view text : loss_texts()) {
    ASSERT_OK_AND_ASSIGN(texts.emplace_back(), subject.prompt_ids(text));
  }
  LossMeter meter(subject, texts);
  ASSERT_OK_AND_ASSIGN(const auto losses, meter.measure(subject));
  EXPECT_EQ(losses.size() + texts.size(), meter.tokens());
  EXPECT_LT(mean_of(losses), 0.5);  // its documents cost 0.42 nats a token: demo/README.md
  ASSERT_OK_AND_ASSIGN(const auto beginning, meter.measure_beginning(subject));
  for (std::size_t i = 0; i < beginning.size(); ++i) EXPECT_NEAR(beginning[i], losses[i], 1e-3) << i;
  Trial changed(subject);
  ASSERT_OK(changed.exchange(WeightRole::kK, 1, WeightRole::kV, 1));
  ASSERT_OK_AND_ASSIGN(const auto worse, meter.measure(changed.subject()));
  EXPECT_LT(gain_of(losses, worse).mean, -1);
  ASSERT_OK(changed.exchange(WeightRole::kK, 1, WeightRole::kV, 1));
  ASSERT_OK_AND_ASSIGN(const auto back, meter.measure(changed.subject()));
  EXPECT_EQ(back, losses);
  EXPECT_EQ(changed.exchange(WeightRole::kK, 1, WeightRole::kQ, 1).error().code, ErrorCode::kMismatch);
}

struct HarmedCase {
  const char* name;
  const char* cause;
  const char* stage;
  int layer;
  std::function<void(PatientFolder&)> harm;
};

std::function<void(PatientFolder&)> harmed(std::string name,
                                           std::function<void(testing::RawTensor&)> change) {
  return [name = std::move(name), change = std::move(change)](PatientFolder& patient) {
    patient.change_tensors([&](testing::RawTensors& all) { change(all.at(name)); });
  };
}

// Files, as converters harm them.
TEST(DoctorAlone, FindsDamagedWeightsBeforeItBlamesAnythingElse) {
  const HarmedCase cases[] = {
      {"an outlier", "weight_wrong", "ffn_up", 3,
       harmed("model.layers.3.mlp.up_proj.weight",
              [](testing::RawTensor& t) {
                t.bytes[2 * 777] = std::byte{0}, t.bytes[2 * 777 + 1] = std::byte{0x7e};
              })},
      {"rows of zeros", "truncated_weight", "k_proj", 2,
       harmed("model.layers.2.self_attn.k_proj.weight",
              [](testing::RawTensor& t) {
                std::fill(t.bytes.begin() + static_cast<std::ptrdiff_t>(32 * t.row_bytes()),
                          t.bytes.begin() + static_cast<std::ptrdiff_t>(48 * t.row_bytes()), std::byte{0});
              })},
  };
  for (const HarmedCase& c : cases) {
    SCOPED_TRACE(c.name);
    PatientFolder patient("demo");
    c.harm(patient);
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(patient.path()));
    Subject subject = subject_of(loaded, "cpu");
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, diagnose(subject, {.only = {"weights", "layers"}}));
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, c.cause);
    EXPECT_EQ(diagnosis.findings[0].stage, c.stage);
    EXPECT_EQ(diagnosis.findings[0].layer, c.layer);
  }
}

struct TextHarm {
  const char* name;
  const char* check;
  const char* cause;  // empty: healthy
  std::function<void(PatientFolder&)> harm;
};

void write_template(PatientFolder& patient, std::string text) {
  testing::write_file(patient.path() / "chat_template.jinja", text);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::function<void(PatientFolder&)> in_template(std::string from, std::string to) {
  return [from, to](PatientFolder& patient) {
    const std::string text = testing::read_file(patient.path() / "chat_template.jinja");
    EXPECT_NE(text.find(from), std::string::npos) << from;
    write_template(patient, replaced(text, from, to));
  };
}

const std::vector<TextHarm>& text_harms() {
  static const std::vector<TextHarm> kHarms = {
      {"merges shuffled", "token_order", "merges_order",
       [](PatientFolder& p) {
         p.change_json("tokenizer.json", [](Json& t) {
           auto& merges = t["model"]["merges"];
           std::uint64_t state = 3;
           for (std::size_t i = merges.size(); i > 1; --i) {
             state = state * 6364136223846793005 + 1442695040888963407;
             std::swap(merges[i - 1], merges[(state >> 33) % i]);
           }
         });
       }},
      {"ids shuffled", "token_order", "token_ids",
       [](PatientFolder& p) {
         p.change_json("tokenizer.json", [](Json& t) {
           Json& vocabulary = t["model"]["vocab"];
           std::vector<std::int64_t> ids;
           for (const auto& [piece, id] : vocabulary.items()) ids.push_back(id.get<std::int64_t>());
           std::ranges::sort(ids);
           const auto count = static_cast<std::uint64_t>(ids.size());
           for (auto& [piece, id] : vocabulary.items()) {
             const auto old = id.get<std::uint64_t>();
             if (old >= 300) id = 300 + (old - 300) * 1009 % (count - 300);  // 1009 is prime to what is left
           }
         });
       }},
      {"the template of another model", "turns", "chat_template",
       [](PatientFolder& p) {
         write_template(
             p,
             "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
             "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
       }},
      {"a prompt that changes nothing", "turns", "generation_prompt",
       [](PatientFolder& p) { in_template("add_generation_prompt", "no_such_flag")(p); }},
      {"turns without an end", "turns", "end_of_turn", in_template("<end_of_turn>", "")},
      {"an end that does not stop", "turns", "stop_tokens",
       [](PatientFolder& p) {
         p.change_json("generation_config.json", [](Json& g) { g["eos_token_id"] = 1; });
       }},
      {"a word as padding", "defaults", "pad_token",
       [](PatientFolder& p) {
         p.change_json("config.json", [](Json& c) { c["pad_token_id"] = 900; });
         p.change_json("generation_config.json", [](Json& g) { g["pad_token_id"] = 900; });
       }},
      {"a temperature of 5", "defaults", "generation_defaults",
       [](PatientFolder& p) {
         p.change_json("generation_config.json",
                       [](Json& g) { g["do_sample"] = true, g["temperature"] = 5.0; });
       }},
      {"nothing", "turns", "", [](PatientFolder&) {}},
      {"nothing at all", "token_order", "", [](PatientFolder&) {}},
      {"sampling as published", "defaults", "",
       [](PatientFolder& p) {
         p.change_json("generation_config.json",
                       [](Json& g) { g["do_sample"] = true, g["temperature"] = 0.7, g["top_p"] = 0.8; });
       }},
  };
  return kHarms;
}

TEST(DoctorAlone, FindsWhatTokenizerTemplateAndDefaultsSayOfEachOther) {
  for (const TextHarm& c : text_harms()) {
    SCOPED_TRACE(c.name);
    PatientFolder patient("demo");
    c.harm(patient);
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(patient.path()));
    Subject subject = subject_of(loaded, "cpu");
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, diagnose(subject, {.only = {c.check}}));
    if (std::string_view(c.cause).empty()) {
      EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
      continue;
    }
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, c.cause) << all_findings(diagnosis);
  }
}

// Tokenizers of every kind stand in order.
TEST(DoctorAlone, FindsNoDisorderInTokenizersOfAnyKind) {
  std::size_t looked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("tokenizers"))) {
    if (!entry.is_directory()) continue;
    const auto tokenizer = tokenizer::Tokenizer::load(entry.path());
    if (!tokenizer) continue;
    SCOPED_TRACE(entry.path().filename().string());
    Subject subject = subject_of(demo(), "cpu");
    subject.tokenizer = &*tokenizer;
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, diagnose(subject, {.only = {"token_order"}}));
    EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
    looked += diagnosis.checks[0].state == CheckState::kOk;
  }
  EXPECT_GE(looked, 5u);
}

}  // namespace
}  // namespace doppler::diagnosis
