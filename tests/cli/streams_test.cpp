// Streams that break: every command with each of its three streams closed, full and cut. Nothing that a pipe
// does ends the program otherwise than its own status says.
#include <algorithm>
#include <array>

#include "cli/program.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::model_path;
using testing::Outcome;
using testing::source_path;
using testing::TempDir;

constexpr int kCutStatus = 128 + SIGPIPE;  // as head leaves it

// How the caller hands over a stream that is no good.
enum class Broken {
  kClosed,
  kFull,  // for input: a device that never ends
  kCut,   // a pipe whose other end is closed
};

// Runs the command with one stream broken and the others healthy.
Outcome run_broken(const std::vector<std::string>& arguments, int stream, Broken how) {
  int pipe_ends[2] = {-1, -1};
  testing::Streams streams;
  switch (how) {
    case Broken::kClosed:
      streams.close = {stream};
      break;
    case Broken::kFull:
      streams.open[stream] = stream == 0 ? "/dev/zero" : "/dev/full";
      break;
    case Broken::kCut:
      EXPECT_EQ(pipe(pipe_ends), 0);
      streams.duplicate[stream] = pipe_ends[stream == 0 ? 0 : 1];
      fcntl(pipe_ends[stream == 0 ? 1 : 0], F_SETFD, FD_CLOEXEC);
      close(pipe_ends[stream == 0 ? 1 : 0]);
      break;
  }
  const Outcome outcome = testing::Program(arguments, "", 0, streams).wait();
  if (how == Broken::kCut) close(pipe_ends[stream == 0 ? 0 : 1]);
  return outcome;
}

struct Case {
  std::vector<std::string> arguments;
  bool reads = false;  // takes its text from standard input
  bool timed = false;  // prints times, which differ
};

// A case for every command and for each way in which it prints; what they write is in `folder`.
std::vector<Case> all_cases(const std::filesystem::path& folder) {
  const std::string llama = model_path("llama"), demo = source_path("demo").string();
  const auto in = [&](const char* name) { return (folder / name).string(); };
  const std::vector<std::string> short_bench = {"--prefill",     "2", "--decode",  "2", "--depths", "0",
                                                "--repetitions", "1", "--warm-up", "0", "--loads",  "1"};
  std::vector<Case> cases = {
      {{"--help"}},
      {{"--version"}},
      {{"no-such-command"}},
      {{"run", llama, "--prompt-ids", "2,5", "--max-tokens", "3"}},
      {{"run", demo, "The sky is", "--max-tokens", "3", "--probe", "stage=layer_out,dims=0,tokens=all"}},
      {{"run", llama, "--prompt-ids", "2,5", "--max-tokens", "3", "--json", "--trace", "ffn"},
       false,
       /*timed=*/true},
      {{"run", "no such model", "hello", "--json"}},
      {{"chat", demo, "--json", "--seed", "1"}, /*reads=*/true},
      {{"inspect", llama, "--tensors", "--plan"}},
      {{"tokenize", demo, "The color of the sky is"}},
      {{"tokenize", demo}, /*reads=*/true},
      {{"record", llama, "--prompt-ids", "2,5", "--steps", "1", "-o", in("recorded")}},
      {{"compare", llama, "--with", "reference", "--prompt-ids", "2,5", "--steps", "1"}},
      {{"debug", llama, "--prompt-ids", "2,5", "--max-tokens", "2", "--trace", "ffn"}},
      {{"doctor", llama, "--check", "files"}, false, /*timed=*/true},
      {{"doctor", "--list"}},
      {{"convert", llama, "-o", in("converted.gguf"), "--type", "F16"}},
      {{"convert", "--list"}},
      {{"synth", "gemma3-1b", in("synth.gguf"), "--layers", "1", "--vocab", "64"}},
      {{"config", "explain"}},
      {{"config", "schema"}},
      {{"config", "presets"}},
      {{"completion", "bash"}},
      {{"list"}},
      {{"rm", "org/none", "--yes"}},
      {{"pull", "org/none", "--plan"}},
      {{"test", "kernels", llama, "--backend", "cpu"}},
  };
  cases.push_back({{"bench", llama}, false, /*timed=*/true});
  cases.back().arguments.insert(cases.back().arguments.end(), short_bench.begin(), short_bench.end());
  for (Case& one : cases) {
    // On a machine with a GPU its driver's own threads and files would make each run slower, and its end is
    // not ours.
    constexpr std::array<std::string_view, 7> kRunning = {"run",    "debug", "bench",  "record",
                                                          "doctor", "chat",  "compare"};
    const bool runs =
        std::ranges::find(kRunning, one.arguments[0]) != kRunning.end() && one.arguments.back() != "--list";
    if (runs) one.arguments.insert(one.arguments.end(), {"--backend", "cpu"});
  }
  return cases;
}

// One test a case, so that what fails says its name.
class Streams : public ::testing::TestWithParam<std::size_t> {
 protected:
  const TempDir dir_;
  const testing::Environment offline_{"HF_HUB_OFFLINE", "1"}, home_{"HF_HOME", dir_.path().c_str()};
  const Case case_ = all_cases(dir_.path())[GetParam()];
};

// The command and the number of its case: run_3.
std::string name_of_case(const ::testing::TestParamInfo<std::size_t>& info) {
  std::string name = all_cases("")[info.param].arguments[0] + "_" + std::to_string(info.param);
  std::erase_if(name, [](char c) { return c == '-'; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Commands, Streams, ::testing::Range(std::size_t{0}, all_cases("").size()),
                         name_of_case);

TEST_P(Streams, ABrokenStderrChangesNothingElse) {
  const Outcome healthy = doppler(case_.arguments);
  for (const Broken how : {Broken::kClosed, Broken::kFull, Broken::kCut}) {
    const Outcome broken = run_broken(case_.arguments, 2, how);
    EXPECT_EQ(broken.status, healthy.status) << static_cast<int>(how);
    if (!case_.timed) {
      EXPECT_EQ(broken.out, healthy.out) << static_cast<int>(how);
    }
  }
}

TEST_P(Streams, AStdoutThatTakesNothingIsSaidInASentenceAndOneThatIsCutEndsQuietly) {
  const Outcome healthy = doppler(case_.arguments);
  EXPECT_LE(healthy.status, 3);
  // As if it led to the null device.
  EXPECT_EQ(run_broken(case_.arguments, 1, Broken::kClosed).status, healthy.status);
  const bool prints = !healthy.out.empty();
  const Outcome full = run_broken(case_.arguments, 1, Broken::kFull);
  EXPECT_EQ(full.status, prints && healthy.status == 0 ? 3 : healthy.status) << full.err;
  if (prints && healthy.status == 0) {
    EXPECT_NE(full.err.find("doppler: Standard output cannot be written: "), std::string::npos) << full.err;
  }
  const Outcome cut = run_broken(case_.arguments, 1, Broken::kCut);
  EXPECT_EQ(cut.status, prints ? kCutStatus : healthy.status) << cut.err;
  if (prints && healthy.status == 0) {
    EXPECT_EQ(cut.err.find("doppler:"), std::string::npos) << cut.err;
  }
}

TEST_P(Streams, ABrokenStdinMattersOnlyToThoseThatReadIt) {
  const Outcome healthy = doppler(case_.arguments);
  for (const Broken how : {Broken::kClosed, Broken::kFull, Broken::kCut}) {
    const Outcome broken = run_broken(case_.arguments, 0, how);
    EXPECT_EQ(broken.status, case_.reads && how == Broken::kFull ? 3 : healthy.status) << broken.err;
  }
}

TEST(StreamsOnce, InputThatNeverEndsOrCannotBeReadIsRefused) {
  const std::string demo = source_path("demo").string();
  testing::Streams streams;
  streams.open[0] = "/dev/zero";
  EXPECT_REFUSAL(testing::Program({"run", demo}, "", 0, streams).wait(), 3, "Standard input holds more than");
  EXPECT_REFUSAL(testing::Program({"chat", demo, "--backend", "cpu"}, "", 0, streams).wait(), 3,
                 "A line of standard input holds more than");
  streams.open[0] = "/";
  EXPECT_REFUSAL(testing::Program({"run", demo}, "", 0, streams).wait(), 3, "Standard input cannot be read");
}

TEST(StreamsOnce, BothOutputsOfATraceCutEndQuietly) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  testing::Streams streams;
  streams.duplicate = {{1, ends[1]}, {2, ends[1]}};
  const std::vector<std::string> arguments = {
      "debug", source_path("demo").string(), "--trace", "ffn", "--backend", "cpu"};
  EXPECT_EQ(testing::Program(arguments, "", 0, streams).wait().status, kCutStatus);
  close(ends[1]);
}

// A file that is opened where a standard stream was closed would be written to by whoever prints.
TEST(StreamsOnce, NoFileTakesTheDescriptorOfAClosedStream) {
  const TempDir dir;
  const std::string out = (dir / "out.gguf").string();
  testing::Streams streams;
  streams.close = {0, 1, 2};
  EXPECT_EQ(testing::Program({"convert", model_path("llama"), "-o", out, "--type", "F32"}, "", 0, streams)
                .wait()
                .status,
            0);
  const std::string alone = testing::read_file(out);
  EXPECT_EQ(doppler({"convert", model_path("llama"), "-o", out, "--type", "F32"}).status, 0);
  EXPECT_EQ(testing::read_file(out), alone);
}

// The program reports with --json as one object whatever happens.
TEST(StreamsOnce, AnErrorIsAnObjectToo) {
  const auto error = [](std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Outcome outcome = doppler(arguments);
    EXPECT_TRUE(outcome.err.starts_with("doppler: ")) << outcome.err;
    const Json json = outcome.json();
    EXPECT_TRUE(json.contains("error")) << outcome.out;
    EXPECT_EQ(json["error"]["status"], outcome.status);
    EXPECT_NE(outcome.err.find(json["error"]["message"].get<std::string>()), std::string::npos);
    return json["error"]["code"].get<std::string>();
  };
  EXPECT_EQ(error({"run", "no such model", "hello"}), "not_found");
  EXPECT_EQ(error({"run", model_path("llama"), "--no-such-flag"}), "usage");
  EXPECT_EQ(error({"run", model_path("llama"), "--prompt-ids", "2", "--top-p", "2"}), "usage");
  EXPECT_EQ(error({"inspect", source_path("README.md").string()}), "unsupported");
}

// A generation that runs until it is told to end.
const std::vector<std::string> kEndless = {"run",          source_path("demo").string(),
                                           "--prompt-ids", "2,5",
                                           "--ignore-eos", "--context",
                                           "200000",       "--max-tokens",
                                           "190000",       "--backend",
                                           "cpu"};

class Ended : public ::testing::TestWithParam<int> {};

TEST_P(Ended, AfterASignalTheAnswerIsWholeAndTheStatusNamesTheSignal) {
  testing::Program program(kEndless);
  program.wait_until([&] { return !program.out_so_far().empty(); });
  program.signal(GetParam());
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 128 + GetParam()) << outcome.err;
  EXPECT_TRUE(outcome.out.ends_with('\n'));
  EXPECT_NE(outcome.err.find("stopped by cancelled"), std::string::npos) << outcome.err;
}
INSTANTIATE_TEST_SUITE_P(Signals, Ended, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace doppler
