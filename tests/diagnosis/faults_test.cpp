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

#include "base/json.h"
#include "diagnosis/patient.h"
#include "model_fixture.h"

namespace doppler {
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
  patient.spec.norm.weight_offset = 0;
  expect_diverges(patient.compare(), "layers.0.attn_normed", 0);
}

TEST(Description, NormOffsetMissingForQueriesAndKeys) {
  for (const Stage stage : {Stage::kQNorm, Stage::kKNorm}) {
    Patient patient("gemma3");
    patient.alter_plan = [stage](Plan& plan) {
      for (Op& op : plan.ops) {
        if (plan.values[op.outputs[0]].stage == stage) std::get<NormParams>(op.params).weight_offset = 0;
      }
    };
    expect_diverges(patient.compare(), stage_key(stage, 0), 0);
  }
}

TEST(Description, NormOffsetWhereNoneBelongs) {
  Patient patient("qwen3");
  patient.spec.norm.weight_offset = 1;
  expect_diverges(patient.compare(), "layers.0.attn_normed", 0);
}

TEST(Description, QueryNormNotPlanned) {
  Patient patient("qwen3");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.qk_norm = false;
  expect_missing(patient.compare(), "layers.0.q_norm");
}

TEST(Description, PostFeedForwardNormOff) {
  Patient patient("gemma3");
  patient.spec.layers[2].post_ffn_norm = false;
  expect_missing(patient.compare(), "layers.2.post_ffn_norm");
}

TEST(Description, EmbeddingScaleMissing) {
  Patient patient("gemma3");
  patient.spec.embedding_scale = 1;
  expect_diverges(patient.compare(), "embed_out", 0);
}

// Token 0 stands at position 0, which no rotation moves.
TEST(Description, RopeThetaWrong) {
  Patient patient("qwen3");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.rope.theta = 10000;
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, LocalAndGlobalThetaSwapped) {
  Patient patient("gemma3");
  for (LayerSpec& layer : patient.spec.layers) {
    layer.attention.rope.theta = layer.attention.kind == AttentionKind::kFull ? 10000 : 1000000;
  }
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, LocalThetaEverywhere) {
  Patient patient("gemma3");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.rope.theta = 10000;
  expect_diverges(patient.compare(), "layers.5.q_rope", 1);  // the only layer of full attention
}

TEST(Description, RopeInterleaved) {
  Patient patient("llama");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.rope.layout = RopeLayout::kInterleaved;
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, Llama3ScalingMissing) {
  Patient patient("llama3");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.rope.scaling.kind = RopeScalingKind::kNone;
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, Llama3ScalingTakenAsLinear) {
  Patient patient("llama3");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.rope.scaling.kind = RopeScalingKind::kLinear;
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, ConstantPosition) {
  Patient patient("llama");
  patient.alter_plan = [](Plan& plan) {
    for (RopeTable& table : plan.rope_tables)
      std::fill(table.inverse_frequency.begin(), table.inverse_frequency.end(), 0);
  };
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

TEST(Description, HalfOfTheHeadRotates) {
  Patient patient("llama");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.rope.rotary_dim /= 2;
  expect_diverges(patient.compare(), "layers.0.q_rope", 1);
}

// The window is 8: token 7 is the last one that sees token 0.
TEST(Description, WindowOneTooSmall) {
  Patient patient("mistral");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.window = 7;
  expect_diverges(patient.compare(), "layers.0.attn_out", 7);
}

TEST(Description, WindowOneTooLarge) {
  Patient patient("mistral");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.window = 9;
  expect_diverges(patient.compare(), "layers.0.attn_out", 8);
}

TEST(Description, WindowMissing) {
  for (const char* family : {"mistral", "gemma2", "gemma3"}) {
    Patient patient(family);
    for (LayerSpec& layer : patient.spec.layers) layer.attention.window = 0;
    expect_diverges(patient.compare(), "layers.0.attn_out", 8);
  }
}

TEST(Description, WindowOnAFullLayer) {
  Patient patient("gemma3");
  patient.spec.layers[5].attention.window = 8;
  expect_diverges(patient.compare(), "layers.5.attn_out", 8);
}

TEST(Description, WindowsOnTheWrongHalfOfTheLayers) {
  Patient patient("gemma2");
  for (std::size_t i = 0; i < patient.spec.layers.size(); ++i) {
    patient.spec.layers[i].attention.window = i % 2 == 0 ? 0 : 8;
  }
  expect_diverges(patient.compare(), "layers.0.attn_out", 8);
}

// Token 0 attends to itself alone, whatever its score; token 1 leans on one of its two scores so heavily that
// the change stays below the tolerance.
TEST(Description, ScoreSoftcapMissing) {
  Patient patient("gemma2");
  for (LayerSpec& layer : patient.spec.layers) layer.attention.softcap = 0;
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
  patient.spec.final_softcap = 0;
  expect_diverges(patient.compare(), "logits_final", 0);
}

TEST(Description, ActivationOfAnotherFamily) {
  Patient gemma("gemma3");
  for (LayerSpec& layer : gemma.spec.layers) layer.ffn.activation = Activation::kSilu;
  expect_diverges(gemma.compare(), "layers.0.ffn_act", 0);
  Patient exact("gemma3");  // erf instead of its tanh approximation: a difference in the fourth digit
  for (LayerSpec& layer : exact.spec.layers) layer.ffn.activation = Activation::kGeluErf;
  expect_diverges(exact.compare(), "layers.0.ffn_act", 0);
  Patient llama("llama");
  for (LayerSpec& layer : llama.spec.layers) layer.ffn.activation = Activation::kGeluTanh;
  expect_diverges(llama.compare(), "layers.0.ffn_act", 0);
}

TEST(Description, ActivationOnUpInsteadOfGate) {
  Patient patient("llama");
  patient.alter_plan = [](Plan& plan) {
    for (Op& op : plan.ops) {
      if (op.kind == OpKind::kGated) std::swap(op.inputs[0], op.inputs[1]);
    }
  };
  expect_diverges(patient.compare(), "layers.0.ffn_act", 0);
}

TEST(Description, ResidualNotAdded) {
  Patient patient("llama");
  patient.alter_plan = [](Plan& plan) {
    for (Op& op : plan.ops) {
      if (op.kind == OpKind::kAdd && op.layer == 1) op.inputs[0] = op.inputs[1];
    }
  };
  expect_diverges(patient.compare(), "layers.1.post_attn", 0);
}

TEST(Description, FeedForwardReadsTheStreamBeforeAttention) {
  Patient patient("llama");
  patient.alter_plan = [](Plan& plan) {
    const auto find = [&](Stage stage) {
      for (ValueId id = 0; id < plan.values.size(); ++id) {
        if (plan.values[id].stage == stage && plan.values[id].layer <= 0) return id;
      }
      return ValueId{0};
    };
    for (Op& op : plan.ops) {
      if (op.outputs[0] == find(Stage::kFfnNormed)) op.inputs[0] = find(Stage::kEmbedOut);
    }
  };
  expect_diverges(patient.compare(), "layers.0.ffn_normed", 0);
}

TEST(Description, BiasLeftOut) {
  Patient patient("qwen2");
  patient.alter_plan = [](Plan& plan) {
    for (Op& op : plan.ops) op.biases.clear();
  };
  expect_diverges(patient.compare(), "layers.0.q_proj", 0);
}

TEST(Description, HeadTiedThoughItIsNot) {
  Patient patient("llama");
  patient.weights.alias(WeightRole::kHead, -1, patient.weights.find(WeightRole::kTokenEmbedding));
  expect_diverges(patient.compare(), "logits", 0);
}

TEST(Description, WrongNormAtTheEnd) {
  Patient patient("llama");
  patient.weights.alias(WeightRole::kFinalNorm, -1, patient.weights.find(WeightRole::kFfnNorm, 0));
  expect_diverges(patient.compare(), "final_norm", 0);
}

TEST(Description, LayersLeftOut) {
  Patient patient("llama");
  patient.spec.layers.pop_back();
  const auto comparison = patient.compare();
  expect_missing(comparison, fmt::format("layers.{}.attn_input", patient.spec.layers.size()));
}

// ---- Data: the weights are not what they should be ----

TEST(Data, EmbeddingTransposed) {  // [vocab][hidden] read as [hidden][vocab]
  Patient patient("llama");
  patient.alter(WeightRole::kTokenEmbedding, -1, [](TensorView& tensor, std::vector<std::byte>& bytes) {
    const std::size_t vocab = tensor.rows(), hidden = tensor.cols();
    for (std::size_t token = 0; token < vocab; ++token) {
      for (std::size_t dim = 0; dim < hidden; ++dim) {
        std::copy_n(&tensor.data[(dim * vocab + token) * 2], 2, &bytes[(token * hidden + dim) * 2]);
      }
    }
  });
  expect_diverges(patient.compare(), "embed_out", 0);
}

void transpose_reading(TensorView& tensor, std::vector<std::byte>& bytes) {
  const std::size_t rows = tensor.rows(), cols = tensor.cols();
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c)
      std::copy_n(&tensor.data[(c * rows + r) * 2], 2, &bytes[(r * cols + c) * 2]);
  }
}

TEST(Data, ProjectionTransposed) {
  const std::pair<WeightRole, const char*> cases[] = {
      {WeightRole::kQ, "layers.0.q_proj"},      {WeightRole::kK, "layers.0.k_proj"},
      {WeightRole::kV, "layers.0.v_proj"},      {WeightRole::kO, "layers.0.o_proj"},
      {WeightRole::kGate, "layers.0.ffn_gate"}, {WeightRole::kUp, "layers.0.ffn_up"},
      {WeightRole::kDown, "layers.0.ffn_out"}};
  for (const auto& [role, key] : cases) {
    Patient patient("llama");
    patient.alter(role, 0, transpose_reading);
    expect_diverges(patient.compare(), key, 0);
  }
}

TEST(Data, HeadTransposed) {
  Patient patient("llama");
  patient.alter(WeightRole::kHead, -1, transpose_reading);
  expect_diverges(patient.compare(), "logits", 0);
}

// GGUF stores llama's queries so that rotary pairs are neighbours; taken for the other order they are
// permuted rows.
TEST(Data, QueryRowsPermuted) {
  Patient patient("llama");
  const std::size_t dim = patient.spec.layers[0].attention.head_dim;
  patient.permute_rows(WeightRole::kQ, 0, [dim](std::size_t row) {
    const std::size_t head = row / dim, i = row % dim;
    return head * dim + (i % 2) * dim / 2 + i / 2;
  });
  expect_diverges(patient.compare(), "layers.0.q_proj", 0);
}

TEST(Data, GateAndUpSwapped) {
  Patient patient("llama");
  const WeightId gate = patient.weights.find(WeightRole::kGate, 0),
                 up = patient.weights.find(WeightRole::kUp, 0);
  patient.weights.alias(WeightRole::kGate, 0, up);
  patient.weights.alias(WeightRole::kUp, 0, gate);
  expect_diverges(patient.compare(), "layers.0.ffn_gate", 0);
}

TEST(Data, FusedQkvSplitInAnotherOrder) {
  Patient patient("phi3");
  const WeightId k = patient.weights.find(WeightRole::kK, 1), v = patient.weights.find(WeightRole::kV, 1);
  patient.weights.alias(WeightRole::kK, 1, v);
  patient.weights.alias(WeightRole::kV, 1, k);
  expect_diverges(patient.compare(), "layers.1.qkv_proj", 0);
}

TEST(Data, FusedGateUpSplitInAnotherOrder) {
  Patient patient("phi3");
  const WeightId gate = patient.weights.find(WeightRole::kGate, 1),
                 up = patient.weights.find(WeightRole::kUp, 1);
  patient.weights.alias(WeightRole::kGate, 1, up);
  patient.weights.alias(WeightRole::kUp, 1, gate);
  expect_diverges(patient.compare(), "layers.1.ffn_gate_up", 0);
}

TEST(Data, Bf16ReadAsF16) {
  Patient patient("llama");
  patient.alter(WeightRole::kK, 1,
                [](TensorView& tensor, std::vector<std::byte>&) { tensor.dtype = DType::kF16; });
  expect_diverges(patient.compare(), "layers.1.k_proj", 0);
}

TEST(Data, TailColumnsDropped) {  // 288 columns are one block of 256 and a tail of 32
  Patient patient("gemma3_k288");
  patient.alter(WeightRole::kQ, 0, [](TensorView& tensor, std::vector<std::byte>& bytes) {
    for (std::size_t r = 0; r < tensor.rows(); ++r) {
      std::fill_n(&bytes[(r * tensor.cols() + 256) * 2], (tensor.cols() - 256) * 2, std::byte{0});
    }
  });
  expect_diverges(patient.compare(), "layers.0.q_proj", 0);
}

TEST(Data, RowsReadWithAnotherStride) {  // rows taken from a stream of whole blocks: 512 instead of 288 apart
  Patient patient("gemma3_k288");
  patient.alter(WeightRole::kV, 0, [](TensorView& tensor, std::vector<std::byte>& bytes) {
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
  const std::size_t rows = patient.weights[patient.weights.find(WeightRole::kV, 1)].rows();
  patient.permute_rows(WeightRole::kV, 1, [rows](std::size_t row) { return (row + 1) % rows; });
  expect_diverges(patient.compare(), "layers.1.v_proj", 0);
}

TEST(Data, StaleWeights) {  // layer 2 runs with what the buffer held for layer 1
  Patient patient("llama");
  patient.weights.alias(WeightRole::kO, 2, patient.weights.find(WeightRole::kO, 1));
  expect_diverges(patient.compare(), "layers.2.o_proj", 0);
}

TEST(Data, DownProjectionStale) {  // gemma's norm after it would hide a wrong magnitude
  Patient patient("gemma3");
  patient.alter(WeightRole::kDown, 3, [](TensorView&, std::vector<std::byte>& bytes) {
    for (std::size_t i = 1; i < bytes.size(); i += 2) bytes[i] ^= std::byte{0x80};  // every sign
  });
  expect_diverges(patient.compare(), "layers.3.ffn_out", 0);
}

TEST(Data, BitFlipInOneRow) {
  Patient patient("llama");
  patient.alter(WeightRole::kUp, 1, [](TensorView& tensor, std::vector<std::byte>& bytes) {
    bytes[17 * tensor.cols() * 2 + 1] ^= std::byte{0x80};
  });
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
  patient.alter(role, -1, [first](TensorView& tensor, std::vector<std::byte>& bytes) {
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

}  // namespace
}  // namespace doppler
