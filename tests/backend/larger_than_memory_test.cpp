// A model larger than memory stays in its file, and a line says how much of it a token reads.
#include "backend/cpu/larger_than_memory.h"

#include "base/text.h"
#include "harness.h"

namespace doppler {
namespace {

using cpu::larger_than_memory;
using cpu::weight_bytes;

cpu::WeightBytes bytes_of(const char* model) {
  const auto loaded = load_model(testing::data_path("models") / model);
  EXPECT_TRUE(loaded.has_value());
  const auto plan = build_plan(loaded->spec, loaded->weights, 64);
  EXPECT_TRUE(plan.has_value());
  return weight_bytes(*plan, loaded->weights);
}

TEST(LargerThanMemory, ATokenReadsTheExpertsThatAreChosen) {
  const cpu::WeightBytes dense = bytes_of("llama"), experts = bytes_of("gpt_oss");
  // All but the other rows of the table.
  EXPECT_GT(dense.per_token * 10, dense.all * 8);
  EXPECT_LT(dense.per_token, dense.all);
  EXPECT_LT(experts.per_token * 10, experts.all * 9);
}

TEST(LargerThanMemory, IsSaidWhereTheWeightsDoNotFit) {
  const cpu::WeightBytes bytes{.all = 60'000'000'000, .per_token = 3'000'000'000};
  EXPECT_FALSE(larger_than_memory(bytes, true, 60'000'000'000));
  const auto said = larger_than_memory(bytes, true, 30'000'000'000);
  ASSERT_TRUE(said.has_value());
  EXPECT_NE(said->what.find("read from the pages of their file, and their rows become floats"),
            std::string::npos);
  EXPECT_NE(said->why.find("a token reads " + human_bytes(bytes.per_token)), std::string::npos) << said->why;
  EXPECT_EQ(larger_than_memory(bytes, false, 0)->what.find("floats"), std::string::npos);
}

}  // namespace
}  // namespace doppler
