// Mixes choose what llama.cpp's quantiser chooses: the cases are what its own files hold.
#include "convert/mix.h"

#include "testing.h"

namespace doppler::convert {
namespace {

DType type_of(std::string_view mix, const MixModel& model, std::string_view name, const Shape& shape) {
  const Result<const Mix*> found = find_mix(mix);
  EXPECT_TRUE(found.has_value());
  return choose_type(**found, model, name, shape).type;
}

constexpr MixModel kLlama{.layers = 2, .heads_per_kv_head = 2, .experts = 0, .tied_head = false};
constexpr MixModel kGemma{.layers = 2, .heads_per_kv_head = 4, .experts = 0, .tied_head = true};

TEST(Mix, SmallLlamaInQ4KM) {
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "output.weight", {256, 256}), DType::kQ6_K);
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "token_embd.weight", {256, 256}), DType::kQ4_K);
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "blk.0.attn_v.weight", {128, 256}), DType::kQ4_K);
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "blk.1.attn_v.weight", {128, 256}), DType::kQ6_K);
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "blk.0.ffn_down.weight", {256, 512}), DType::kQ4_K);
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "blk.1.ffn_down.weight", {256, 512}), DType::kQ6_K);
  EXPECT_EQ(type_of("Q4_K_M", kLlama, "blk.1.attn_output.weight", {256, 256}), DType::kQ4_K);
}

TEST(Mix, SmallLlamaInQ2K) {
  EXPECT_EQ(type_of("Q2_K", kLlama, "output.weight", {256, 256}), DType::kQ6_K);
  EXPECT_EQ(type_of("Q2_K", kLlama, "token_embd.weight", {256, 256}), DType::kQ2_K);
  EXPECT_EQ(type_of("Q2_K", kLlama, "blk.0.attn_output.weight", {256, 256}), DType::kQ3_K);
  EXPECT_EQ(type_of("Q2_K", kLlama, "blk.0.attn_v.weight", {128, 256}), DType::kQ3_K);
  EXPECT_EQ(type_of("Q2_K", kLlama, "blk.0.ffn_down.weight", {256, 512}), DType::kQ3_K);
  EXPECT_EQ(type_of("Q2_K", kLlama, "blk.0.ffn_up.weight", {512, 256}), DType::kQ2_K);
}

TEST(Mix, RowsThatAreNoMultipleOf256GetBlocksOf32) {
  EXPECT_EQ(type_of("Q4_K_M", kGemma, "token_embd.weight", {256, 288}), DType::kQ8_0);  // Q6_K as the head
  EXPECT_EQ(type_of("Q4_K_M", kGemma, "blk.0.attn_v.weight", {32, 288}), DType::kQ5_0);
  EXPECT_EQ(type_of("Q4_K_M", kGemma, "blk.1.attn_v.weight", {32, 288}), DType::kQ8_0);
  EXPECT_EQ(type_of("Q4_K_M", kGemma, "blk.0.attn_output.weight", {288, 128}), DType::kQ5_0);
  EXPECT_EQ(type_of("Q4_0", kGemma, "token_embd.weight", {256, 288}), DType::kQ8_0);
  EXPECT_EQ(type_of("Q4_0", kGemma, "blk.0.ffn_down.weight", {288, 320}), DType::kQ4_0);
  EXPECT_EQ(type_of("Q2_K", kGemma, "blk.0.ffn_up.weight", {320, 288}), DType::kIQ4_NL);
  EXPECT_EQ(type_of("Q5_K_S", kGemma, "blk.0.ffn_up.weight", {320, 288}), DType::kQ5_1);
}

TEST(Mix, RowsThatNoBlockFitsBecomeF16) {
  EXPECT_EQ(type_of("Q4_0", kLlama, "blk.0.ffn_up.weight", {64, 40}), DType::kF16);
  EXPECT_EQ(type_of("Q6_K", kLlama, "blk.0.ffn_up.weight", {64, 40}), DType::kF16);
}

TEST(Mix, MoreBitsForTheFirstAndLastEighthAndEveryThirdLayerBetween) {
  const MixModel model{.layers = 26, .heads_per_kv_head = 4, .experts = 0, .tied_head = true};
  std::string six;
  for (int layer = 0; layer < 26; ++layer) {
    const std::string name = "blk." + std::to_string(layer) + ".ffn_down.weight";
    six += type_of("Q4_K_M", model, name, {1152, 6912}) == DType::kQ6_K ? '6' : '4';
  }
  EXPECT_EQ(six, "66644644644644644644646666");
}

TEST(Mix, VectorsNormsBiasesAndRoutersStayF32) {
  for (const Mix& mix : all_mixes()) {
    EXPECT_EQ(choose_type(mix, kLlama, "blk.0.attn_norm.weight", {256}).type, DType::kF32) << mix.name;
    EXPECT_EQ(choose_type(mix, kLlama, "blk.0.attn_q.bias", {256}).type, DType::kF32) << mix.name;
    EXPECT_EQ(choose_type(mix, kLlama, "blk.0.ffn_gate_exps.bias", {8, 256}).type, DType::kF32) << mix.name;
    EXPECT_EQ(choose_type(mix, kLlama, "blk.0.ffn_gate_inp.weight", {8, 256}).type, DType::kF32) << mix.name;
    EXPECT_EQ(choose_type(mix, kLlama, "rope_freqs.weight", {32}).type, DType::kF32) << mix.name;
  }
}

TEST(Mix, Mxfp4ForExpertsOnlyOrForEverything) {
  EXPECT_EQ(type_of("MXFP4_MOE", kLlama, "blk.0.ffn_up_exps.weight", {8, 64, 64}), DType::kMXFP4);
  EXPECT_EQ(type_of("MXFP4_MOE", kLlama, "blk.0.ffn_down_exps.weight", {8, 64, 64}), DType::kMXFP4);
  EXPECT_EQ(type_of("MXFP4_MOE", kLlama, "blk.0.attn_q.weight", {64, 64}), DType::kQ8_0);
  EXPECT_EQ(type_of("MXFP4", kLlama, "blk.0.attn_q.weight", {64, 64}), DType::kMXFP4);
  EXPECT_EQ(type_of("MXFP4", kLlama, "output.weight", {64, 64}), DType::kQ8_0);
}

TEST(Mix, AttentionOfEightExpertsKeepsEightBits) {
  const MixModel mixtral{.layers = 32, .heads_per_kv_head = 4, .experts = 8, .tied_head = false};
  EXPECT_EQ(type_of("Q4_K_M", mixtral, "blk.9.attn_v.weight", {1024, 4096}), DType::kQ8_0);
  EXPECT_EQ(type_of("Q4_K_M", mixtral, "blk.9.attn_k.weight", {1024, 4096}), DType::kQ8_0);
  EXPECT_EQ(type_of("Q4_K_M", mixtral, "blk.9.attn_output.weight", {4096, 4096}), DType::kQ5_K);
}

TEST(Mix, EveryRowSaysWhy) {
  for (const Mix& mix : all_mixes()) {
    for (const MixRule& rule : mix.rules) EXPECT_FALSE(rule.reason.empty()) << mix.name;
  }
}

TEST(Mix, NamesAreFoundInAnyCaseAndUnknownOnesGetAHint) {
  ASSERT_OK_AND_ASSIGN(const Mix* lower, find_mix("q4_k_m"));
  EXPECT_EQ(lower->name, "Q4_K_M");
  ASSERT_OK_AND_ASSIGN(const Mix* alias, find_mix("Q5_K"));
  EXPECT_EQ(alias->name, "Q5_K_M");
  EXPECT_ERROR(find_mix("Q4_K_X"), "There is no type Q4_K_X", "Did you mean Q4_K_");
  EXPECT_ERROR(find_mix("zzz"), "Types are F32", "MXFP4");
}

}  // namespace
}  // namespace doppler::convert
