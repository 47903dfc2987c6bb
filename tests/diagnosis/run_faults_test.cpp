// Faults in execution: the plan and the weights are right, and an op, a buffer or the cache is not. The table
// in faults_test.cpp says which postmortem each belongs to.
#include <cmath>

#include "backend/row_tokens.h"
#include "diagnosis/compare/compare_recordings.h"
#include "diagnosis/faults/faulty_attention.h"
#include "diagnosis/forwarding_backend.h"
#include "diagnosis/patient.h"

namespace doppler::diagnosis {
namespace {

using testing::expect_diverges;
using testing::ForwardingBackend;
using testing::Patient;

void expect_seen(const char* fault, const char* key, std::size_t token) {
  Patient patient("llama");
  patient.inject(fault);
  expect_diverges(patient.compare(), key, token);
}

// The tool of the next three is itself right.
TEST(Run, OwnAttentionAgrees) {
  auto attention = std::make_shared<faults::FaultyAttention>();
  Patient patient("llama");
  patient.site().run_with([attention](const BackendOptions&) {
    auto fault = std::make_unique<faults::HookFault>();
    fault->watches = [](Stage stage, int) {
      return stage == Stage::kQRope || stage == Stage::kKRope || stage == Stage::kVProj ||
             stage == Stage::kAttnOut;
    };
    fault->change = [attention](const Fault::Computed& computed, Stage stage, int layer) {
      return attention->compute(computed, stage, layer);
    };
    return fault;
  });
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  EXPECT_TRUE(comparison->agrees());
}

TEST(Run, WrongHeadMap) {  // heads dealt out in turn instead of in groups
  expect_seen("head_grouping", "layers.0.attn_out", 0);
}

TEST(Run, NoCausalMask) {
  expect_seen("causal_mask_missing", "layers.0.attn_out", 0);
}

TEST(Run, WholeCacheAttended) {
  expect_seen("whole_cache_attended", "layers.0.attn_out", 0);
}

TEST(Run, KeysGoOnePositionTooFar) {
  expect_seen("kv_append_off_by_one", "layers.0.attn_out", 0);
}

// One a step, whatever the step's tokens: the prompt's stages are right, and decoding overwrites what the
// prompt left in the cache, from the first token on.
TEST(Run, CacheCounterAddsOne) {
  expect_seen("kv_counter_adds_one", "decode_logits", 0);
}

// The prompt is right, and what decoding adds never arrives.
TEST(Run, DecodeDoesNotAppend) {
  Patient patient("llama");
  patient.site().run_with([](const BackendOptions& options) {
    auto fault = std::make_unique<faults::HookFault>();
    fault->tokens = [last = static_cast<std::int32_t>(options.context) - 1](
                        const Op& op, Fault::Moment moment, StepInput& seen) {
      if (op.kind != OpKind::kAttention || moment != Fault::Moment::kAppend || seen.size() > 1) return false;
      seen.positions[0] = last;
      return true;
    };
    return fault;
  });
  expect_diverges(patient.compare(), "decode_logits", 0);
}

TEST(Run, OddLayersBreakInDecode) {  // one half of a pair of buffers was given back too early
  Patient patient("llama");
  patient.inject("decode_breaks_odd_layers");
  const auto comparison = patient.compare();
  expect_diverges(comparison, "decode_logits", 0);
  EXPECT_EQ(comparison->top1_equal, 1u);  // only the prompt's own answer
}

TEST(Run, FirstTokenTwice) {  // decoding feeds the first answer a second time and stays one behind
  Patient patient("llama");
  auto& ids = patient.recording.greedy_ids;
  ids.insert(ids.begin(), ids[0]);
  ids.pop_back();
  const auto comparison = patient.compare();
  expect_diverges(comparison, "decode_logits", 1);
  EXPECT_LT(comparison->top1_equal, comparison->decode_steps);
}

// Shows the rows of the head a few at a time, as a backend does whose memory holds no more logits.
class InPortions final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    Portions portions(tap);
    return ForwardingBackend::step(input, tap != nullptr ? &portions : nullptr);
  }

 private:
  class Portions final : public Tap {
   public:
    explicit Portions(Tap* to) : to_(to) {}
    bool wants(Stage stage, int layer) const override { return to_->wants(stage, layer); }
    void on_stage(const TapEvent& event) override {
      constexpr std::size_t kRows = 3;
      const std::size_t most = only_wanted_rows(event.stage) ? kRows : event.rows;
      for (std::size_t first = 0; first < event.rows; first += most) {
        TapEvent portion = event;
        portion.first_row = first;
        portion.rows = std::min(most, event.rows - first);
        portion.data = event.data.subspan(first * event.width, portion.rows * event.width);
        to_->on_stage(portion);
      }
    }

   private:
    Tap* to_;
  };
};

TEST(Run, ShowsTheHeadInPortions) {
  const Patient patient("llama");
  ASSERT_OK_AND_ASSIGN(auto inner, patient.backend());
  InPortions backend(*inner);
  for (const bool companion : {false, true}) {
    ASSERT_OK_AND_ASSIGN(
        const Comparison comparison,
        compare_run(backend, patient.spec, patient.recording, {.companion = companion}, &patient.weights));
    EXPECT_TRUE(comparison.agrees()) << comparison.first_divergence()->key;
    for (const StageComparison& c : comparison.stages) EXPECT_TRUE(c.execution) << c.key << ": " << c.untold;
  }
  ASSERT_OK_AND_ASSIGN(const Recording captured,
                       capture_run(backend, {.prompt_ids = patient.recording.prompt_ids}));
  ASSERT_OK_AND_ASSIGN(const Comparison whole, compare_run(*inner, patient.spec, captured, {}));
  EXPECT_TRUE(whole.agrees()) << whole.first_divergence()->key;
}

class ClearsNothing final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void clear(std::uint32_t) override {}
};

TEST(Run, CacheSurvivesClear) {
  const Patient patient("llama");
  ASSERT_OK_AND_ASSIGN(auto inner, patient.backend());
  ClearsNothing backend(*inner);
  ASSERT_OK_AND_ASSIGN(const Comparison first, compare_run(backend, patient.spec, patient.recording, {}));
  EXPECT_TRUE(first.agrees());
  EXPECT_ERROR(compare_run(backend, patient.spec, patient.recording, {}), "still holds", "tokens in slot 0",
               "after it was cleared");
}

TEST(Run, PositionsSurviveClear) {
  Patient patient("llama");
  patient.inject("cache_survives_clear");
  ASSERT_OK_AND_ASSIGN(const auto backend, patient.backend());
  ASSERT_OK_AND_ASSIGN(const Comparison first, compare_run(*backend, patient.spec, patient.recording, {}));
  EXPECT_TRUE(first.agrees());
  expect_diverges(compare_run(*backend, patient.spec, patient.recording, {}), "layers.0.q_rope", 0);
}

TEST(Run, PartOfABufferIsStale) {  // the scale of the embeddings had not arrived everywhere
  Patient patient("gemma3");
  patient.change_values([scale = patient.spec.embedding_scale](const TapEvent& event, std::span<float> data) {
    if (event.stage != Stage::kEmbedOut || event.rows < 10) return;
    for (float& x : data.subspan(9 * event.width)) x /= static_cast<float>(scale);
  });
  expect_diverges(patient.compare(), "embed_out", 9);
}

TEST(Run, OpWritesNothing) {
  expect_seen("kernel_writes_nothing", "layers.1.o_proj", 0);
}

TEST(Run, NanAtOneToken) {
  const Patient patient("llama", [](const TapEvent& event, std::span<float> data) {
    if (event.stage == Stage::kFfnGate && event.layer == 2 && event.rows > 6) data[6 * event.width + 3] = NAN;
  });
  const auto comparison = patient.compare();
  expect_diverges(comparison, "layers.2.ffn_gate", 6);
  EXPECT_TRUE(std::isinf(comparison->first_divergence()->error));
}

TEST(Run, ActivationOnBothHalves) {
  expect_seen("activation_on_both", "layers.0.ffn_act", 0);
}

TEST(Run, LogitsOfTheWrongRow) {  // the head reads each row's neighbour
  expect_seen("logits_of_wrong_row", "pre_final_norm", 0);
}

}  // namespace
}  // namespace doppler::diagnosis
