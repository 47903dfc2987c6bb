// What folders store otherwise than the table of weights says: transposed matrices, rows by head, a tensor
// for each head, numbers as tensors.
#include "model/arrange.h"

#include <numeric>

#include "model/activation.h"
#include "model_fixture.h"

namespace doppler {
namespace {

using testing::rule_of;
using testing::tiny_config;
using testing::TinyModel;
using testing::TinyTensor;

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(*element_count(tensor.shape));
  EXPECT_TRUE(decode_f32(tensor, 0, values).has_value());
  return values;
}

TEST(Arrange, TurnsTransposedMatrices) {
  TinyModel tiny("gpt2");
  const std::string name = "model.h.1.mlp.c_fc.weight";
  const std::uint64_t hidden = 32, width = 48;
  const std::vector<float> stored = counted(hidden * width);
  tiny.tensors[name] = TinyTensor::of({hidden, width}, stored);
  TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  ASSERT_OK(arrange_weights(spec, rule_of("gpt2").weight_names, store));
  const TensorView& turned = *store.find(name);
  EXPECT_EQ(turned.shape, (Shape{width, hidden}));
  const std::vector<float> values = values_of(turned);
  for (std::uint64_t r = 0; r < width; ++r) {
    for (std::uint64_t c = 0; c < hidden; ++c) ASSERT_EQ(values[r * hidden + c], stored[c * width + r]);
  }
}

// Falcon's new decoder: for each of 2 KV heads 2 queries, a key, a value, each of 8 rows.
TEST(Arrange, PutsRowsOfHeadsPartByPart) {
  Json config = tiny_config("falcon");
  config["new_decoder_architecture"] = true;
  config["num_kv_heads"] = 2;
  config["bias"] = true;
  TinyModel tiny("falcon", config);
  const std::string base = "model.h.2.self_attention.query_key_value.";
  const std::vector<float> rows = counted(64);
  std::vector<float> matrix;
  for (const float row : rows) matrix.insert(matrix.end(), 32, row);
  tiny.tensors[base + "weight"] = TinyTensor::of({64, 32}, matrix);
  tiny.tensors[base + "bias"] = TinyTensor::of({64}, rows);
  TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, tiny.spec());
  ASSERT_OK_AND_ASSIGN(const Weights weights, bind_folder(spec, store));
  const auto bias = [&](WeightRole role) { return values_of(weights[weights.find(role, 2)]); };
  const auto heads = [](std::initializer_list<int> which) {
    std::vector<float> out;
    for (const int head : which) {
      for (int i = 0; i < 8; ++i) out.push_back(static_cast<float>(head * 8 + i));
    }
    return out;
  };
  EXPECT_EQ(bias(WeightRole::kQBias), heads({0, 1, 4, 5}));
  EXPECT_EQ(bias(WeightRole::kKBias), heads({2, 6}));
  EXPECT_EQ(bias(WeightRole::kVBias), heads({3, 7}));
  const std::vector<float> q = values_of(weights[weights.find(WeightRole::kQ, 2)]);
  for (std::size_t row = 0; row < 32; ++row) EXPECT_EQ(q[row * 32], heads({0, 1, 4, 5})[row]);
}

// One KV head's rows are in order: the mapped file serves.
TEST(Arrange, CopiesNothingOfOneKvHead) {
  TinyModel tiny("falcon", tiny_config("falcon"));
  TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, tiny.spec());
  EXPECT_EQ(spec.layers[0].attention.kv_heads, 1u) << "num_kv_heads means nothing with multi_query";
  ASSERT_OK(bind_folder(spec, store));
  EXPECT_EQ(store.copied_bytes(), 0u);
}

TEST(Arrange, JoinsTheNormsOfHeads) {
  Json config = tiny_config("stablelm");
  config["qk_layernorm"] = true;
  TinyModel tiny("stablelm", config);
  for (int layer = 0; layer < 3; ++layer) {
    tiny.tensors.erase(fmt::format("model.layers.{}.self_attn.q_norm.weight", layer));
    tiny.tensors.erase(fmt::format("model.layers.{}.self_attn.k_norm.weight", layer));
    for (int head = 0; head < 4; ++head) {
      const auto name = [&](const char* which) {
        return fmt::format("model.layers.{}.self_attn.{}_layernorm.norms.{}.weight", layer, which, head);
      };
      const std::vector<float> values(8, static_cast<float>(10 * layer + head));
      tiny.tensors[name("q")] = TinyTensor::of({8}, values);
      if (head < 2) tiny.tensors[name("k")] = TinyTensor::of({8}, values);
    }
  }
  TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, tiny.spec());
  ASSERT_OK_AND_ASSIGN(const Weights weights, bind_folder(spec, store));
  const std::vector<float> q = values_of(weights[weights.find(WeightRole::kQNorm, 2)]);
  ASSERT_EQ(q.size(), 32u);
  EXPECT_EQ(q[0], 20);
  EXPECT_EQ(q[31], 23);
  EXPECT_EQ(values_of(weights[weights.find(WeightRole::kKNorm, 1)])[15], 11);

  tiny.tensors.erase("model.layers.1.self_attn.q_layernorm.norms.3.weight");
  TensorStore less = tiny.store();
  EXPECT_ERROR(bind_folder(spec, less), "q_layernorm.norms.3.weight is missing", "attention.qk_norm = true");
}

TEST(Arrange, ReadsXielusNumbers) {
  Json config = tiny_config("apertus");
  config["hidden_act"] = "xielu";
  TinyModel tiny("apertus", config);
  const std::string base = "model.layers.1.mlp.act_fn.";
  tiny.tensors[base + "alpha_p"] = TinyTensor::of({1}, {0.25f});
  tiny.tensors[base + "alpha_n"] = TinyTensor::of({1}, {-2.0f});
  tiny.tensors[base + "beta"] = TinyTensor::of({}, {0.5f});
  tiny.tensors[base + "eps"] = TinyTensor::of({}, {-1e-6f});
  TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, tiny.spec());
  ASSERT_OK(bind_folder(spec, store));
  const Xielu& x = spec.layers[1].ffn.xielu;
  EXPECT_NEAR(x.alpha_p, std::log1p(std::exp(0.25)), 1e-12);
  EXPECT_NEAR(x.alpha_n, 0.5 + std::log1p(std::exp(-2.0)), 1e-12);
  EXPECT_NEAR(stored_alpha_p(x), 0.25, 1e-12);
  EXPECT_NEAR(stored_alpha_n(x), -2, 1e-12);
  EXPECT_EQ(x.beta, 0.5);
  EXPECT_NEAR(activate(Activation::kXielu, 2, x), x.alpha_p * 4 + 1, 1e-12);
  EXPECT_NEAR(activate(Activation::kXielu, -2, x), x.alpha_n * (std::expm1(-2.0) + 2) - 1, 1e-12);

  tiny.tensors[base + "beta"] = TinyTensor::of({2}, {1, 2});
  TensorStore two = tiny.store();
  EXPECT_ERROR(bind_folder(spec, two), "act_fn.beta must be there and hold one number");
}

}  // namespace
}  // namespace doppler
