// doppler debug, and probes and traces of the other commands, as a user sees them; and that looking changes
// nothing, on every backend.
#include <map>
#include <sstream>

#include "base/json.h"
#include "cli/program.h"
#include "diagnosis/compare/recording.h"
#include "diagnosis/look/probe.h"
#include "engine/generate.h"
#include "engine/loaded.h"
#include "formats/safetensors.h"
#include "tensors.h"

namespace doppler {
namespace {

using namespace testing;

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.find(part) != std::string::npos) found.push_back(line);
  }
  return found;
}

std::string demo() {
  return source_path("demo").string();
}

TEST(DebugCommand, SaysWhatTheDemoDoesAndThatItIsHealthy) {
  const Outcome outcome =
      doppler({"debug", demo(), "The color of the sky is", "--raw", "--backend", "cpu", "--debug-layers",
               "0,5", "--tokens", "0,-1", "--logit-ids", "789,5", "--attention", "5:1", "--max-tokens", "4"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* part :
       {"[EMBED_OUT] maxAbs=", "[LAYER_OUT] L7: maxAbs=", "growth=", "[CHECKPOINT] L5 q_rope prompt:",
        "[CHECKPOINT] L0 ffn_act token 6:", "[CHECKPOINT] logits decode:", "\"▁blue\" logit=", "rank=1 ",
        "[ATTENTION] L5 H1: first=", "[OUTPUT]  blue.", "[TRIAGE] clean: 15 checks over 165 stages"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("[CHECKPOINT] L1 "), std::string::npos);
  EXPECT_TRUE(lines_with(outcome.out, "[CHECKPOINT] L0 ffn_act token 3").empty());
  EXPECT_EQ(lines_with(outcome.out, "[LAYER_OUT]").size(), 8u);
}

TEST(DebugCommand, TellsProgramsTheSame) {
  const Outcome outcome = doppler({"debug", model_path("gemma3"), "--backend", "reference", "--json",
                                   "--probe", "stage=q_rope,layers=2,tokens=-1,dims=0:3"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const Json json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_TRUE(json["triage"]["clean"].get<bool>());
  EXPECT_EQ(json["triage"]["checks"], 15);
  EXPECT_EQ(json["layers"].size(), 7u);
  EXPECT_EQ(json["probes"].size(), 1u);
  EXPECT_EQ(json["probes"][0]["values"].size(), 4u);
  EXPECT_EQ(json["text"], nullptr);
  EXPECT_EQ(json["prompt_ids"].size(), 13u) << "BOS, and ids from the whole vocabulary";
  bool found = false;
  for (const Json& stage : json["stages"])
    found = found || (stage["key"] == "layers.6.post_ffn_norm" && stage["prompt"]["rms"] > 0);
  EXPECT_TRUE(found);
}

// The demo with its embedding read along the wrong axis, as wasm-chord had it for months.
TEST(DebugCommand, FindsATransposedEmbedding) {
  TempDir dir;
  std::filesystem::copy(source_path("demo"), dir / "sick", std::filesystem::copy_options::recursive);
  {
    auto store = open_safetensors(source_path("demo") / "model.safetensors");
    ASSERT_OK(store);
    std::vector<TensorView> tensors;
    std::vector<std::byte> turned;
    for (const auto& [name, tensor] : store->tensors()) {
      tensors.push_back(tensor);
      if (name != "model.embed_tokens.weight") continue;
      turned.resize(tensor.data.size());
      const std::size_t rows = tensor.shape[0], columns = tensor.shape[1];
      for (std::size_t i = 0; i < rows * columns;
           ++i)  // element i is read from where column-major order has it
        std::copy_n(&tensor.data[2 * (i % columns * rows + i / columns)], 2, &turned[2 * i]);
      tensors.back().data = turned;
    }
    ASSERT_OK(testing::write_tensors(dir / "sick/model.safetensors", tensors));
  }
  const std::string sick = (dir / "sick").string();
  const Outcome outcome = doppler({"debug", sick, "The color of the sky is", "--raw", "--backend", "cpu"});
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "FOUND prompt_loss: The model reads the prompt worse than chance").size(),
            1u)
      << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "next: doppler doctor " + sick).size(), 1u);
}

TEST(DebugCommand, RefusesWhatMakesNoSense) {
  const std::string model = model_path("llama");
  EXPECT_REFUSAL(doppler({"debug", model, "--debug-layers", "9"}), 2, "no layer 9", "--debug-layers");
  EXPECT_REFUSAL(doppler({"debug", model, "--tokens", "40"}), 2, "no token 40", "--tokens");
  EXPECT_REFUSAL(doppler({"debug", model, "--logit-ids", "9999"}), 2, "no token 9999");
  EXPECT_REFUSAL(doppler({"debug", model, "--attention", "x"}), 2, "--attention x");
  EXPECT_REFUSAL(doppler({"debug", model, "--probe", "stage=q_norm,dims=0"}), 2, "computes no q_norm",
                 "q_proj");
  EXPECT_REFUSAL(doppler({"debug", model, "a text"}), 3, "tokenizer.json");
}

TEST(Probes, PrintWhileTheModelRuns) {
  const Outcome outcome =
      doppler({"run", demo(), "The color of the sky is", "--raw", "--backend", "cpu", "--max-tokens", "3",
               "--probe", "id=a,stage=layer_out,layers=0,7,tokens=all,dims=0:1", "--probe",
               "stage=logits,tokens=-1,7,dims=789", "--probe", "stage=q_rope,tokens=100,dims=0"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, " blue. On\n") << "probes leave stdout alone";
  EXPECT_EQ(lines_with(outcome.err, "PROBE a stage=layer_out layer=7 token=").size(), 9u) << outcome.err;
  EXPECT_EQ(lines_with(outcome.err, "PROBE stage=logits token=").size(), 2u);
  EXPECT_EQ(lines_with(outcome.err, "The probe stage=q_rope,tokens=100,dims=0 did not fire").size(), 1u);
  EXPECT_REFUSAL(
      doppler({"run", demo(), "Hi", "--backend", "cpu", "--probe", "stage=layer_out,layers=8,dims=0"}), 2,
      "can never fire at layer 8", "layers 0 to 7");
}

TEST(Probes, ComeFromTheConfiguration) {
  const std::string config = R"({"runtime": {"shared": {"debug": {"probes": [
      {"id": "sky", "stage": "final_norm", "tokens": [-1], "dims": [0, 1]}]}}}})";
  const Outcome outcome = doppler({"run", demo(), "The color of the sky is", "--raw", "--backend", "cpu",
                                   "--max-tokens", "1", "--config", config});
  EXPECT_EQ(lines_with(outcome.err, "PROBE sky stage=final_norm token=6 values=[0=").size(), 1u)
      << outcome.err;
}

TEST(Probes, LookBesideARecordingAndAComparison) {
  TempDir dir;
  const std::string file = (dir / "run.safetensors").string();
  const std::vector<std::string> probe = {"--probe", "stage=k_rope,layers=1,tokens=2,dims=0", "--backend",
                                          "cpu"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), probe.begin(), probe.end());
    return doppler(arguments);
  };
  const Outcome record = with({"record", model_path("llama"), "--prompt-ids", "1,5,9,20", "-o", file});
  const auto line = lines_with(record.err, "PROBE stage=k_rope layer=1 token=2 values=[0=");
  ASSERT_EQ(line.size(), 1u) << record.err;
  const Outcome compare = with({"compare", model_path("llama"), "--reference", file});
  EXPECT_EQ(compare.status, 0) << compare.out;
  EXPECT_EQ(lines_with(compare.err, "PROBE"), line);
}

TEST(Traces, SayWhatTheirCategoriesPromise) {
  const auto traced = [&](const std::string& categories, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", model_path("gemma3"), "--prompt-ids", "2,10,11", "--max-tokens", "3",
                               "--backend", "cpu", "--trace", categories});
    const Outcome outcome = doppler(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.err;
  };
  const std::string embed = traced("embed");
  for (const char* part : {"[TRACE:embed]", "tokens=3 hidden=96 vocab=256 scaleEmbeddings=true",
                           "TOKEN_IDS [2, 10, 11]", "FIRST_TOKEN[2] maxAbs=", "first8=[", "RAW maxAbs="})
    EXPECT_NE(embed.find(part), std::string::npos) << part << "\n" << embed;
  EXPECT_EQ(lines_with(embed, "TOKEN_IDS").size(), 3u) << "the prompt and two decode steps";
  EXPECT_TRUE(lines_with(embed, "TRACE:attn").empty());

  const std::string attn = traced("attn", {"--trace-layers", "5"});
  for (const char* part : {"[TRACE:attn] L5: heads=4 kvHeads=1 headDim=32", "rope=global theta=1e+06",
                           "kvLen=5", "L5: q_rope tokens=3 width=128 maxAbs=", "ATTN_OUT attn_out"})
    EXPECT_NE(attn.find(part), std::string::npos) << part << "\n" << attn;
  EXPECT_TRUE(lines_with(attn, "] L4: ").empty());

  const std::string ffn = traced("ffn", {"--set", "runtime.shared.debug.trace.maxDecodeSteps=1"});
  EXPECT_EQ(lines_with(ffn, "LAYER_OUT layer_out").size(), 14u)
      << "seven layers, the prompt and one decode step";
  EXPECT_FALSE(lines_with(ffn, "L3: ffn_act tokens=1 width=160").empty());

  const std::string logits = traced("logits");
  for (const char* part : {"FINAL_HIDDEN[pos=2]", "LM_HEAD_MATMUL M=1 N=256 K=96", "pos=4 top-5:", "%)"})
    EXPECT_NE(logits.find(part), std::string::npos) << part << "\n" << logits;
}

// ---- looking changes nothing: the same ids and the same bits of the logits, on every backend

struct KeepLogits final : Tap {
  bool wants(Stage stage, int) const override { return stage == Stage::kLogitsFinal; }
  void on_stage(const TapEvent& event) override {
    data.insert(data.end(), event.data.begin(), event.data.end());
  }
  std::vector<float> data;
};

class LookingChangesNothing : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Backend> make() {
    BackendOptions options{.threads = 2, .context = 64, .slots = 2};
    options.gpu_setup.tune = false;  // another shape sums in another order
    options.gpu_setup.self_check = false;
    auto made = make_backend(GetParam(), model_.spec, model_.weights, options);
    return made ? std::move(*made) : nullptr;
  }
  void SetUp() override {
    auto loaded = load_model(data_path("models/gemma3"));
    ASSERT_OK(loaded);
    model_ = std::move(*loaded);
    backend_ = make();
    if (backend_ == nullptr && std::string(GetParam()) == "gpu")
      GTEST_SKIP() << "no GPU adapter, not even a software one";
    ASSERT_NE(backend_, nullptr);
    // Three probes at every layer, and one of the head.
    for (const char* text :
         {"stage=q_rope,tokens=all,dims=0:3", "stage=ffn_act,tokens=all,dims=5",
          "stage=layer_out,tokens=all,dims=0,95", "stage=logits_final,tokens=all,dims=0:255"}) {
      auto probe = diagnosis::parse_probe(text);
      ASSERT_OK(probe);
      probes_.push_back(*probe);
    }
  }
  Result<diagnosis::ProbeTap> tap() {
    return diagnosis::ProbeTap::create(probes_, backend_->plan(), 64, [this](const diagnosis::ProbeHit& hit) {
      auto& row = seen_[{stage_key(hit.stage, hit.layer), hit.token}];
      for (const diagnosis::ProbeValue& v : hit.values) row[v.dim] = v.value;
    });
  }
  // A prompt and the tokens after it, as `doppler run` has them.
  std::vector<TokenId> generate(Backend& backend, Tap* tap) {
    backend.clear(0);
    Session session(backend, 0);
    session.look(tap);
    GenerateOptions options{.max_tokens = 12, .ignore_eos = true};
    const auto result = run_generation(session, model_.spec, nullptr, prompt_, options, {}, nullptr);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    return result ? result->ids : std::vector<TokenId>();
  }

  const std::vector<TokenId> prompt_ = {2, 10, 11, 12, 200, 31, 7};
  Model model_;
  std::unique_ptr<Backend> backend_;
  std::vector<diagnosis::Probe> probes_;
  std::map<std::pair<std::string, std::int64_t>, std::map<std::int64_t, float>> seen_;
};

TEST_P(LookingChangesNothing, InGenerationTokenForToken) {
  const std::vector<TokenId> plain = generate(*backend_, nullptr);
  ASSERT_EQ(plain.size(), 12u);
  auto probes = tap();
  ASSERT_OK(probes);
  ASSERT_OK(probes->begin(prompt_.size(), false));
  EXPECT_EQ(generate(*backend_, &*probes), plain);
  EXPECT_TRUE(probes->silent().empty());
  // Exactly the tokens that were fed: the prompt and all generated ones but the last, none that was computed
  // ahead.
  for (std::int64_t token = 0; token < 30; ++token)
    EXPECT_EQ((seen_.contains({"layers.3.layer_out", token})), token < 18) << token;
  for (std::int64_t token = 6; token < 18; ++token) {
    const auto& logits = seen_[{"logits_final", token}];
    ASSERT_EQ(logits.size(), 256u) << token;
    const auto best =
        std::max_element(logits.begin(), logits.end(), [](auto& a, auto& b) { return a.second < b.second; });
    EXPECT_EQ(best->first, plain[static_cast<std::size_t>(token) - 6]) << "the logits that were sampled from";
  }
}

// In steps, alone and beside another sequence, the logits have the same bits; and what probes show is what a
// recording of the same steps holds.
TEST_P(LookingChangesNothing, InStepsBitForBit) {
  const auto run = [&](Tap* tap) {
    std::vector<float> all;
    backend_->clear(0), backend_->clear(1);
    const auto keep = [&](const Result<std::span<const float>>& logits) {
      ASSERT_TRUE(logits.has_value()) << logits.error().message;
      all.insert(all.end(), logits->begin(), logits->end());
    };
    keep(diagnosis::feed(*backend_, 0, prompt_, 0, true, tap));
    for (const TokenId id : {40, 41, 42})
      keep(diagnosis::feed(*backend_, 0, std::span(&id, 1), 0, true, tap));
    StepInput both;  // batched: two sequences in one step
    both.add(50, 0, 1, true), both.add(43, 10, 0, true), both.add(51, 1, 1, true);
    keep(backend_->step(both, tap));
    return all;
  };
  const std::vector<float> plain = run(nullptr);
  auto probes = tap();
  ASSERT_OK(probes);
  ASSERT_OK(probes->begin(prompt_.size(), true));
  EXPECT_EQ(run(&*probes), plain);
  ASSERT_EQ((seen_.count({"layers.6.q_rope", 10})), 1u) << "the batched step's token";
  for (std::size_t token = 0; token < 10; ++token) {
    for (std::int64_t dim = 0; dim < 256; ++dim)
      ASSERT_EQ((seen_[{"logits_final", static_cast<std::int64_t>(token)}][dim]),
                plain[token * 256 + static_cast<std::size_t>(dim)]);
  }
  for (std::int64_t dim = 0; dim < 256; ++dim)
    ASSERT_EQ((seen_[{"logits_final", 10}][dim]), plain[11 * 256 + static_cast<std::size_t>(dim)])
        << "the second of three rows";

  TempDir dir;
  ASSERT_OK(diagnosis::record_run(*backend_, {.prompt_ids = prompt_}, dir / "run.safetensors"));
  const auto recording = diagnosis::open_recording(dir / "run.safetensors");
  ASSERT_OK(recording);
  std::size_t compared = 0;
  for (const auto& [where, values] : seen_) {
    const TensorView* tensor = recording->tensors.find(where.first);
    ASSERT_NE(tensor, nullptr) << where.first;
    const std::size_t width = *element_count(tensor->shape) / prompt_.size();
    if (where.second >= std::ssize(prompt_)) continue;
    std::vector<float> row(width);
    ASSERT_OK(decode_f32(*tensor, static_cast<std::size_t>(where.second) * width, row));
    for (const auto& [dim, value] : values) {
      EXPECT_EQ(value, row[static_cast<std::size_t>(dim)]) << where.first;
      ++compared;
    }
  }
  EXPECT_EQ(compared, prompt_.size() * (7 * 7 + 256));
}

INSTANTIATE_TEST_SUITE_P(Backends, LookingChangesNothing, ::testing::Values("reference", "cpu", "gpu"));

}  // namespace
}  // namespace doppler
