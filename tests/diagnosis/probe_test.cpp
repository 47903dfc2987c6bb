// Probes: what they are asked, what can never fire, and that what they show is what a recording holds.
#include "diagnosis/look/probe.h"

#include <map>
#include <set>

#include "backend/reference/reference_backend.h"
#include "backend/row_tokens.h"
#include "base/json.h"
#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/recording.h"
#include "diagnosis/forwarding_backend.h"
#include "diagnosis/look/debug_config.h"
#include "diagnosis/look/tapped_backend.h"
#include "model/family.h"
#include "testing.h"

namespace doppler::diagnosis {
namespace {

using testing::data_path;
using testing::TempDir;

class ProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_model(data_path("models/gemma3"));
    ASSERT_OK(loaded);
    model_ = std::move(*loaded);
    auto made = make_reference_backend(model_.spec, model_.weights, {.context = 40, .max_step_tokens = 4});
    ASSERT_OK(made);
    backend_ = std::move(*made);
  }
  Result<ProbeTap> tap(const std::string& text) {
    DOPPLER_ASSIGN(Probe probe, parse_probe(text));
    return ProbeTap::create({std::move(probe)}, backend_->plan(), 40, [this](const ProbeHit& hit) {
      lines_.push_back(probe_line(hit));
      steps_.push_back(hit.step);
    });
  }
  // The lines of a run over six prompt tokens and two decoded ones, with all logits or the last one's.
  std::vector<std::string> lines(const std::string& text, bool all_logits = true) {
    lines_.clear(), steps_.clear();
    auto made = tap(text);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    if (!made) return {};
    const Status begun = made->begin(ids_.size(), all_logits);
    EXPECT_TRUE(begun.has_value()) << begun.error().message;
    backend_->clear(0);
    EXPECT_TRUE(feed(*backend_, 0, ids_, 0, all_logits, &*made));
    for (const std::int32_t id : {7, 8}) EXPECT_TRUE(feed(*backend_, 0, std::span(&id, 1), 0, true, &*made));
    silent_ = made->silent();
    return lines_;
  }
  Status refused(const std::string& text, bool all_logits = true) {
    DOPPLER_ASSIGN(ProbeTap made, tap(text));
    return made.begin(ids_.size(), all_logits);
  }

  const std::vector<std::int32_t> ids_ = {2, 10, 11, 12, 40, 7};
  Model model_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::string> lines_, silent_;
  std::vector<std::int64_t> steps_;
};

TEST_F(ProbeTest, LinesSayWhatWasAskedAndNothingElse) {
  const auto got = lines("id=dim3,stage=layer_out,layers=1,5:6,tokens=-1,dims=3,5:6");
  ASSERT_EQ(got.size(), 3u);
  EXPECT_TRUE(got[0].starts_with("PROBE dim3 stage=layer_out layer=1 token=5 values=[3=")) << got[0];
  EXPECT_NE(got[0].find(", 5="), std::string::npos);
  EXPECT_NE(got[0].find(", 6="), std::string::npos);
  EXPECT_TRUE(got[1].starts_with("PROBE dim3 stage=layer_out layer=5 ")) << got[1];
  EXPECT_TRUE(lines("stage=embed_out,dims=0")[0].starts_with("PROBE stage=embed_out token=0 values=[0="));
  EXPECT_TRUE(silent_.empty());
}

TEST_F(ProbeTest, TokensArePositionsAndDecodeGoesOnCounting) {
  EXPECT_EQ(lines("stage=q_rope,layers=0,tokens=0:-1,dims=0").size(), 6u);
  EXPECT_EQ(lines("stage=q_rope,layers=0,tokens=all,dims=0").size(), 8u);
  EXPECT_EQ(steps_, (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 1, 2}));
  const auto decoded = lines("stage=q_rope,layers=0,tokens=6:30,dims=0");
  ASSERT_EQ(decoded.size(), 2u);
  EXPECT_NE(decoded[1].find("token=7"), std::string::npos);
  EXPECT_EQ(lines("stage=q_rope,dims=0").size(), 7u) << "all layers, the first token";
}

// The rows of the head are those whose logits are wanted, and come in steps of four tokens here.
TEST_F(ProbeTest, LogitsBelongToTheTokensThatWantThem) {
  const auto all = lines("stage=logits_final,tokens=all,dims=7");
  ASSERT_EQ(all.size(), 8u);
  const auto last = lines("stage=logits_final,tokens=all,dims=7", false);
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last, std::vector<std::string>(all.end() - 3, all.end()));
  EXPECT_EQ(lines("stage=logits_final,dims=7", false)[0], all[5])
      << "the last token, unless another is asked for";
  EXPECT_ERROR(refused("stage=logits,tokens=0,dims=1", false), "can never fire", "only the last one's logits",
               "token -1", "doppler debug");
}

TEST_F(ProbeTest, ScoresAreShownByHeadAndUpToTheTokenItself) {
  const auto got = lines("stage=attn_scores,layers=5,tokens=2,dims=0:9");
  ASSERT_EQ(got.size(), 4u) << "one line for each head";
  EXPECT_TRUE(got[1].starts_with("PROBE stage=attn_scores layer=5 token=2 head=1 values=[0=")) << got[1];
  EXPECT_NE(got[1].find(", 2="), std::string::npos);
  EXPECT_EQ(got[1].find(", 3="), std::string::npos);
}

TEST_F(ProbeTest, ValuesAreThoseOfARecording) {
  TempDir dir;
  ASSERT_OK(record_run(*backend_, {.prompt_ids = ids_}, dir / "run.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(dir / "run.safetensors"));
  std::map<std::string, std::vector<ProbeHit>> hits;
  for (const StageInfo& info : all_stages()) {
    const auto parsed = parse_probe(fmt::format("stage={},tokens=0:-1,dims=0:31", info.name));
    ASSERT_OK(parsed);
    auto made = ProbeTap::create({*parsed}, backend_->plan(), 40, [&](const ProbeHit& hit) {
      hits[stage_key(hit.stage, hit.layer)].push_back(hit);
    });
    // Stages of experts, of recurrent layers and of gates.
    const bool computed = std::ranges::any_of(
        recording.tensors.tensors(), [&](const auto& entry) { return entry.first.ends_with(info.name); });
    if (!computed && !made) {
      EXPECT_ERROR(made, "can never fire", fmt::format("computes no {}", info.name).c_str());
      continue;
    }
    ASSERT_OK(made);
    ASSERT_OK(made->begin(ids_.size(), true));
    backend_->clear(0);
    ASSERT_OK(feed(*backend_, 0, ids_, 0, true, &*made));
    EXPECT_TRUE(made->silent().empty());
  }
  std::size_t compared = 0;
  for (const auto& [key, found] : hits) {
    const TensorView* tensor = recording.tensors.find(key);
    if (key.ends_with("attn_scores")) continue;
    ASSERT_NE(tensor, nullptr) << key;
    ASSERT_EQ(found.size(), ids_.size()) << key;
    std::vector<float> all(*element_count(tensor->shape));
    ASSERT_OK(decode_f32(*tensor, 0, all));
    const std::size_t width = all.size() / ids_.size();
    for (const ProbeHit& hit : found) {
      for (const ProbeValue& v : hit.values)
        ASSERT_EQ(v.value, all[static_cast<std::size_t>(hit.token) * width + static_cast<std::size_t>(v.dim)])
            << key;
      compared += hit.values.size();
    }
  }
  EXPECT_GT(compared, 20000u);
}

TEST_F(ProbeTest, WhatCanNeverFireIsRefusedWithWhatCould) {
  EXPECT_ERROR(tap("stage=layer_oot,dims=0"), "no stage layer_oot", "Did you mean layer_out?", "attn_normed");
  EXPECT_ERROR(tap("stage=router_logits,dims=0"), "computes no router_logits", "ffn_gate");
  EXPECT_ERROR(tap("stage=layer_out,layers=0,7,dims=0"), "at layer 7", "layers 0 to 6");
  EXPECT_ERROR(tap("stage=logits,layers=0,dims=0"), "outside the layers");
  EXPECT_ERROR(tap("stage=layer_out,dims=95:96"), "at dim 96", "dims 0 to 95");
  EXPECT_ERROR(tap("stage=layer_out,tokens=40,dims=1"), "at token 40", "the context holds 40");
  EXPECT_ERROR(refused("stage=layer_out,tokens=-7,dims=1"), "the prompt has 6 tokens", "-6 to -1");
}

TEST_F(ProbeTest, WhatDidNotFireIsSaid) {
  EXPECT_TRUE(lines("stage=layer_out,tokens=8,dims=1").empty());
  ASSERT_EQ(silent_.size(), 1u);
  EXPECT_EQ(silent_[0],
            "The probe stage=layer_out,tokens=8,dims=1 did not fire: tokens 0 to 7 ran, none of which it "
            "asks for.");
}

// A stage that no probe can see any more costs nothing.
TEST_F(ProbeTest, WantsNoMoreThanCanStillFire) {
  ASSERT_OK_AND_ASSIGN(ProbeTap made, tap("stage=layer_out,layers=2,tokens=1,dims=1"));
  EXPECT_FALSE(made.wants(Stage::kLayerOut, 2)) << "nothing runs yet";
  ASSERT_OK(made.begin(6, false));
  EXPECT_TRUE(made.wants(Stage::kLayerOut, 2));
  EXPECT_FALSE(made.wants(Stage::kLayerOut, 1));
  EXPECT_FALSE(made.wants(Stage::kPostAttn, 2));
  ASSERT_OK(feed(*backend_, 0, std::span(ids_).first(1), 0, false, &made));
  EXPECT_TRUE(made.wants(Stage::kLayerOut, 2));
  ASSERT_OK(feed(*backend_, 0, std::span(ids_).subspan(1), 0, false, &made));
  EXPECT_FALSE(made.wants(Stage::kLayerOut, 2));
  EXPECT_EQ(lines_.size(), 1u);
}

TEST(ProbeText, SaysTheSameAsFlagAndAsConfiguration) {
  ASSERT_OK_AND_ASSIGN(const Probe flag,
                       parse_probe("id=a,stage=ffn_in,layers=0,12:25,tokens=0,-1,dims=0:7"));
  EXPECT_EQ(probe_text(flag), "id=a,stage=ffn_in,layers=0,12:25,tokens=0,-1,dims=0:7");
  const Json config = Json::parse(R"({"probes": [
    {"id": "a", "stage": "ffn_in", "layers": [0, "12:25"], "tokens": [0, -1], "dims": ["0:7"], "category": "ffn"},
    {"stage": "logits", "layers": null, "tokens": null, "dims": 5}], "debugLayers": [0, 3], "logLevel": {}})");
  ASSERT_OK_AND_ASSIGN(const DebugConfig read, read_debug_config(config));
  ASSERT_EQ(read.probes.size(), 2u);
  EXPECT_EQ(probe_text(read.probes[0]), probe_text(flag));
  EXPECT_EQ(probe_text(read.probes[1]), "stage=logits,tokens=all,dims=5");
  EXPECT_EQ(read.debug_layers, (std::vector<int>{0, 3}));
  EXPECT_FALSE(read_debug_config(nullptr)->debug_layers.has_value());
}

TEST(ProbeText, WhatMakesNoSenseIsRefused) {
  EXPECT_ERROR(parse_probe(""), "names no stage", "Write stage=");
  EXPECT_ERROR(parse_probe("layer_out"), "begins with layer_out", "no key");
  EXPECT_ERROR(parse_probe("stage=layer_out"), "names no dims");
  EXPECT_ERROR(parse_probe("stage=layer_out,dim=3"), "no key dim", "dims");
  EXPECT_ERROR(parse_probe("stage=a,stage=b,dims=1"), "two values for stage");
  EXPECT_ERROR(parse_probe("stage=layer_out,dims=all"), "all", "no number");
  EXPECT_ERROR(parse_probe("stage=layer_out,dims=7:3"), "7:3", "ends before it begins");
  EXPECT_ERROR(parse_probe("stage=layer_out,layers=-1,dims=1"), "layer -1", "only tokens");
  EXPECT_ERROR(parse_probe("stage=layer_out,dims=1,tokens=1:"), "1:", "no range");
  EXPECT_ERROR(parse_probe("stage=layer_out,dims=99999999999999999999"), "99999999999999999999");
  EXPECT_ERROR(read_debug_config(Json::parse(R"({"probes": {"stage": "a"}})")), "probes is no list");
  EXPECT_ERROR(read_debug_config(Json::parse(R"({"probes": [3]})")), "probes[0]", "no JSON object");
  EXPECT_ERROR(read_debug_config(Json::parse(R"({"probes": [{"stage": "a", "dims": [1.5]}]})")), "1.5",
               "dims");
  EXPECT_ERROR(read_debug_config(Json::parse(R"({"debugLayers": ["x"]})")), "debugLayers");
}

// A backend may show the rows of the head in portions.
TEST(RowTokens, FollowPortionsOfWantedRows) {
  StepInput input;
  for (int i = 0; i < 6; ++i) input.add(i, static_cast<std::uint64_t>(i), 0, i % 2 == 1);
  const auto of = [&](Stage stage, std::size_t first, std::size_t count) {
    return row_tokens({.stage = stage, .rows = count, .width = 1, .input = &input, .first_row = first});
  };
  using Tokens = std::vector<std::size_t>;
  EXPECT_EQ(of(Stage::kLayerOut, 0, 6), (Tokens{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(of(Stage::kFinalNorm, 0, 2), (Tokens{1, 3}));
  EXPECT_EQ(of(Stage::kFinalNorm, 2, 1), (Tokens{5}));
  EXPECT_EQ(of(Stage::kLogits, 0, 3), (Tokens{1, 3, 5}));
}

struct Seen final : Tap {
  explicit Seen(Stage only) : stage(only) {}
  bool wants(Stage s, int) const override { return s == stage; }
  void on_stage(const TapEvent& event) override {
    ++events;
    EXPECT_EQ(event.stage, stage);
  }
  Stage stage;
  std::size_t events = 0;
};

// Comparisons allow for what a backend says of itself, and are told by the one that stands before it.
class Coarse final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Precision precision() const override {
    return {
        .rounding = Rounding::kEightBits, .half_products = true, .half_parts = true, .wide_blocks_from = 65};
  }
};

TEST_F(ProbeTest, ATappedBackendIsAsCoarseAsItsOwn) {
  Coarse coarse(*backend_);
  EXPECT_EQ(TappedBackend(coarse, nullptr).precision(), coarse.precision());
  EXPECT_EQ(arithmetic_of(TappedBackend(coarse, nullptr)), arithmetic_of(coarse));
}

TEST_F(ProbeTest, ListHandsEachTapWhatItWants) {
  Seen q(Stage::kQProj), out(Stage::kLayerOut);
  TapList none, list;
  EXPECT_EQ(none.add(nullptr).get(), nullptr);
  TappedBackend tapped(*backend_, &out);
  EXPECT_TRUE(list.add(&q).add(nullptr).get() == &q) << "one tap needs no list";
  ASSERT_OK(feed(tapped, 0, std::span(ids_).first(3), 0, false, list.get()));
  EXPECT_EQ(q.events, 7u);
  EXPECT_EQ(out.events, 7u);
  EXPECT_EQ(tapped.length(0), 3u);
}

}  // namespace
}  // namespace doppler::diagnosis
