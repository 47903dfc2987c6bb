// Whether a measured model says what it should.
#include "bench/quality.h"

#include "backend/fault.h"
#include "base/json.h"
#include "testing.h"

namespace doppler::bench {
namespace {

Result<Loaded> demo(const char* backend) {
  return load_all(testing::source_path("demo"), {.backend = backend, .context = 512});
}

TEST(Quality, TheDemoIsWell) {
  ASSERT_OK_AND_ASSIGN(Loaded loaded, demo("cpu"));
  ASSERT_OK_AND_ASSIGN(const Quality quality, measure_quality(loaded));
  EXPECT_TRUE(quality.ok()) << quality.why;
  EXPECT_EQ(quality.ids.size(), 16u);
  EXPECT_GT(quality.tokens, 50u);
  EXPECT_EQ(to_json(quality)["ok"], true);
}

// The logits of single tokens are turned round, as a kernel for them would that nobody compared with the
// prompt's.
class TurnsSingleTokens final : public Fault {
 public:
  bool wants(const Plan& plan, ValueId value) const override { return value == plan.ops.back().outputs[0]; }
  bool after(const Computed& computed) override {
    if (computed.step.size() > 1) return false;
    for (float& logit : computed.data) logit = -logit;
    return true;
  }
};

TEST(Quality, SingleTokensThatDifferFromThePromptAreFound) {
  ASSERT_OK_AND_ASSIGN(Loaded loaded, demo("cpu"));
  TurnsSingleTokens fault;
  BackendOptions options = loaded.backend->options();
  options.fault = &fault;
  ASSERT_OK_AND_ASSIGN(loaded.backend,
                       make_backend("cpu", loaded.model->spec, loaded.model->weights, options));
  ASSERT_OK_AND_ASSIGN(const Quality quality, measure_quality(loaded));
  EXPECT_FALSE(quality.ok());
  EXPECT_NE(quality.why.find("read as a prompt would not"), std::string::npos) << quality.why;
  EXPECT_NE(to_text(quality).find("ANSWERS ARE WRONG"), std::string::npos);
}

TEST(Quality, WithoutATokenizerNothingIsSaid) {
  ASSERT_OK_AND_ASSIGN(Loaded loaded, load_all(testing::data_path("models/llama"), {.backend = "cpu"}));
  ASSERT_OK_AND_ASSIGN(const Quality quality, measure_quality(loaded));
  EXPECT_FALSE(quality.measured());
  EXPECT_TRUE(to_json(quality)["ok"].is_null());
  EXPECT_NE(to_text(quality).find("the model has no tokenizer"), std::string::npos);
}

}  // namespace
}  // namespace doppler::bench
