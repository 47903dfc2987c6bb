// The commands on a GPU, or on a software adapter where there is none.
#include "base/json.h"
#include "cli/program.h"

namespace doppler::testing {
namespace {

// The adapters that the program itself finds.
const Json& adapters() {
  static const Json found = doppler({"inspect", "--gpu", "--json"}).json()["adapters"];
  return found;
}

#define DOPPLER_NEEDS_ADAPTER() \
  if (adapters().empty()) GTEST_SKIP() << "no GPU adapter, not even a software one"

std::vector<std::string> story(std::vector<std::string> more) {
  std::vector<std::string> all = {"run",
                                  source_path("demo").string(),
                                  "Tell me a story about a robot and a kite.",
                                  "--max-tokens",
                                  "40",
                                  "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(GpuCommands, InspectListsAdaptersWithWhatTheyOffer) {
  const Outcome outcome = doppler({"inspect", "--gpu", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(outcome.json()["library"].get<std::string>().starts_with("wgpu-native ")) << outcome.out;
  DOPPLER_NEEDS_ADAPTER();
  const Json& adapter = adapters()[0];
  EXPECT_FALSE(adapter["name"].get<std::string>().empty());
  EXPECT_FALSE(adapter["driver"].get<std::string>().starts_with(" "));
  EXPECT_TRUE(adapter["problem"].is_null()) << adapter["problem"];
  // What WebGPU guarantees.
  EXPECT_GE(adapter["limits"]["binding_bytes"], 128 << 20);
  EXPECT_GE(adapter["limits"]["storage_buffers"], 8);
  EXPECT_GE(adapter["features"]["subgroup_size"], 1);
  EXPECT_NE(doppler({"inspect", "--gpu"}).out.find(adapter["name"].get<std::string>()), std::string::npos);
}

TEST(GpuCommands, InspectTellsWhichKernelsAModelTakesAndWhy) {
  DOPPLER_NEEDS_ADAPTER();
  const Outcome outcome = doppler({"inspect", model_path("gemma3"), "--gpu", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  bool attends = false, multiplies = false;
  const Json variants = outcome.json()["variants"];
  for (const Json& row : variants) {
    EXPECT_FALSE(row["why"].get<std::string>().empty()) << row;
    attends = attends || row["variant"].get<std::string>().starts_with("attention");
    multiplies = multiplies || row["why"] == "weights are bf16, activations stay floats";
  }
  EXPECT_TRUE(attends && multiplies) << outcome.out;
}

TEST(GpuCommands, TheSameStoryForAnyNumberOfTokensInASubmission) {
  DOPPLER_NEEDS_ADAPTER();
  const Json cpu = doppler(story({"--backend", "cpu"})).json();
  for (const char* tokens : {"1", "4", "16"}) {
    const Outcome outcome = doppler(story({"--backend", "gpu", "--submit-tokens", tokens}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["ids"], cpu["ids"]) << tokens;
    EXPECT_EQ(outcome.json()["text"], cpu["text"]) << tokens;
    EXPECT_TRUE(outcome.err.starts_with("gpu: " + adapters()[0]["name"].get<std::string>())) << outcome.err;
  }
}

TEST(GpuCommands, ADesktoplessMachineIsNoReasonToComplain) {
  DOPPLER_NEEDS_ADAPTER();
  const Environment no_desktop("XDG_RUNTIME_DIR", nullptr), no_choice("NODEVICE_SELECT", nullptr);
  const Outcome outcome = doppler({"inspect", "--gpu"});
  EXPECT_EQ(outcome.err, "");
}

TEST(GpuCommands, CheckedAndPoisonedKernelsSayTheSame) {
  DOPPLER_NEEDS_ADAPTER();
  const auto ids = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"run", model_path("llama"), "--prompt-ids", "2,9,41",    "--max-tokens",
                                    "8",   "--ignore-eos",      "--json",       "--backend", "gpu"};
    all.insert(all.end(), more.begin(), more.end());
    return doppler(all).json()["ids"];
  };
  const Json plain = ids({});
  EXPECT_EQ(plain.size(), 8u);
  EXPECT_EQ(ids({"--gpu-checked", "--gpu-poison"}), plain);
}

TEST(GpuCommands, BenchCountsWhatTheDeviceWasAskedFor) {
  DOPPLER_NEEDS_ADAPTER();
  const Outcome outcome =
      doppler({"bench", model_path("llama"), "--backend", "gpu", "--submit-tokens", "4", "--json",
               "--prefill", "8", "--decode", "8", "--depths", "0", "--repetitions", "3", "--loads", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = outcome.json(), decode = json["decode"][0], counters = decode["counters"];
  EXPECT_EQ(json["device"]["name"], adapters()[0]["name"]);
  EXPECT_GT(json["read_bandwidth"]["median"], 0);
  EXPECT_EQ(decode["tokens"], 24);
  if (decode["submit_tokens"] == 0) GTEST_SKIP() << "this adapter does not generate by itself";
  EXPECT_EQ(decode["submit_tokens"], 4);
  EXPECT_EQ(counters["submits"], 6);  // 3 repetitions of 8 tokens, 4 at a time
  EXPECT_EQ(counters["read_backs"], 6);
  EXPECT_EQ(counters["read_back_bytes"], 24 * 4);  // an id each
  EXPECT_EQ(counters["dispatches"].get<int>() % 24, 0);
}

TEST(GpuCommands, BenchKernelsTimesEachOfThem) {
  DOPPLER_NEEDS_ADAPTER();
  const Outcome outcome =
      doppler({"bench", "kernels", model_path("llama"), "--backend", "gpu", "--depth", "5", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  double share = 0;
  std::uint64_t bytes = 0;
  const Json kernels = outcome.json()["kernels"];
  for (const Json& row : kernels) {
    EXPECT_GT(row["seconds"], 0) << row;
    share += row["share"].get<double>();
    bytes += row["bytes"].get<std::uint64_t>();
  }
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(outcome.json()["depth"], 5);
  EXPECT_REFUSAL(doppler({"bench", "kernels", model_path("llama"), "--backend", "cpu"}), 3, "no kernels",
                 "--backend gpu");
}

}  // namespace
}  // namespace doppler::testing
