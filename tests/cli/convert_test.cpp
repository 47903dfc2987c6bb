// doppler convert as a user runs it: reports, refusals, signals, full disks.
#include "base/json.h"
#include "cli/program.h"

#include <set>

namespace doppler::testing {
namespace {

namespace fs = std::filesystem;

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(ConvertCommand, ReportsEachTensorAndTheWhole) {
  const TempDir dir;
  const std::string out = dir / "llama.gguf";
  const Outcome told = doppler({"convert", model_path("llama"), "-o", out, "--type", "q4_0", "--json"});
  ASSERT_EQ(told.status, 0) << told.err;
  const Json report = told.json();
  ASSERT_TRUE(report.is_object()) << told.out;
  EXPECT_EQ(report["type"], "Q4_0");
  EXPECT_EQ(report["architecture"], "llama");
  EXPECT_EQ(report["file_bytes"], fs::file_size(out));
  EXPECT_EQ(report["tensors"].size(), 30u);
  EXPECT_EQ(report["warnings"].size(), 1u);  // no tokenizer
  std::uint64_t bytes = 0;
  for (const Json& tensor : report["tensors"]) bytes += tensor["bytes"].get<std::uint64_t>();
  EXPECT_EQ(report["tensor_bytes"], bytes);
  EXPECT_GT(report["bits_per_weight"].get<double>(), 4.5);
  EXPECT_LT(report["bits_per_weight"].get<double>(), 6.5);

  const Outcome table = doppler({"convert", model_path("llama"), "-o", out, "--type", "Q4_0"});
  ASSERT_EQ(table.status, 0) << table.err;
  for (const char* part : {"blk.2.attn_v.weight", "Q4_0", "because", "because"})
    EXPECT_NE(table.out.find(part), std::string::npos) << part;
  EXPECT_NE(table.err.find("bits a weight"), std::string::npos) << table.err;
  // And the file runs.
  const Outcome run = doppler({"run", out, "--prompt-ids", "2,5,9", "--max-tokens", "3", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(ConvertCommand, ListsWhatItWrites) {
  const Outcome list = doppler({"convert", "--list"});
  ASSERT_EQ(list.status, 0) << list.err;
  for (const char* part : {"Q4_K_M", "BF16", "MXFP4", "bits a weight", "norms"})
    EXPECT_NE(list.out.find(part), std::string::npos) << part;
  EXPECT_GE(doppler({"convert", "--list", "--json"}).json()["types"].size(), 15u);
}

TEST(ConvertCommand, RefusesWhatMakesNoSense) {
  const TempDir dir;
  const std::string out = dir / "out.gguf";
  EXPECT_REFUSAL(doppler({"convert", model_path("llama"), "-o", out, "--type", "Q4_Z"}), 2, "no type Q4_Z");
  EXPECT_REFUSAL(doppler({"convert", model_path("llama")}), 2, "no output");
  EXPECT_REFUSAL(doppler({"convert", "-o", out}), 2, "no model");
  EXPECT_REFUSAL(doppler({"convert", dir / "missing", "-o", out}), 3, "missing");
  EXPECT_EQ(files_in(dir.path()), std::set<std::string>());
}

TEST(ConvertCommand, AFullDiskLeavesNothing) {
  const TempDir dir;
  const std::string out = dir / "out.gguf";
  Program program({"convert", model_path("llama"), "-o", out, "--type", "F32"}, "", 256 << 10);
  const Outcome outcome = program.wait();
  EXPECT_REFUSAL(outcome, 3, "cannot be written", "out.gguf");
  EXPECT_EQ(files_in(dir.path()), std::set<std::string>());
}

// A model that takes long enough to be interrupted: a hundred million weights, by doppler synth.
class Interrupted : public ::testing::TestWithParam<int> {};

TEST_P(Interrupted, LeavesNothing) {
  const TempDir dir;
  ASSERT_EQ(doppler({"synth", "llama3.2-1b", dir / "in.gguf", "--type", "Q8_0", "--layers", "1", "--vocab",
                     "32000", "--json"})
                .status,
            0);
  Program program({"convert", dir / "in.gguf", "-o", dir / "out.gguf", "--type", "Q3_K_M"});
  // Started for good: its partial file is there.
  program.wait_until([&] { return files_in(dir.path()).size() >= 2; });
  program.signal(GetParam());
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 128 + GetParam()) << outcome.err;
  EXPECT_NE(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  EXPECT_EQ(files_in(dir.path()), std::set<std::string>{"in.gguf"});
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace doppler::testing
