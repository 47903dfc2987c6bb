// Faults in execution: the plan and the weights are right, and an op, a buffer or the cache is not. The table
// in faults_test.cpp says which postmortem each belongs to.
#include <cmath>
#include <map>

#include "diagnosis/patient.h"

namespace doppler {
namespace {

using testing::expect_diverges;
using testing::FaultyBackend;
using testing::Patient;

// What the ops of the running layer have computed, for faults that compute something else from it.
using StageValues = std::map<Stage, std::vector<float>>;

// The attention op over one whole prompt, computed from q_rope, k_rope and v_proj, with parts that can be
// wrong.
struct FaultyAttention {
  AttentionSpec spec;
  std::function<std::uint32_t(std::uint32_t head)> kv_head;
  bool causal = true;
  std::size_t cache_slots = 0;  // empty positions of the cache that are attended too: zero keys, zero values

  void compute(StageValues& seen, std::size_t tokens, std::span<float> out) const {
    const std::size_t dim = spec.head_dim;
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::uint32_t h = 0; h < spec.heads; ++h) {
        const float* q = &seen[Stage::kQRope][(t * spec.heads + h) * dim];
        double total = static_cast<double>(cache_slots);  // exp(0) each
        std::vector<double> sum(dim);
        for (std::size_t p = 0; p < (causal ? t + 1 : tokens); ++p) {
          const std::size_t at = (p * spec.kv_heads + kv_head(h)) * dim;
          double score = 0;
          for (std::size_t i = 0; i < dim; ++i) score += double{q[i]} * seen[Stage::kKRope][at + i];
          const double weight = std::exp(score * spec.scale);
          total += weight;
          for (std::size_t i = 0; i < dim; ++i) sum[i] += weight * seen[Stage::kVProj][at + i];
        }
        for (std::size_t i = 0; i < dim; ++i)
          out[(t * spec.heads + h) * dim + i] = static_cast<float>(sum[i] / total);
      }
    }
  }
};

// llama with its attention replaced by this one in the prompt's step.
Result<Comparison> compare_with(const std::function<void(FaultyAttention&)>& fault) {
  Patient patient("llama");
  FaultyAttention attention{.spec = patient.spec.layers[0].attention, .kv_head = {}};
  const std::uint32_t group = attention.spec.heads / attention.spec.kv_heads;
  attention.kv_head = [group](std::uint32_t head) { return head / group; };
  fault(attention);
  StageValues seen;
  patient.alter_backend = [&](FaultyBackend& backend) {
    backend.in_op = [&](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kAttnOut && event.rows > 1) attention.compute(seen, event.rows, data);
      seen[event.stage].assign(data.begin(), data.end());
    };
  };
  return patient.compare();
}

TEST(Run, OwnAttentionAgrees) {  // the tool of the next tests is itself right
  const auto comparison = compare_with([](FaultyAttention&) {});
  ASSERT_OK(comparison);
  EXPECT_TRUE(comparison->agrees());
}

TEST(Run, WrongHeadMap) {  // heads dealt out in turn instead of in groups
  expect_diverges(compare_with([](FaultyAttention& attention) {
                    attention.kv_head = [n = attention.spec.kv_heads](std::uint32_t head) {
                      return head % n;
                    };
                  }),
                  "layers.0.attn_out", 0);
}

TEST(Run, NoCausalMask) {
  expect_diverges(compare_with([](FaultyAttention& attention) { attention.causal = false; }),
                  "layers.0.attn_out", 0);
}

TEST(Run, WholeCacheAttended) {
  expect_diverges(compare_with([](FaultyAttention& attention) { attention.cache_slots = 2048; }),
                  "layers.0.attn_out", 0);
}

// Keys and values go to the cache at element p instead of p * width: each row overwrites most of the one
// before.
TEST(Run, CacheCounterAddsOne) {
  Patient patient("llama");
  patient.alter_backend = [](FaultyBackend& backend) {
    backend.afterwards = [](const TapEvent& event, std::span<float> data) {
      if (event.stage != Stage::kKRope && event.stage != Stage::kVProj) return;
      const std::vector<float> rows(data.begin(), data.end());
      std::fill(data.begin(), data.end(), 0.0f);
      for (std::size_t p = 0; p < event.rows; ++p) {
        const std::size_t count = std::min(event.width, data.size() - p);
        std::copy_n(&rows[p * event.width], count, &data[p]);
      }
    };
  };
  expect_diverges(patient.compare(), "layers.0.attn_out", 0);
}

// The prompt is right, and what decoding adds never arrives.
TEST(Run, DecodeDoesNotAppend) {
  Patient patient("llama");
  patient.alter_backend = [](FaultyBackend& backend) {
    backend.afterwards = [](const TapEvent& event, std::span<float> data) {
      const bool cached = event.stage == Stage::kKRope || event.stage == Stage::kVProj;
      if (cached && event.rows == 1) std::fill(data.begin(), data.end(), 0.0f);
    };
  };
  expect_diverges(patient.compare(), "decode_logits", 0);
}

TEST(Run, OddLayersBreakInDecode) {  // one half of a pair of buffers was given back too early
  Patient patient("llama");
  patient.alter_backend = [](FaultyBackend& backend) {
    backend.afterwards = [](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kLayerOut && event.layer % 2 == 1 && event.rows == 1) data[5] = NAN;
    };
  };
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

TEST(Run, CacheSurvivesClear) {
  Patient patient("llama");
  ASSERT_OK_AND_ASSIGN(const auto backend, patient.backend());
  backend->clear_does_nothing = true;
  ASSERT_OK_AND_ASSIGN(const Comparison first, compare_run(*backend, patient.spec, patient.recording, {}));
  EXPECT_TRUE(first.agrees());
  EXPECT_ERROR(compare_run(*backend, patient.spec, patient.recording, {}), "still holds", "tokens in slot 0",
               "after it was cleared");
}

TEST(Run, PositionsSurviveClear) {
  Patient patient("llama");
  ASSERT_OK_AND_ASSIGN(const auto backend, patient.backend());
  backend->clear_keeps_positions = true;
  ASSERT_OK_AND_ASSIGN(const Comparison first, compare_run(*backend, patient.spec, patient.recording, {}));
  EXPECT_TRUE(first.agrees());
  expect_diverges(compare_run(*backend, patient.spec, patient.recording, {}), "layers.0.q_rope", 0);
}

TEST(Run, PartOfABufferIsStale) {  // the scale of the embeddings had not arrived everywhere
  Patient patient("gemma3");
  patient.alter_backend = [scale = patient.spec.embedding_scale](FaultyBackend& backend) {
    backend.in_op = [scale](const TapEvent& event, std::span<float> data) {
      if (event.stage != Stage::kEmbedOut || event.rows < 10) return;
      for (float& x : data.subspan(9 * event.width)) x /= static_cast<float>(scale);
    };
  };
  expect_diverges(patient.compare(), "embed_out", 9);
}

TEST(Run, OpWritesNothing) {
  Patient patient("llama");
  patient.alter_backend = [](FaultyBackend& backend) {
    backend.in_op = [](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kOProj && event.layer == 1) std::fill(data.begin(), data.end(), 0.0f);
    };
  };
  expect_diverges(patient.compare(), "layers.1.o_proj", 0);
}

TEST(Run, NanAtOneToken) {
  Patient patient("llama");
  patient.alter_backend = [](FaultyBackend& backend) {
    backend.in_op = [](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kFfnGate && event.layer == 2 && event.rows > 6)
        data[6 * event.width + 3] = NAN;
    };
  };
  const auto comparison = patient.compare();
  expect_diverges(comparison, "layers.2.ffn_gate", 6);
  EXPECT_TRUE(std::isinf(comparison->first_divergence()->error));
}

TEST(Run, ActivationOnBothHalves) {
  Patient patient("llama");
  StageValues seen;
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  patient.alter_backend = [&](FaultyBackend& backend) {
    backend.in_op = [&](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kFfnAct) {
        for (std::size_t i = 0; i < data.size(); ++i) {
          data[i] = static_cast<float>(silu(seen[Stage::kFfnGate][i]) * silu(seen[Stage::kFfnUp][i]));
        }
      }
      seen[event.stage].assign(data.begin(), data.end());
    };
  };
  expect_diverges(patient.compare(), "layers.0.ffn_act", 0);
}

TEST(Run, LogitsOfTheWrongRow) {  // the head reads each row's neighbour
  Patient patient("llama");
  patient.alter_backend = [](FaultyBackend& backend) {
    backend.in_op = [](const TapEvent& event, std::span<float> data) {
      if (event.stage == Stage::kPreFinalNorm)
        std::rotate(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(event.width), data.end());
    };
  };
  expect_diverges(patient.compare(), "pre_final_norm", 0);
}

}  // namespace
}  // namespace doppler
