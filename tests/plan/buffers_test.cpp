// Buffers are shared by values that are not alive together, and only by those.
#include "plan/buffers.h"

#include "model/family.h"
#include "plan/fuse.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;

class Buffers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path("models") / GetParam()));
    ASSERT_OK_AND_ASSIGN(plan_, build_plan(model_.spec, model_.weights, 64));
    constexpr std::string_view kPasses[] = {"gated_ffn", "group_matmuls"};
    ASSERT_OK(fuse_plan(plan_, model_.weights, kPasses, {}));
  }
  Model model_;
  Plan plan_;
};

TEST_P(Buffers, HoldWhatWasWrittenUntilItIsRead) {
  const BufferPlan buffers = plan_buffers(plan_);
  // Plays the plan: each float of an arena remembers which value wrote it last.
  std::array<std::vector<ValueId>, 2> owner;
  for (std::size_t i = 0; i < 2; ++i) owner[i].assign(buffers.extents[i], ValueId{0} - 1);
  const auto owns = [&](ValueId id) {
    const auto& memory = owner[static_cast<std::size_t>(plan_.values[id].rows)];
    for (std::uint32_t i = 0; i < plan_.values[id].width; ++i) {
      if (memory[buffers.offsets[id] + i] != id) return false;
    }
    return true;
  };
  for (const Op& op : plan_.ops) {
    for (const ValueId id : op.inputs) EXPECT_TRUE(owns(id)) << value_name(plan_, id);
    for (const ValueId id : op.outputs) {
      auto& memory = owner[static_cast<std::size_t>(plan_.values[id].rows)];
      ASSERT_LE(buffers.offsets[id] + plan_.values[id].width, memory.size());
      EXPECT_EQ(buffers.offsets[id] % 16, 0u);
      for (std::uint32_t i = 0; i < plan_.values[id].width; ++i) memory[buffers.offsets[id] + i] = id;
    }
    // Taps see every output after the op.
    for (const ValueId id : op.outputs) EXPECT_TRUE(owns(id)) << value_name(plan_, id);
    // A matmul and attention read all of an input while they write: they must not write over it.
    if (op.kind == OpKind::kMatmul || op.kind == OpKind::kGatedMatmul || op.kind == OpKind::kAttention) {
      for (const ValueId id : op.inputs) EXPECT_TRUE(owns(id)) << value_name(plan_, id);
    }
  }
  EXPECT_TRUE(owns(plan_.logits));
}

TEST_P(Buffers, DoNotGrowWithTheNumberOfLayers) {
  std::uint64_t all = 0, widest_layer = 0;
  std::vector<std::uint64_t> by_layer(plan_.kv_layers.size());
  for (const Value& value : plan_.values) {
    if (value.rows != Rows::kAll) continue;
    all += value.width;
    if (value.layer >= 0) by_layer[static_cast<std::size_t>(value.layer)] += value.width;
  }
  widest_layer = *std::max_element(by_layer.begin(), by_layer.end());
  EXPECT_LT(plan_buffers(plan_).extent(Rows::kAll), widest_layer);
  EXPECT_LT(plan_buffers(plan_).extent(Rows::kAll) * 3, all);
}

INSTANTIATE_TEST_SUITE_P(Dense, Buffers,
                         ::testing::Values("llama", "qwen3", "phi3", "gemma2", "gemma3", "gemma3_k288"),
                         testing::named_by_param);

}  // namespace
}  // namespace doppler
