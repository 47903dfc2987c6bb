// The commands on a GPU, or on a software adapter where there is none.
#include <algorithm>

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
  const std::string library = outcome.json()["library"].get<std::string>();
  EXPECT_TRUE(library.starts_with("wgpu-native ") || library.ends_with(" with tensor cores")) << library;
  DOPPLER_NEEDS_ADAPTER();
  const Json& adapter = adapters()[0];
  EXPECT_FALSE(adapter["name"].get<std::string>().empty());
  EXPECT_FALSE(adapter["driver"].get<std::string>().starts_with(" "));
  EXPECT_TRUE(adapter["problem"].is_null()) << adapter["problem"];
  // What WebGPU guarantees.
  EXPECT_GE(adapter["limits"]["binding_bytes"], 128 << 20);
  EXPECT_GE(adapter["limits"]["storage_buffers"], 8);
  EXPECT_GE(adapter["features"]["subgroup_size"], 1);
  EXPECT_TRUE(adapter["features"]["fma_rounds_once"].is_boolean());
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

// Options that no device samples with: every token is chosen on the CPU, and everybody says so.
TEST(GpuCommands, WhatMakesThemSlowerIsSaid) {
  DOPPLER_NEEDS_ADAPTER();
  const auto says = [](const Json& fallbacks, const char* what) {
    return std::ranges::any_of(fallbacks, [&](const Json& fallback) {
      return fallback["what"].get<std::string>().find(what) != std::string::npos &&
             !fallback["why"].get<std::string>().empty();
    });
  };
  constexpr const char* kSampling = "chosen on the CPU";
  const Outcome run =
      doppler({"run", model_path("llama"), "--backend", "gpu", "--prompt-ids", "2,5,9", "--max-tokens", "3",
               "--ignore-eos", "--temperature", "0.7", "--penalty-window", "20000000", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(says(run.json()["fallbacks"], kSampling)) << run.out;
  const std::size_t said = run.err.find(kSampling);
  EXPECT_NE(said, std::string::npos) << run.err;
  EXPECT_EQ(run.err.find(kSampling, said + 1), std::string::npos) << "once is enough: " << run.err;

  // What holds of the adapter is said of every command.
  const bool software = adapters()[0]["kind"] == "software";
  constexpr const char* kSoftware = "without a GPU";
  EXPECT_EQ(says(run.json()["fallbacks"], kSoftware), software);
  const Outcome inspect = doppler({"inspect", model_path("llama"), "--gpu", "--json"});
  EXPECT_EQ(says(inspect.json()["fallbacks"], kSoftware), software) << inspect.out;
  const Outcome doctor =
      doppler({"doctor", model_path("llama"), "--backend", "gpu", "--check", "fallbacks", "--json"});
  EXPECT_EQ(doctor.status, 0) << "slower is not wrong: " << doctor.err;
  EXPECT_EQ(says(doctor.json()["fallbacks"], kSoftware), software) << doctor.out;
  const TempDir dir;
  const std::string recording = (dir / "run.safetensors").string();
  const std::vector<std::vector<std::string>> others = {
      {"record", model_path("llama"), "--prompt-ids", "2,5,9", "--steps", "1", "-o", recording},
      {"debug", model_path("llama"), "--prompt-ids", "2,5,9"},
      {"compare", model_path("llama"), "--reference", recording},
      {"bench", "kernels", model_path("llama"), "--depth", "4"}};
  for (std::vector<std::string> command : others) {
    command.insert(command.end(), {"--backend", "gpu", "--json"});
    const Outcome outcome = doppler(command);
    const Json json = outcome.json();
    ASSERT_TRUE(json.contains("fallbacks")) << command[0] << ": " << outcome.out << outcome.err;
    EXPECT_EQ(says(json["fallbacks"], kSoftware), software) << command[0];
  }
  const std::string row = doctor.json()["checks"][0]["text"].get<std::string>();
  EXPECT_EQ(row.find("slower than it could be") != std::string::npos, software) << row;
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
  EXPECT_EQ(json["fallbacks"].empty(), adapters()[0]["kind"] != "software") << json["fallbacks"];
  EXPECT_EQ(decode["tokens"], 24);
  if (decode["submit_tokens"] == 0) GTEST_SKIP() << "this adapter does not generate by itself";
  EXPECT_EQ(decode["submit_tokens"], 4);
  EXPECT_EQ(counters["submits"], 12);  // 3 repetitions of 8 tokens: 1, 2, 4, and what is left
  EXPECT_EQ(counters["read_backs"], 12);
  EXPECT_EQ(counters["read_back_bytes"], 24 * 4);  // an id each
  // As many for each token, whose last one embeds the next; the first of a repetition is embedded by itself.
  EXPECT_EQ((counters["dispatches"].get<int>() - 3) % 24, 0);
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
