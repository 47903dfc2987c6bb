// What doppler bench measures, and how it reports it. Times are never judged here: only what must hold of
// them.
#include "bench/measure.h"

#include "base/json.h"
#include "bench/report.h"
#include "testing.h"

namespace doppler::bench {
namespace {

const BenchOptions kSmall{.prefill = 8,
                          .decode = 2,
                          .depths = {0, 20},
                          .sequences = {1, 3},
                          .repetitions = 3,
                          .warm_up = 1,
                          .loads = 2,
                          .ops = true,
                          .yardstick_bytes = 1 << 20};

Result<BenchResult> measured(const std::string& model) {
  LoadOptions load;
  load.backend = "cpu";
  load.threads = 1;
  return run_bench(testing::data_path("models/" + model), load, kSmall, {});
}

TEST(Bench, JsonHoldsEveryFigure) {
  ASSERT_OK_AND_ASSIGN(const BenchResult result, measured("gemma3"));
  const Json json = to_json(result);
  for (const char* key :
       {"backend_choice", "device", "model", "date", "cpu", "backend", "threads", "kv_type", "load_seconds",
        "time_to_first_token", "prefill", "decode", "read_bandwidth", "memory", "ops"})
    EXPECT_TRUE(json.contains(key)) << key;
  ASSERT_EQ(json["decode"].size(), 3u);  // depths 0 and 20, and three sequences
  EXPECT_EQ(json["decode"][1]["depth"], 20);
  EXPECT_EQ(json["decode"][2]["sequences"], 3);
  for (const Json& line : json["decode"]) {
    EXPECT_EQ(line["tokens_per_second"]["count"], 3);
    EXPECT_GT(line["tokens_per_second"]["low"], 0);
    EXPECT_GT(line["step_bytes"], 0);
    EXPECT_GT(line["share_of_limit"], 0);
  }
  EXPECT_EQ(json["load_seconds"]["count"], 2);
  EXPECT_GE(json["memory"]["peak_bytes"], json["memory"]["file_bytes"].get<std::uint64_t>() / 2);
}

TEST(Bench, OpsOfAStepCoverThePlanAndItsBytes) {
  ASSERT_OK_AND_ASSIGN(const BenchResult result, measured("llama"));
  ASSERT_EQ(result.ops.size(), 4u);  // three kinds of decoding, and the prompt
  const OpTable& decode = result.ops.front();
  EXPECT_EQ(decode.phase, "decode @0");
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool has_attention = false;
  for (const OpRow& row : decode.rows) {
    bytes += row.bytes;
    seconds += row.seconds;
    has_attention |= row.name == "attention attn_out";
  }
  EXPECT_TRUE(has_attention);
  EXPECT_NEAR(seconds, decode.seconds, 1e-9);
  // Eight steps at positions 1 to 8: each reads what step_bytes says of its position.
  EXPECT_NEAR(static_cast<double>(bytes) / 8, static_cast<double>(result.decode[0].step_bytes),
              0.05 * static_cast<double>(bytes) / 8);
}

TEST(Bench, DeeperStepsReadMoreCache) {
  ASSERT_OK_AND_ASSIGN(const BenchResult result, measured("llama"));
  EXPECT_GT(result.decode[1].step_bytes, result.decode[0].step_bytes);
}

TEST(Bench, TextNamesWhatIsMeasured) {
  ASSERT_OK_AND_ASSIGN(const BenchResult result, measured("llama"));
  const std::string text = to_text(result, 400);
  for (const char* part : {"prefill 8, tok/s", "decode @0, tok/s", "decode @20, tok/s",
                           "decode of 3 sequences", "plain read loop, GB/s", "peak memory", "by op"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Bench, ADeviceIsNamedItsWorkCountedAndItsOwnMemoryTheYardstick) {
  BenchResult result{.backend = "gpu", .device = DeviceInfo{"Shiny", "discrete", "Vulkan", "Acme 1.2"}};
  DecodeResult line{.depth = 7, .drawn = true, .share = 0.5, .submit_tokens = 8};
  line.tokens = 16;
  line.counters = DeviceCounters{.submits = 2, .dispatches = 320, .read_backs = 2, .read_back_bytes = 64};
  result.decode.push_back(line);
  const std::string text = to_text(result, 400);
  for (const char* part :
       {"discrete adapter Shiny (Vulkan, driver Acme 1.2)", "50.0% of the device's read bandwidth",
        "0.125 submits, 20.0 dispatches", "0.125 read-backs (4.0 B)", "8 tokens a submission",
        "device reads its memory", "drawn @7, tok/s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("plain loop"), std::string::npos);
  const Json json = to_json(result);
  EXPECT_EQ(json["device"]["driver"], "Acme 1.2");
  EXPECT_EQ(json["decode"][0]["counters"]["dispatches"], 320);
  EXPECT_EQ(json["decode"][0]["submit_tokens"], 8);
  EXPECT_EQ(json["decode"][0]["drawn"], true);
}

TEST(Bench, NothingToMeasureIsAWrongUsage) {
  BenchOptions options = kSmall;
  options.repetitions = 0;
  EXPECT_ERROR(run_bench(testing::data_path("models/llama"), {}, options, {}), "at least one token");
}

TEST(Bench, WhoIsFedDrawsNothing) {
  BenchOptions options = kSmall;
  options.drawn = true;
  EXPECT_ERROR(run_bench(testing::data_path("models/llama"), {.backend = "cpu"}, options, {}),
               "The cpu backend does not generate", "--drawn");
}

}  // namespace
}  // namespace doppler::bench
