// Experts as gpt-oss and Llama 4 store them become tensors of rows.
#include "model/expert_files.h"

#include "model/family.h"
#include "tensors.h"
#include "testing.h"

namespace doppler {
namespace {

constexpr std::uint32_t kExperts = 2, kWidth = 2, kHidden = 32;
constexpr WeightName kNames[] = {{WeightRole::kGateExperts, "model.layers.{}.gate"},
                                 {WeightRole::kUpExperts, "model.layers.{}.up"},
                                 {WeightRole::kDownExperts, "model.layers.{}.down"},
                                 {WeightRole::kGateExpertsBias, "model.layers.{}.gate_bias"},
                                 {WeightRole::kUpExpertsBias, "model.layers.{}.up_bias"}};

WeightNames names(bool interleaved) {
  return {.own = kNames,
          .expert_columns = {
              .gate_up = "model.layers.{}.both", .down = "model.layers.{}.down", .interleaved = interleaved}};
}

ModelSpec one_layer() {
  ModelSpec spec;
  spec.hidden = kHidden;
  spec.layers.resize(1);
  spec.layers[0].ffn.width = kWidth;
  spec.layers[0].ffn.experts = kExperts;
  return spec;
}

void add(TensorStore& store, const std::string& name, Shape shape, std::span<const float> values) {
  auto to = store.create(name, DType::kF32, std::move(shape));
  ASSERT_OK(to);
  std::memcpy(to->data(), values.data(), values.size_bytes());
}

std::vector<float> values_of(const TensorStore& store, std::string_view name) {
  const TensorView* tensor = store.find(name);
  if (tensor == nullptr) return {};
  std::vector<float> values(element_count(tensor->shape).value_or(0));
  EXPECT_TRUE(decode_f32(*tensor, 0, values).has_value());
  return values;
}

// Value 1000 e + 10 c + r of row r and column c of expert e, stored as columns.
TensorStore columns() {
  TensorStore store;
  std::vector<float> both;
  for (std::uint32_t e = 0; e < kExperts; ++e) {
    for (std::uint32_t c = 0; c < kHidden; ++c) {
      for (std::uint32_t r = 0; r < 2 * kWidth; ++r)
        both.push_back(static_cast<float>(1000 * e + 10 * c + r));
    }
  }
  add(store, "model.layers.0.both", {kExperts, kHidden, 2 * kWidth}, both);
  add(store, "model.layers.0.both_bias", {kExperts, 2 * kWidth},
      std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13});
  return store;
}

TEST(ExpertFiles, ColumnsBecomeRowsOfGateAndUp) {
  TensorStore store = columns();
  ASSERT_OK(restore_experts(one_layer(), names(false), store));
  const std::vector<float> gate = values_of(store, "model.layers.0.gate"),
                           up = values_of(store, "model.layers.0.up");
  ASSERT_EQ(gate.size(), kExperts * kWidth * kHidden);
  EXPECT_EQ(gate[kHidden + 3], 31);                         // row 1, column 3 of expert 0
  EXPECT_EQ(up[kWidth * kHidden + 5], 1000 + 50 + kWidth);  // row 0 of up's of expert 1
  EXPECT_EQ(store.find("model.layers.0.both"), nullptr);
  EXPECT_EQ(values_of(store, "model.layers.0.up_bias"), (std::vector<float>{2, 3, 12, 13}));
}

TEST(ExpertFiles, InterleavedRowsAreTakenApart) {
  TensorStore store = columns();
  ASSERT_OK(restore_experts(one_layer(), names(true), store));
  EXPECT_EQ(values_of(store, "model.layers.0.gate")[kHidden + 3], 30 + 2);
  EXPECT_EQ(values_of(store, "model.layers.0.up")[kHidden + 3], 30 + 3);
  EXPECT_EQ(values_of(store, "model.layers.0.gate_bias"), (std::vector<float>{0, 2, 10, 12}));
}

TEST(ExpertFiles, Mxfp4BlocksAndScalesBecomeOneTensor) {
  TensorStore store;
  // A byte holds two neighbouring values, the first in its low half: codes 0 1 2 3 ... 15 0 1 ..., scales 1
  // and 2.
  auto blocks = store.create("model.layers.0.both_blocks", DType::kU8, {kExperts, 2 * kWidth, 1, 16});
  auto scales = store.create("model.layers.0.both_scales", DType::kU8, {kExperts, 2 * kWidth, 1});
  ASSERT_OK(blocks);
  ASSERT_OK(scales);
  for (std::size_t i = 0; i < blocks->size(); ++i)
    (*blocks)[i] = static_cast<std::byte>((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
  for (std::size_t i = 0; i < scales->size(); ++i) (*scales)[i] = static_cast<std::byte>(127 + i % 2);
  ASSERT_OK(restore_experts(one_layer(), names(true), store));
  ASSERT_NE(store.find("model.layers.0.gate"), nullptr);
  EXPECT_EQ(store.find("model.layers.0.gate")->dtype, DType::kMXFP4);
  const std::vector<float> gate = values_of(store, "model.layers.0.gate"),
                           up = values_of(store, "model.layers.0.up");
  const float levels[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::size_t i = 0; i < kHidden; ++i) {
    const float level = (i % 16 < 8 ? 1.0f : -1.0f) * levels[i % 8];
    EXPECT_EQ(gate[i], level) << i;
    EXPECT_EQ(up[i], 2 * level) << i;
  }
  EXPECT_EQ(store.find("model.layers.0.both_scales"), nullptr);
}

TEST(ExpertFiles, ShapesThatContradictAreNamed) {
  TensorStore store = columns();
  ModelSpec spec = one_layer();
  spec.layers[0].ffn.experts = 3;
  EXPECT_ERROR(restore_experts(spec, names(true), store), "model.layers.0.both", "2 x 32 x 4", "3 x 32 x 4");
  TensorStore half;
  ASSERT_OK(half.create("model.layers.0.both_blocks", DType::kU8, {kExperts, 2 * kWidth, 1, 16}));
  EXPECT_ERROR(restore_experts(one_layer(), names(true), half), "model.layers.0.both_scales");
}

}  // namespace
}  // namespace doppler
