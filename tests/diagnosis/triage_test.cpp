// Triage: models that are sick in every way of its table, and healthy ones that it leaves alone.
#include "diagnosis/look/triage.h"

#include <cmath>
#include <set>

#include "diagnosis/ailments.h"
#include "diagnosis/patient.h"
#include "model/family.h"

namespace doppler::diagnosis {
namespace {

using testing::data_path;
using testing::Patient;

struct Judged {
  DebugRun run;
  std::vector<Symptom> findings;
  const Symptom* of(const std::string& check) const {
    for (const Symptom& finding : findings) {
      if (finding.check == check) return &finding;
    }
    return nullptr;
  }
  std::string all() const {
    std::string text;
    for (const Symptom& f : findings) text += (f.sick ? "sick " : "note ") + f.check + ": " + f.text + "\n";
    return text;
  }
};

Judged diagnose(const Patient& patient, DebugOptions options = {}, bool text_prompt = false,
                std::optional<std::string> text = std::nullopt) {
  options.prompt_ids = patient.recording.prompt_ids;
  Judged diagnosis;
  auto backend = patient.backend();
  EXPECT_TRUE(backend.has_value()) << backend.error().message;
  auto run = debug_run(**backend, patient.spec, patient.weights, options);
  EXPECT_TRUE(run.has_value()) << run.error().message;
  if (!run) return diagnosis;
  diagnosis.run = std::move(*run);
  diagnosis.findings = triage({.run = diagnosis.run,
                               .spec = patient.spec,
                               .model = "models/it",
                               .text = std::move(text),
                               .prompt_is_text = text_prompt,
                               .known_ids = options.known_ids});
  return diagnosis;
}

// The check finds it, with these words, and says what to do with this model.
void expect_found(const Judged& diagnosis, const std::string& check,
                  std::initializer_list<const char*> words) {
  const Symptom* found = diagnosis.of(check);
  ASSERT_NE(found, nullptr) << check << " found nothing. Found:\n" << diagnosis.all();
  EXPECT_TRUE(found->sick);
  for (const char* word : words)
    EXPECT_NE(found->text.find(word), std::string::npos) << found->text << "\nlacks " << word;
  EXPECT_TRUE(found->next.starts_with("doppler ")) << found->next;
  EXPECT_NE(found->next.find("models/it"), std::string::npos) << found->next;
}

TEST(Triage, HealthyModelsPassClean) {
  for (const char* family :
       {"gemma2", "gemma3", "gemma3_k288", "llama", "llama3", "mistral", "phi3", "qwen2", "qwen3"}) {
    const Judged diagnosis = diagnose(Patient(family));
    for (const Symptom& f : diagnosis.findings) EXPECT_FALSE(f.sick) << family << ": " << f.text;
    EXPECT_EQ(diagnosis.run.ids.size(), 16u);
    EXPECT_EQ(diagnosis.run.decode.size(), 15u);
    for (const DecodeCheck& check : diagnosis.run.decode) EXPECT_LT(check.error, 1e-6) << family;
  }
  const Judged demo =
      diagnose(Patient(testing::source_path("demo"), "reference.safetensors"), {}, true, "blue.");
  EXPECT_TRUE(demo.findings.empty()) << demo.all();
}

TEST(Triage, QuantisedModelsPassClean) {
  for (const char* file : {"gemma3_k288.Q4_0.gguf", "llama.Q4_0.gguf", "llama_k256.Q2_K.gguf"}) {
    const auto model = load_model(data_path("gguf") / file);
    ASSERT_OK(model);
    for (const char* name : {"cpu", "reference"}) {
      const auto backend = make_backend(name, model->spec, model->weights, {.threads = 1, .context = 64});
      ASSERT_OK(backend);
      const auto run =
          debug_run(**backend, model->spec, model->weights, {.prompt_ids = {2, 10, 200, 31, 77, 120}});
      ASSERT_OK(run);
      for (const Symptom& f : triage({.run = *run, .spec = model->spec, .model = file, .text = {}}))
        EXPECT_FALSE(f.sick) << file << " " << name << ": " << f.text;
    }
  }
}

// Trained models hold single values of thousands at their first token, and grow; that is no illness.
TEST(Triage, OutliersThatTrainedModelsHaveAreLeftAlone) {
  const Judged diagnosis = diagnose(Patient("llama", [](const TapEvent& event, std::span<float> data) {
    if (event.stage != Stage::kFfnOut || event.layer != 0 || event.input->positions[0] != 0) return;
    data[5] = 4000;  // an attention sink
    for (std::size_t row = 1; row < event.rows; ++row) data[row * event.width + 9] += 15;  // an outlier dim
  }));
  EXPECT_GT(diagnosis.run.stages[20].prompt.max_abs, 0);
  EXPECT_EQ(diagnosis.of("exploding"), nullptr) << diagnosis.all();
  EXPECT_EQ(diagnosis.of("spike"), nullptr) << diagnosis.all();
}

TEST(Triage, NanIsNamedWhereItBegins) {
  const auto poison = [](bool in_decode) {
    return Patient("llama", [in_decode](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kFfnGate && event.layer == 2 && (event.rows == 1) == in_decode)
        data[(in_decode ? 0 : 6 * event.width) + 3] = NAN;
    });
  };
  expect_found(diagnose(poison(false)), "not_finite",
               {"first at layers.2.ffn_gate, token 6, dim 3, in the prompt"});
  const Judged later = diagnose(poison(true));
  expect_found(later, "not_finite", {"first at layers.2.ffn_gate, token", "in decode"});
  ASSERT_NE(later.of("not_finite"), nullptr);
  EXPECT_NE(later.of("not_finite")->next.find("--probe stage=ffn_gate,layers=2"), std::string::npos);
}

TEST(Triage, InfinityCounts) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage == Stage::kQRope && event.layer == 1) data[0] = INFINITY;
                                })),
               "not_finite", {"layers.1.q_rope", "1 Inf"});
}

TEST(Triage, EmbeddingRowsMissingInTheFile) {
  Patient patient("llama");
  patient.site().alter(WeightRole::kTokenEmbedding, -1, [](TensorView&, std::vector<std::byte>& bytes) {
    std::fill(bytes.begin() + std::ssize(bytes) / 2, bytes.end(), std::byte{0});
  });
  expect_found(diagnose(patient), "embedding_rows", {"128 of 256 rows", "zero in the file", "id 128"});
  const Judged padded = diagnose(patient, {.known_ids = 128});
  EXPECT_EQ(padded.of("embedding_rows"), nullptr) << "rows that have no token may be zero: " << padded.all();
}

// A kernel that ignores half of its grid: zeros for high ids, though the file has them.
TEST(Triage, EmbeddingLookupOfHighIdsGivesZeros) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage != Stage::kEmbedOut) return;
                                  for (std::size_t t = 0; t < event.rows; ++t) {
                                    if (event.input->ids[t] >= 200)
                                      std::fill_n(&data[t * event.width], event.width, 0.0f);
                                  }
                                })),
               "embedding_rows", {"looks up zeros for 7", "first at id 205"});
}

TEST(Triage, EmbeddingLookupOfOtherRows) {
  Patient healthy("llama");
  const auto model = load_model(data_path("models/llama"));
  ASSERT_OK(model);
  const TensorView table = model->weights[model->weights.find(WeightRole::kTokenEmbedding)];
  expect_found(diagnose(Patient("llama",
                                [&](const TapEvent& event, std::span<float> data) {
                                  if (event.stage != Stage::kEmbedOut) return;
                                  for (std::size_t t = 0; t < event.rows; ++t) {
                                    const auto id = static_cast<std::size_t>(event.input->ids[t] + 1) % 256;
                                    ASSERT_OK(decode_f32(table, id * event.width,
                                                         data.subspan(t * event.width, event.width)));
                                  }
                                })),
               "embedding_rows", {"other values than the file's for 32"});
}

TEST(Triage, ValuesExplodeInOneLayer) {
  Patient patient("llama");
  patient.site().alter(WeightRole::kDown, 1, [](TensorView& tensor, std::vector<std::byte>& bytes) {
    std::vector<float> values(*element_count(tensor.shape));
    ASSERT_OK(decode_f32(tensor, 0, values));
    for (float& x : values) x *= 1e4f;
    tensor.dtype = DType::kF32;
    bytes.assign(std::as_bytes(std::span(values)).begin(), std::as_bytes(std::span(values)).end());
  });
  expect_found(diagnose(patient), "exploding", {"at layer 1", "times that of layer 0"});
}

TEST(Triage, ValuesPileUpOverTheLayers) {
  const Judged diagnosis = diagnose(Patient("gemma3", [](const TapEvent& event, std::span<float> data) {
    if (event.stage != Stage::kLayerOut) return;
    for (float& x : data) x *= 7;
  }));
  expect_found(diagnosis, "exploding", {"times that of layer 0"});
}

TEST(Triage, OneDimOutgrowsAllOthers) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage != Stage::kFfnOut) return;
                                  for (std::size_t t = 0; t < event.rows; ++t)
                                    data[t * event.width + 11] *= 1e4f;
                                })),
               "spike", {"dim 11", "from layer 0 on"});
}

TEST(Triage, OpWritesNothing) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage == Stage::kOProj && event.layer == 1)
                                    std::fill(data.begin(), data.end(), 0.0f);
                                })),
               "dead_stage", {"layers.1.o_proj is zero for every token of the prompt"});
}

TEST(Triage, StageIsConstantInDecodeOnly) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage == Stage::kFfnAct && event.layer == 2 && event.rows == 1)
                                    std::fill(data.begin(), data.end(), 0.25f);
                                })),
               "dead_stage", {"layers.2.ffn_act is 0.25 everywhere for every token of decode"});
}

TEST(Triage, TokensBeyondALimitAreZero) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage == Stage::kAttnOut && event.layer == 0 && event.rows > 8)
                                    std::fill(data.begin() + 8 * static_cast<std::ptrdiff_t>(event.width),
                                              data.end(), 0.0f);
                                })),
               "zero_rows", {"layers.0.attn_out", "first token 8"});
}

TEST(Triage, TailOfARowIsNotWritten) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage != Stage::kFfnUp || event.layer != 1) return;
                                  for (std::size_t t = 0; t < event.rows; ++t)
                                    std::fill_n(&data[(t + 1) * event.width - 16], 16, 0.0f);
                                })),
               "zero_rows", {"The last 16 of", "layers.1.ffn_up"});
}

TEST(Triage, RowsOfTheHeadAreMissing) {
  const Patient patient("llama", [](const TapEvent& event, std::span<float> data) {
    if (event.stage != Stage::kLogits) return;
    for (std::size_t t = 0; t < event.rows; ++t) std::fill_n(&data[t * event.width + 200], 56, 0.0f);
  });
  expect_found(diagnose(patient), "head_rows", {"56 of 256 logits", "first that of id 200"});
  EXPECT_EQ(diagnose(patient, {.known_ids = 200}).of("head_rows"), nullptr);
}

// Every token is looked up as the same one: what two teams saw when an embedding was read along the wrong
// axis.
TEST(Triage, LogitsDoNotFollowTheTokens) {
  Patient patient("llama");
  patient.site().permute_rows(WeightRole::kTokenEmbedding, -1, [](std::size_t) { return 5; });
  expect_found(diagnose(patient), "same_logits", {"hardly depend on the tokens"});
}

TEST(Triage, LogitsChooseNothing) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage != Stage::kFinalNorm) return;
                                  for (float& x : data) x *= 0.01f;
                                })),
               "uniform_logits", {"no token gets more than 0."});
}

TEST(Triage, ModelIsSureEverywhere) {
  expect_found(diagnose(Patient("llama",
                                [](const TapEvent& event, std::span<float> data) {
                                  if (event.stage != Stage::kFinalNorm) return;
                                  for (float& x : data) x *= 1e4f;
                                })),
               "overconfident", {"sure everywhere"});
}

TEST(Triage, DecodeDoesNotAppend) {
  Patient patient("llama");
  patient.inject("kv_counter_adds_one");
  const Judged diagnosis = diagnose(patient);
  expect_found(diagnosis, "decode_unlike_prefill", {"First at layers.0.attn_out", "15 of 15 decode steps"});
}

TEST(Triage, OnlyLaterDecodeStepsDiffer) {
  const Judged diagnosis = diagnose(Patient("gemma3", [](const TapEvent& event, std::span<float> data) {
    if (event.stage == Stage::kQNorm && event.layer == 5 && event.rows == 1 &&
        event.input->positions[0] % 16 == 0)
      for (float& x : data) x = -x;
  }));
  expect_found(diagnosis, "decode_unlike_prefill", {"First at layers.5.q_norm", "of 15 decode steps"});
}

TEST(Triage, PaddingWins) {
  Patient patient("llama", [](const TapEvent& event, std::span<float> data) {
    if (event.stage != Stage::kLogits) return;
    for (std::size_t t = 0; t < event.rows; ++t) data[t * event.width + 9] = 30;
  });
  patient.spec.pad_id = 9;
  expect_found(diagnose(patient), "pad_wins", {"padding token 9", "16 of 16 steps"});
  patient.spec.eos_ids = {9};  // then it is how texts end
  EXPECT_EQ(diagnose(patient).of("pad_wins"), nullptr);
}

TEST(Triage, RepeatsAreTheCachesFaultOrTheModelsOwn) {
  const auto stuck = [](bool in_decode_only) {
    return Patient("llama", [=](const TapEvent& event, std::span<float> data) {
      if (event.stage != Stage::kLogits || (in_decode_only && event.rows > 1)) return;
      for (std::size_t t = 0; t < event.rows; ++t) data[t * event.width + 77] += 40;
    });
  };
  expect_found(diagnose(stuck(true)), "repeats", {"token 77 makes", "goes round in 1"});
  const Judged own = diagnose(stuck(false));
  ASSERT_NE(own.of("repeats"), nullptr);
  EXPECT_NE(own.of("repeats")->text.find("token 77 makes 100 %"), std::string::npos);
}

TEST(Triage, ModelReadsTextWorseThanChance) {
  const Patient patient("llama");  // random weights know no language
  expect_found(diagnose(patient, {}, true), "prompt_loss", {"nats a token", "5.55"});
  EXPECT_EQ(diagnose(patient, {}, false).of("prompt_loss"), nullptr) << "ids that somebody chose are no text";
}

TEST(Triage, TextIsNoText) {
  expect_found(diagnose(Patient("llama"), {}, false, "bl\xef\xbf\xbdue \x01 sky"), "gibberish",
               {"1 replacement and 1 control characters"});
  EXPECT_EQ(diagnose(Patient("llama"), {}, false, "The sky is blue.\n").of("gibberish"), nullptr);
}

TEST(Triage, EveryRowOfTheTableHasAModelThatIsSickThatWay) {
  // Kept beside the tests above: a new row needs a new one.
  const std::set<std::string_view> tested = {"not_finite",
                                             "embedding_rows",
                                             "exploding",
                                             "spike",
                                             "dead_stage",
                                             "zero_rows",
                                             "head_rows",
                                             "same_logits",
                                             "uniform_logits",
                                             "overconfident",
                                             "decode_unlike_prefill",
                                             "pad_wins",
                                             "prompt_loss",
                                             "gibberish",
                                             "repeats"};
  std::set<std::string_view> rows;
  for (const Ailment* row : ailments(AskedBy::kDebug)) rows.insert(row->id);
  EXPECT_EQ(rows, tested);
}

TEST(DebugRun, RefusesWhatMakesNoSense) {
  const Patient patient("llama");
  const auto backend = patient.backend();
  ASSERT_OK(backend);
  const auto run = [&](const DebugOptions& options) {
    return debug_run(**backend, patient.spec, patient.weights, options);
  };
  EXPECT_ERROR(run({}), "no tokens");
  EXPECT_ERROR(run({.prompt_ids = std::vector<TokenId>(65, 3)}), "65 tokens", "context holds 64");
  EXPECT_ERROR(run({.prompt_ids = {1}, .watched_ids = {256}}), "no token 256", "0 to 255");
  EXPECT_ERROR(run({.prompt_ids = {1}, .attention = {{.layer = 99}}}), "no layer 99");
  EXPECT_ERROR(run({.prompt_ids = {1}, .attention = {{.layer = 0, .head = 50}}}), "no head 50");
  EXPECT_ERROR(run({.prompt_ids = {300}}), "token id 300");
  ASSERT_OK_AND_ASSIGN(const DebugRun one, run({.prompt_ids = {1}, .decode_steps = 70}));
  EXPECT_EQ(one.ids.size(), 64u);
  EXPECT_EQ(one.stopped, "the context is full");
}

TEST(DebugRun, AttentionOfAWindowEndsAtTheWindow) {
  const Patient patient("gemma3");
  const auto backend = patient.backend();
  ASSERT_OK(backend);
  std::vector<TokenId> ids;
  for (int i = 0; i < 30; ++i) ids.push_back(i * 7 % 256);
  ASSERT_OK_AND_ASSIGN(const DebugRun run, debug_run(**backend, patient.spec, patient.weights,
                                                     {.prompt_ids = ids,
                                                      .decode_steps = 2,
                                                      .attention = {{.layer = 0}, {.layer = 5, .head = 2}}}));
  ASSERT_EQ(run.attention.size(), 5u) << "four heads of layer 0, one of layer 5";
  const HeadPattern &local = run.attention[0], &global = run.attention[4];
  EXPECT_EQ(local.window, patient.spec.layers[0].attention.window);
  EXPECT_EQ(local.reach, static_cast<std::int64_t>(local.window) - 1);
  EXPECT_EQ(global.layer, 5);
  EXPECT_EQ(global.head, 2);
  EXPECT_EQ(global.window, 0u);
  EXPECT_EQ(global.reach, 29);
  for (const HeadPattern& p : run.attention) {
    EXPECT_EQ(p.tokens, 29u);
    EXPECT_GT(p.entropy, 0);
    EXPECT_LE(p.entropy, p.most_entropy + 1e-9);
    EXPECT_LE(p.furthest, p.reach);
    EXPECT_LE(p.first + p.self, 1.0 + 2.0 / 29) << "of token 1 the first and the previous token are one";
  }
}

TEST(DebugRun, WatchedTokensHaveTheirRank) {
  const Patient patient("llama");
  const auto backend = patient.backend();
  ASSERT_OK(backend);
  ASSERT_OK_AND_ASSIGN(const DebugRun plain, debug_run(**backend, patient.spec, patient.weights,
                                                       {.prompt_ids = {1, 5, 9}, .decode_steps = 3}));
  const TokenId best = plain.ids[0];
  ASSERT_OK_AND_ASSIGN(const DebugRun run,
                       debug_run(**backend, patient.spec, patient.weights,
                                 {.prompt_ids = {1, 5, 9}, .decode_steps = 3, .watched_ids = {best, 0}}));
  EXPECT_EQ(run.ids, plain.ids);
  ASSERT_EQ(run.logits.size(), 5u) << "three of the prompt, two decode steps";
  EXPECT_EQ(run.logits[2].watched[0].rank, 1u);
  EXPECT_EQ(run.logits[2].watched[0].logit, run.logits[2].top[0].logit);
  EXPECT_GT(run.logits[2].watched[1].rank, 1u);
  EXPECT_TRUE(run.logits[0].loss.has_value());
  EXPECT_FALSE(run.logits[2].loss.has_value());
}

TEST(Magnitudes, RanksProbabilitiesAndEntropy) {
  const std::vector<float> logits = {0, 3, NAN, 3, 1};
  const auto best = likeliest(logits, 3);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 3);
  EXPECT_EQ(best[2].id, 4);
  EXPECT_NEAR(best[0].probability, 1 / (2 + std::exp(-2.0) + std::exp(-3.0)), 1e-9);
  EXPECT_EQ(rank_of(logits, 4).rank, 3u);
  EXPECT_EQ(rank_of(logits, 3).rank, 1u);
  EXPECT_NEAR(entropy(std::vector<float>(64, 2.5f)), std::log(64.0), 1e-9);
  EXPECT_NEAR(entropy(std::vector<float>{100, 0, 0}), 0, 1e-9);
}

TEST(TextQuality, JudgesTokensAndCharacters) {
  const auto reasons = [](std::vector<std::int32_t> ids, std::string_view text) {
    return judge_text(ids, text, true).reasons;
  };
  using Reasons = std::vector<std::string>;
  EXPECT_EQ(reasons({1, 2, 3}, "The sky, naïve: 5 × 3 — “blue”.\n"), Reasons{});
  EXPECT_EQ(reasons({}, ""), Reasons{"no_tokens"});
  EXPECT_EQ(reasons({1}, ""), Reasons{"empty_text"});
  EXPECT_EQ(reasons({1}, "a\xff"), Reasons{"replacement_chars"});
  EXPECT_EQ(reasons({1}, "a\x1b["), Reasons{"control_chars"});
  EXPECT_EQ(reasons({1}, "слова and 日本語"), Reasons{}) << "three scripts may meet";
  EXPECT_EQ(reasons({1}, "слови uro الله 日本 ไทย"), Reasons{"many_scripts"});
  EXPECT_EQ(reasons({5, 5, 5, 5, 5, 1, 2, 3}, "a"), Reasons{"repetition"});
  EXPECT_EQ(reasons({1, 2, 3, 4, 5, 6, 7, 8}, "a"), Reasons{});
  const TextQuality round = judge_text(std::vector<std::int32_t>{9, 8, 1, 2, 3, 1, 2, 3, 1, 2, 3}, "a", true);
  EXPECT_EQ(round.period, 3u);
  EXPECT_EQ(judge_text(std::vector<std::int32_t>(20, 4), "", false).warnings, Reasons{"low_unique_ratio"});
}

}  // namespace
}  // namespace doppler::diagnosis
