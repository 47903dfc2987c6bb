// Every known way in which a model ran and spoke garbage, put in on purpose, and seen by compare at the right
// stage.
//
// What went wrong in earlier engines, by the day that a log tells it or by its number, and where it is put
// in:
//
// clang-format off
//   12-16 encoder with another min convention      diagnosis/faults: scale_min_swapped, nibble_order; the same symptom: Data.StaleWeights
//   12-17 softmax with inner and outer swapped     Run.WrongHeadMap (axes of heads), Run.NoCausalMask
//   12-17, 12-18 "positive bias", sampled stats    No bug of a model; compare reads every value of a stage: reference_test.cpp
//   12-18 rows of 1152 read as a stream of 256s    Data.RowsReadWithAnotherStride, Data.TailColumnsDropped
//   12-18, 12-25 q/k norm without their 1 +        Description.NormOffsetMissingForQueriesAndKeys
//   12-18 harness always applied the template      Data.DoubleBos: a recording fixes the ids
//   12-19 fault before a norm hidden behind it     Description.PostFeedForwardNormOff; ffn_out is a stage: Data.DownProjectionStale
//   12-20 zero embeddings for ids above 8191       Data.EmbeddingRowsBeyond8191AreZero
//   12-21 op returned before it was done           Run.PartOfABufferIsStale
//   12-22 op that silently does nothing            Run.OpWritesNothing
//   12-30 padding read beyond the shape            reference_test.cpp: TapsShowExactlyTheirShape
//   12-30 weight handed over in another type       Data.Bf16ReadAsF16
//   12-31 decode broken on odd layers              Run.OddLayersBreakInDecode
//   01-03 batch decode repeats (buffers, flags)    Run.DecodeDoesNotAppend; pieces and companions: fixtures_test.cpp
//   01-03 slower than others                       Speed, not correctness
//   01-04, 01-05 f16 where f32 was expected        Data.Bf16ReadAsF16; activations have one type here, float32
//   01-19 post_feedforward_layernorm off           Description.PostFeedForwardNormOff; refused at load: weights_test.cpp
//   01-19 merges given as arrays dropped           Tokenizer tests; diagnosis/faults: merges_dropped
//   01-21 cache not reset between runs             Run.CacheSurvivesClear, Run.PositionsSurviveClear
//   12-14 quantised router                         There are no experts yet
//   03-12 head of the last row only, wrong row     Run.LogitsOfTheWrongRow
//   03-13 norm offset forced on, rope interleaved  Description.NormOffsetWhereNoneBelongs, .RopeInterleaved
//   03-15 argmax of a large vocabulary             engine/sampler_test.cpp; Data.HeadRowsBeyond65535AreZero
//   07-13 silu(gate) * silu(up)                    Run.ActivationOnBothHalves
//   03 recycled weight buffers                     Data.StaleWeights, Data.ShiftedShard
//   11.4: 1 cache counter adds 1 per token         Run.CacheCounterAddsOne
//   11.4: 2 whole cache attended                   Run.WholeCacheAttended
//   11.4: 3 first token generated twice            Run.FirstTokenTwice
//   11.4: 4 one position for the whole prompt      Description.ConstantPosition
//   11.4: 5 rotary pairs                           Description.RopeInterleaved, Data.QueryRowsPermuted
//   11.4: 6 matrices read with axes swapped        Data.EmbeddingTransposed, .ProjectionTransposed, .HeadTransposed
//   11.4: 7 block sizes and indexing               diagnosis/faults: row_blocks_misaligned; quant and formats tests
//   11.4: 8 offset added twice                     Data.ShiftedShard
//   6.1 llama3 scaling as linear, yarn's factor    Description.Llama3Scaling*, model/rope_test.cpp
// clang-format on
#include <cmath>

#include "backend/reference/reference_backend.h"
#include "base/json.h"
#include "diagnosis/faults/faults_table.h"
#include "diagnosis/patient.h"
#include "model_fixture.h"

namespace doppler::diagnosis {
namespace {

using testing::expect_diverges;
using testing::expect_missing;
using testing::Patient;

// ---- Description: the spec or the plan says something else than the model ----

TEST(Description, HealthyPatientAgrees) {
  for (const char* family : {"llama", "gemma2", "gemma3", "phi3"}) {
    const Patient patient(family);
    const auto comparison = patient.compare();
    ASSERT_OK(comparison);
    EXPECT_TRUE(comparison->agrees()) << family;
  }
}

TEST(Description, NormOffsetMissing) {
  Patient patient("gemma3");
  patient.inject("norm_offset_missing");
  expect_diverges(patient.compare(), "layers.0.attn_normed", 0);
}

TEST(Description, NormOffsetMissingForQueriesAndKeys) {
  Patient both("gemma3");
  both.inject("qk_norm_offset");
  expect_diverges(both.compare(), "layers.0.q_norm", 0);
  Patient keys("gemma3");
  keys.site().change_plan([](Plan& plan) {
    for (Op& op : plan.ops) {
      if (plan.values[op.outputs[0]].stage == Stage::kKNorm)
        std::get<NormParams>(op.params).weight_offset = 0;
    }
  });
  expect_diverges(keys.compare(), "layers.0.k_norm", 0);
}

TEST(Description, NormOffsetWhereNoneBelongs) {
  Patient patient("qwen3");
  patient.inject("norm_offset_forced");
  expect_diverges(patient.compare(), "layers.0.attn_normed", 0);
}

TEST(Description, QueryNormNotPlanned) {
  Patient patient("qwen3");
  patient.inject("qk_norm_missing");
  expect_missing(patient.compare(), "layers.0.q_norm");
}

TEST(Description, PostFeedForwardNormOff) {
  Patient patient("gemma3");
  patient.spec.layers[2].post_ffn_norm = false;
  expect_missing(patient.compare(), "layers.2.post_ffn_norm");
}

TEST(Description, EmbeddingScaleMissing) {
  Patient patient("gemma3");
  patient.inject("embedding_scale_missing");
  expect_diverges(patient.compare(), "embed_out", 0);
}

// Token 0 stands at position 0, which no rotation moves.
TEST(Description, RopeThetaWrong) {
  Patient patient("qwen3");
  patient.inject("rope_theta_default");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, LocalAndGlobalThetaSwapped) {
  Patient patient("gemma3");
  patient.inject("rope_thetas_swapped");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, LocalThetaEverywhere) {
  Patient patient("gemma3");
  patient.inject("rope_theta_default");
  expect_diverges(patient.compare(), "layers.5.q_rope", 1);  // the only layer of full attention
}

TEST(Description, RopeInterleaved) {
  Patient patient("llama");
  patient.inject("rope_interleaved");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, Llama3ScalingMissing) {
  Patient patient("llama3");
  patient.inject("rope_scaling_missing");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, Llama3ScalingTakenAsLinear) {
  Patient patient("llama3");
  patient.inject("rope_scaling_linear");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, ConstantPosition) {
  Patient patient("llama");
  patient.inject("rope_missing");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, HalfOfTheHeadRotates) {
  Patient patient("llama");
  patient.inject("rope_half_of_head");
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

// The window is 8: token 7 is the last one that sees token 0.
TEST(Description, WindowOneTooSmall) {
  Patient patient("mistral");
  patient.inject("window_one_small");
  expect_diverges(patient.compare(), "layers.0.attn_out", 7);
}

TEST(Description, WindowOneTooLarge) {
  Patient patient("mistral");
  patient.inject("window_one_large");
  expect_diverges(patient.compare(), "layers.0.attn_out", 8);
}

TEST(Description, WindowMissing) {
  for (const char* family : {"mistral", "gemma2", "gemma3"}) {
    Patient patient(family);
    patient.inject("window_missing");
    expect_diverges(patient.compare(), "layers.0.attn_out", 8);
  }
}

TEST(Description, WindowOnAFullLayer) {
  Patient patient("gemma3");
  patient.inject("window_on_full_layer");
  expect_diverges(patient.compare(), "layers.5.attn_out", 8);
}

TEST(Description, WindowsOnTheWrongHalfOfTheLayers) {
  Patient patient("gemma2");
  patient.inject("layer_types_shifted");
  expect_diverges(patient.compare(), "layers.0.attn_out", 8);
}

// Token 0 attends to itself alone, whatever its score; token 1 leans on one of its two scores so heavily that
// the change stays below the tolerance.
TEST(Description, ScoreSoftcapMissing) {
  Patient patient("gemma2");
  patient.inject("attention_softcap_missing");
  expect_diverges(patient.compare(), "layers.0.attn_out", 2);
}

TEST(Description, ScaleFromHeadDimInsteadOfQueryPreAttnScalar) {
  Patient patient("gemma2");
  for (LayerSpec& layer : patient.spec.layers)
    layer.attention.scale = 1 / std::sqrt(layer.attention.head_dim);
  expect_diverges(patient.compare(), "layers.0.attn_out", 2);
}

TEST(Description, FinalSoftcapMissing) {
  Patient patient("gemma2");
  patient.inject("final_softcap_missing");
  expect_diverges(patient.compare(), "logits_final", 0);
}

TEST(Description, ActivationOfAnotherFamily) {
  const std::pair<const char*, const char*> cases[] = {
      {"gemma3", "activation_wrong"},  // silu
      {"gemma3", "activation_erf"},    // instead of its tanh approximation: a difference in the fourth digit
      {"llama", "activation_wrong"}};  // gelu
  for (const auto& [family, fault] : cases) {
    Patient patient(family);
    patient.inject(fault);
    expect_diverges(patient.compare(), "layers.0.ffn_act", 0);
  }
}

TEST(Description, ActivationOnUpInsteadOfGate) {
  Patient patient("llama");
  patient.inject("activation_on_up");
  expect_diverges(patient.compare(), "layers.0.ffn_act", 0);
}

TEST(Description, ResidualNotAdded) {
  Patient patient("llama");
  patient.site().change_plan([](Plan& plan) {
    for (Op& op : plan.ops) {
      if (op.kind == OpKind::kAdd && op.layer == 1) op.inputs[0] = op.inputs[1];
    }
  });
  expect_diverges(patient.compare(), "layers.1.post_attn", 0);
}

TEST(Description, FeedForwardReadsTheStreamBeforeAttention) {
  Patient patient("llama");
  patient.inject("ffn_norm_reads_layer_input");
  expect_diverges(patient.compare(), "layers.0.ffn_normed", 0);
}

TEST(Description, BiasLeftOut) {
  Patient patient("qwen2");
  patient.inject("bias_missing");
  expect_diverges(patient.compare(), "layers.0.q_proj", 0);
}

TEST(Description, HeadTiedThoughItIsNot) {
  Patient patient("llama");
  patient.inject("head_tied");
  expect_diverges(patient.compare(), "logits", 0);
}

TEST(Description, WrongNormAtTheEnd) {
  Patient patient("llama");
  patient.inject("final_norm_stale");
  expect_diverges(patient.compare(), "final_norm", 0);
}

TEST(Description, LayersLeftOut) {
  Patient patient("llama");
  patient.inject("layer_left_out");
  expect_missing(patient.compare(), fmt::format("layers.{}.attn_input", patient.spec.layers.size()));
}

// ---- Data: the weights are not what they should be ----

TEST(Data, EmbeddingTransposed) {  // [vocab][hidden] read as [hidden][vocab]
  Patient patient("llama");
  patient.inject("embedding_transposed");
  expect_diverges(patient.compare(), "embed_out", 0);
}

TEST(Data, ProjectionTransposed) {
  const std::pair<WeightRole, const char*> cases[] = {
      {WeightRole::kQ, "layers.0.q_proj"},      {WeightRole::kK, "layers.0.k_proj"},
      {WeightRole::kV, "layers.0.v_proj"},      {WeightRole::kO, "layers.0.o_proj"},
      {WeightRole::kGate, "layers.0.ffn_gate"}, {WeightRole::kUp, "layers.0.ffn_up"},
      {WeightRole::kDown, "layers.0.ffn_out"}};
  for (const auto& [role, key] : cases) {
    Patient patient("llama");
    patient.site().alter(role, 0, faults::transpose);
    expect_diverges(patient.compare(), key, 0);
  }
}

TEST(Data, HeadTransposed) {
  Patient patient("llama");
  patient.site().alter(WeightRole::kHead, -1, faults::transpose);
  expect_diverges(patient.compare(), "logits", 0);
}

// GGUF stores llama's queries so that rotary pairs are neighbours; taken for the other order they are
// permuted rows.
TEST(Data, QueryRowsPermuted) {
  Patient patient("llama");
  patient.inject("rotary_rows_permuted");
  expect_diverges(patient.compare(), "layers.0.q_proj", 0);
}

TEST(Data, GateAndUpSwapped) {
  Patient patient("llama");
  patient.inject("gate_up_swapped");
  expect_diverges(patient.compare(), "layers.0.ffn_gate", 0);
}

TEST(Data, FusedQkvSplitInAnotherOrder) {
  Patient patient("phi3");
  patient.inject("k_v_swapped");
  expect_diverges(patient.compare(), "layers.1.qkv_proj", 0);
}

TEST(Data, FusedGateUpSplitInAnotherOrder) {
  Patient patient("phi3");
  patient.site().swap(WeightRole::kGate, WeightRole::kUp, 1);
  expect_diverges(patient.compare(), "layers.1.ffn_gate_up", 0);
}

TEST(Data, Bf16ReadAsF16) {
  Patient patient("llama");
  patient.inject("bf16_read_as_f16");
  expect_diverges(patient.compare(), "layers.1.k_proj", 0);
}

TEST(Data, TailColumnsDropped) {  // 288 columns are one block of 256 and a tail of 32
  Patient patient("gemma3_k288");
  patient.site().alter(WeightRole::kQ, 0, [](TensorView& tensor, std::vector<std::byte>& bytes) {
    for (std::size_t r = 0; r < tensor.rows(); ++r) {
      std::fill_n(&bytes[(r * tensor.cols() + 256) * 2], (tensor.cols() - 256) * 2, std::byte{0});
    }
  });
  expect_diverges(patient.compare(), "layers.0.q_proj", 0);
}

TEST(Data, RowsReadWithAnotherStride) {  // rows taken from a stream of whole blocks: 512 instead of 288 apart
  Patient patient("gemma3_k288");
  patient.site().alter(WeightRole::kV, 0, [](TensorView& tensor, std::vector<std::byte>& bytes) {
    const std::size_t row = tensor.cols() * 2, stride = 512 * 2;
    for (std::size_t r = 0; r < tensor.rows(); ++r) {
      std::copy_n(tensor.data.begin() + static_cast<std::ptrdiff_t>(r * stride % (bytes.size() - row)), row,
                  bytes.begin() + static_cast<std::ptrdiff_t>(r * row));
    }
  });
  expect_diverges(patient.compare(), "layers.0.v_proj", 0);
}

TEST(Data, ShiftedShard) {  // every row is its neighbour's
  Patient patient("llama");
  patient.inject("rows_shifted");
  expect_diverges(patient.compare(), "layers.1.v_proj", 0);
}

TEST(Data, StaleWeights) {  // layer 2 runs with what the buffer held for layer 1
  Patient patient("llama");
  patient.weights.alias(WeightRole::kO, 2, patient.weights.find(WeightRole::kO, 1));
  expect_diverges(patient.compare(), "layers.2.o_proj", 0);
}

TEST(Data, DownProjectionStale) {  // gemma's norm after it would hide a wrong magnitude
  Patient patient("gemma3");
  patient.site().alter(WeightRole::kDown, 3, [](TensorView&, std::vector<std::byte>& bytes) {
    for (std::size_t i = 1; i < bytes.size(); i += 2) bytes[i] ^= std::byte{0x80};  // every sign
  });
  expect_diverges(patient.compare(), "layers.3.ffn_out", 0);
}

TEST(Data, BitFlipInOneRow) {
  Patient patient("llama");
  patient.inject("sign_flip");
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  ASSERT_NE(comparison->first_divergence(), nullptr);
  EXPECT_EQ(comparison->first_divergence()->key, "layers.1.ffn_up");
}

// A tokenizer that adds a second BOS, or a template nobody asked for: the recording's ids decide, and ids
// that do not belong to the recorded stages are seen where tokens become vectors.
TEST(Data, DoubleBos) {
  Patient patient("llama");
  auto& ids = patient.recording.prompt_ids;
  ids.insert(ids.begin() + 1, ids[0]);
  ids.pop_back();
  expect_diverges(patient.compare(), "embed_out", 1);
}

// A recording of a healthy model with a large vocabulary, made here because no fixture has one.
Patient patient_with_vocabulary(std::uint64_t vocab, std::vector<std::int32_t> prompt,
                                const testing::TempDir& dir) {
  Json config = testing::tiny_config("llama");
  config["vocab_size"] = vocab;
  config["num_hidden_layers"] = 1;
  const testing::TinyModel model("llama", config);
  EXPECT_TRUE(model.write(dir.path()));
  auto loaded = load_model(dir.path());
  EXPECT_TRUE(loaded) << loaded.error().message;
  auto backend =
      make_reference_backend(loaded->spec, loaded->weights, {.context = 32, .disabled_passes = {}});
  EXPECT_TRUE(backend);
  EXPECT_TRUE(record_run(**backend, {.prompt_ids = std::move(prompt)}, dir / "recording.safetensors"));
  return Patient(dir.path(), "recording.safetensors");
}

void zero_rows_from(Patient& patient, WeightRole role, std::size_t first) {
  patient.site().alter(role, -1, [first](TensorView& tensor, std::vector<std::byte>& bytes) {
    const std::size_t row = bytes.size() / tensor.rows();
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(first * row), bytes.end(), std::byte{0});
  });
}

TEST(Data, EmbeddingRowsBeyond8191AreZero) {
  const testing::TempDir dir;
  Patient patient = patient_with_vocabulary(9000, {2, 8191, 17, 8192, 8999}, dir);
  const auto healthy = patient.compare();
  ASSERT_OK(healthy);
  EXPECT_TRUE(healthy->agrees());
  zero_rows_from(patient, WeightRole::kTokenEmbedding, 8192);
  expect_diverges(patient.compare(), "embed_out", 3);
}

TEST(Data, HeadRowsBeyond65535AreZero) {
  const testing::TempDir dir;
  Patient patient = patient_with_vocabulary(65600, {2, 5}, dir);
  zero_rows_from(patient, WeightRole::kHead, 65536);
  expect_diverges(patient.compare(), "logits", 0);
}

// A kernel that is written anew must not lose the faults that are edits of its text.
TEST(Shaders, HaveTheTextsThatFaultsEdit) {
  Patient patient("llama");
  for (const faults::FaultRow& row : faults::shader_faults()) {
    Subject subject = patient.subject;
    faults::Site site(subject);
    row.put(site);
    EXPECT_FALSE(site.shader_edits().empty()) << row.info.name;
    for (const ShaderEdit& edit : site.shader_edits()) {
      const std::string text =
          testing::read_file(testing::source_path("src/backend/gpu/shaders/" + edit.file));
      EXPECT_NE(text.find(edit.from), std::string::npos) << row.info.name << ": " << edit.from;
    }
  }
}

}  // namespace
}  // namespace doppler::diagnosis
