// What a person sees: lines that fit the terminal, colours, quiet and silent runs, and messages that are
// never glued to the answer.
#include <fcntl.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/layout.h"
#include "cli/program.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::Environment;
using testing::model_path;
using testing::Outcome;
using testing::source_path;
using testing::TempDir;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The letters and digits of a text, word by word; breaking a word in two changes it.
std::multiset<std::string> words_of(const std::string& text) {
  std::multiset<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

// Every command that prints tables or text for people, and whether two runs print the same.
struct Printing {
  std::vector<std::string> arguments;
  bool same = true;
};

std::vector<Printing> all_printing(const TempDir& dir) {
  const std::string llama = model_path("llama"), demo = source_path("demo").string();
  const std::string quantised = (dir / "q.gguf").string();
  return {
      {{"--help"}},
      {{"inspect", demo, "--tensors", "--plan"}},
      {{"tokenize", demo, "The color of the sky is blue, and so is an uncharacteristically long word."}},
      {{"compare", llama, "--with", "reference", "--prompt-ids", "2,5", "--steps", "1", "--backend", "cpu"},
       false},
      {{"compare", llama, "--with", "reference", "--prompt-ids", "2,5", "--steps", "1", "--backend", "cpu",
        "--tolerance", "1e-12"},
       false},
      {{"debug", llama, "--prompt-ids", "2,5", "--max-tokens", "2", "--backend", "cpu", "--attention", "all",
        "--debug-layers", "0"}},
      {{"doctor", llama, "--backend", "cpu"}, false},
      {{"doctor", llama, "--inject", "norm_offset_forced", "--backend", "cpu"}, false},
      {{"doctor", "--list"}},
      {{"doctor", "--list-faults"}},
      {{"convert", demo, "-o", quantised, "--type", "Q4_K_M"}},
      {{"convert", "--list"}},
      {{"config", "explain"}},
      {{"config", "presets"}},
      {{"bench", llama, "--prefill", "2", "--decode", "2", "--depths", "0", "--repetitions", "1", "--warm-up",
        "0", "--loads", "1", "--backend", "cpu"},
       false},
  };
}

std::string name_of(const Printing& one) {
  std::string text;
  for (const std::string& word : one.arguments) text += word + " ";
  return text;
}

// A line may be wider only where a single word is, such as a path.
void expect_fits(const std::string& text, std::size_t width) {
  for (const std::string& line : lines_of(text)) {
    if (text_columns(line) <= width) continue;
    std::istringstream words(line);
    std::size_t longest = 0;
    for (std::string word; words >> word;) longest = std::max(longest, text_columns(word));
    EXPECT_GT(longest + 12, width) << line;
  }
}

TEST(Terminal, EveryOutputFitsEightyAndFortyColumnsWithoutBreakingAWord) {
  const TempDir dir;
  for (const Printing& one : all_printing(dir)) {
    SCOPED_TRACE(name_of(one));
    std::string wide;
    {
      const Environment columns("COLUMNS", "2000");
      wide = doppler(one.arguments).out;
    }
    ASSERT_FALSE(wide.empty());
    for (const char* width : {"80", "40"}) {
      const Environment columns("COLUMNS", width);
      const std::string narrow = doppler(one.arguments).out;
      expect_fits(narrow, static_cast<std::size_t>(std::stoi(width)));
      const std::multiset<std::string> all = words_of(wide), fitted = words_of(narrow);
      // Comparisons are cut, and the paragraphs of narrow tables repeat their titles: what there is, is
      // whole.
      if (one.same) {
        for (const std::string& word : fitted) EXPECT_TRUE(all.contains(word)) << word;
      }
    }
  }
}

TEST(Terminal, EveryHelpFitsAndEndsWithExamples) {
  std::istringstream names(doppler({"completion", "fish"}).out);
  std::set<std::string> commands;
  for (std::string line; std::getline(names, line);) {
    const std::string mark = "-n __fish_use_subcommand -a ";
    if (const std::size_t at = line.find(mark); at != std::string::npos)
      commands.insert(line.substr(at + mark.size()));
  }
  EXPECT_GT(commands.size(), 12u);
  for (const std::string& command : commands) {
    for (const char* width : {"80", "40"}) {
      const Environment columns("COLUMNS", width);
      const Outcome help = doppler({command, "--help"});
      EXPECT_EQ(help.status, 0);
      expect_fits(help.out, static_cast<std::size_t>(std::stoi(width)));
      EXPECT_NE(help.out.find("Examples:\n  doppler " + command), std::string::npos) << help.out;
    }
  }
}

TEST(Terminal, ColoursAreThereWhenAskedForAndNeverInAPipe) {
  const std::vector<std::string> arguments = {"debug", model_path("llama"), "--prompt-ids",
                                              "2,5",   "--max-tokens",      "1"};
  const auto with = [&](const char* choice) {
    std::vector<std::string> all = arguments;
    if (choice != nullptr) all.insert(all.end(), {"--color", choice});
    return doppler(all).out;
  };
  EXPECT_EQ(with(nullptr).find('\033'), std::string::npos);
  EXPECT_NE(with("always").find("\033["), std::string::npos);
  EXPECT_EQ(with("never").find('\033'), std::string::npos);
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--color", "blue"}), 2, "blue is no choice of colours");
}

TEST(Terminal, QuietLeavesTheAnswerAndSilentNotEvenErrors) {
  const std::string demo = source_path("demo").string();
  const Outcome quiet = doppler({"run", demo, "The sky is", "--max-tokens", "3", "--quiet"});
  EXPECT_EQ(quiet.status, 0);
  EXPECT_FALSE(quiet.out.empty());
  EXPECT_EQ(quiet.err, "");
  const Outcome failed = doppler({"run", demo, "--prompt-ids", "99999999", "--quiet"});
  EXPECT_TRUE(failed.err.starts_with("doppler: ")) << failed.err;
  const Outcome silent = doppler({"run", demo, "--prompt-ids", "99999999", "--log-level", "silent"});
  EXPECT_NE(silent.status, 0);
  EXPECT_EQ(silent.err, "");
}

// stdout and stderr of one file, as both of one terminal.
TEST(Terminal, WhatIsSaidBeginsOnALineOfItsOwn) {
  const TempDir dir;
  const std::string file = (dir / "both").string();
  const int both = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  testing::Streams streams;
  streams.duplicate = {{1, both}, {2, both}};
  const std::vector<std::string> arguments = {"run",
                                              source_path("demo").string(),
                                              "The color of the sky is",
                                              "--raw",
                                              "--max-tokens",
                                              "4",
                                              "--probe",
                                              "stage=layer_out,layers=0,tokens=all,dims=0",
                                              "--backend",
                                              "cpu"};
  EXPECT_EQ(testing::Program(arguments, "", 0, streams).wait().status, 0);
  close(both);
  const std::vector<std::string> lines = lines_of(testing::read_file(file));
  EXPECT_GT(lines.size(), 8u);
  for (const std::string& line : lines)
    EXPECT_TRUE(line.find("PROBE") == 0 || line.find("PROBE") == line.npos) << line;
  for (const std::string& line : lines)
    EXPECT_TRUE(line.find("cpu: loaded") == 0 || line.find("cpu: ") == line.npos) << line;
}

TEST(Terminal, TheDoctorBeginsWithItsVerdict) {
  EXPECT_TRUE(doppler({"doctor", model_path("llama"), "--backend", "cpu"}).out.starts_with("healthy"))
      << "llama";
  const Outcome sick =
      doppler({"doctor", model_path("gemma3"), "--backend", "cpu", "--inject", "qk_norm_offset",
               "--reference", model_path("gemma3") + "/reference.safetensors"});
  EXPECT_EQ(sick.status, 1);
  EXPECT_TRUE(sick.out.starts_with("sick: 1 finding")) << sick.out;
}

TEST(Terminal, LogitsOfTokensByTheirText) {
  const std::string demo = source_path("demo").string();
  const Json json = doppler({"debug", demo, "The color of the sky is", "--raw", "--max-tokens", "1",
                             "--logit-text", " blue", "--backend", "cpu", "--json"})
                        .json();
  EXPECT_EQ(json["logits"].back()["watched"][0]["id"], 789);  // docs/debugging.md names it
  EXPECT_REFUSAL(doppler({"debug", demo, "Hi", "--logit-text", "two words"}), 2, "two words",
                 "is no token but");
}

TEST(Help, WordsOfOtherProgramsGetTheRightOne) {
  const std::string llama = model_path("llama");
  EXPECT_REFUSAL(doppler({"-m", llama, "-p", "hi"}), 2, "doppler run MODEL");
  EXPECT_REFUSAL(doppler({"run", "-m", llama, "-p", "hi"}), 2, "-m", "doppler run MODEL");
  EXPECT_REFUSAL(doppler({"run", llama, "--prompt", "hi"}), 2, "doppler run MODEL PROMPT");
  EXPECT_REFUSAL(doppler({"run", llama, "hi", "-n", "4"}), 2, "--max-tokens");
  EXPECT_REFUSAL(doppler({"run", llama, "hi", "-ngl", "99"}), 2, "--backend gpu");
  EXPECT_REFUSAL(doppler({"run", llama, "hi", "-c", "99"}), 2, "--context");
  EXPECT_REFUSAL(doppler({"run", llama, "hi", "--temp=0.5"}), 2, "--temperature");
  EXPECT_REFUSAL(doppler({"convert", llama, "--quantize", "q4_k_m"}), 2, "--type Q4_K_M");
  EXPECT_REFUSAL(doppler({"bench", llama, "-p", "512"}), 2, "--prefill");
  EXPECT_REFUSAL(doppler({"show", llama}), 2, "doppler inspect MODEL");
  EXPECT_REFUSAL(doppler({"test", "kernel"}), 2, "Did you mean test kernels?");
  EXPECT_REFUSAL(doppler({"ps"}), 2, "Nothing stays in memory");
  EXPECT_REFUSAL(doppler({"serve", llama}), 2, "There is no server");
  EXPECT_REFUSAL(doppler({llama, "hi"}), 2, "no command but a file or folder", "doppler run");
  EXPECT_REFUSAL(doppler({}), 2, "No command is given. doppler run MODEL PROMPT answers");
  EXPECT_REFUSAL(doppler({"push", llama}), 2, "There is no command push. Run doppler --help.");
  EXPECT_REFUSAL(doppler({"run", llama, "why", "is"}), 2, "stands in quotes");
  EXPECT_REFUSAL(doppler({"chat", llama, "hi"}), 2, "A chat takes no prompt");
  EXPECT_REFUSAL(doppler({"convert", llama, "out.gguf", "Q4_0"}), 2, "The file to write is -o FILE");
  EXPECT_REFUSAL(doppler({"run", "llama3.2", "hi"}), 3, "Check the path, or name one", "ollama:llama3.2");
}

TEST(Help, FlagsThatACommandIgnoresAreErrors) {
  const std::string llama = model_path("llama"), demo = source_path("demo").string();
  EXPECT_REFUSAL(doppler({"tokenize", demo, "hi", "--backend", "cpu"}), 2, "--backend is a flag of run",
                 "no effect on tokenize");
  EXPECT_REFUSAL(doppler({"inspect", llama, "--temperature", "1"}), 2, "--temperature is a flag of run");
  EXPECT_REFUSAL(doppler({"bench", llama, "--chunks", "3"}), 2,
                 "--chunks has no effect without --perplexity");
  EXPECT_REFUSAL(doppler({"bench", llama, "--perplexity", "x", "--decode", "3"}), 2, "--decode");
  EXPECT_REFUSAL(doppler({"bench", "kernels", llama, "--prefill", "3"}), 2, "no effect on bench kernels");
  EXPECT_REFUSAL(doppler({"run", llama, "--prompt-ids", "2", "--trace-layers", "0"}), 2, "contradicts itself",
                 "--trace-layers");
  EXPECT_REFUSAL(doppler({"inspect", "--gpu", "--plan"}), 2, "--gpu", "--plan");
  EXPECT_REFUSAL(doppler({"doctor", llama, "--list"}), 2, "--list has no effect with MODEL");
  EXPECT_REFUSAL(doppler({"run", demo, "--prompt-ids", "2", "--system", "Be brief."}), 2, "--system");
  EXPECT_REFUSAL(doppler({"chat", demo, "--raw"}), 2, "--raw is a flag of run", "no effect on chat");
  EXPECT_REFUSAL(doppler({"record", demo, "hi", "-o", "x", "--submit-tokens", "3"}), 2,
                 "no effect on record");
  EXPECT_REFUSAL(doppler({"record", demo, "-o", "x", "--chat", "--prompt-ids", "2"}), 2,
                 "--chat has no effect");
  EXPECT_REFUSAL(doppler({"record", demo, "hi", "-o", "x", "--set", "runtime.inference.sampling.topK=3"}), 2,
                 "The --set of runtime.inference.sampling.topK has no effect");
  EXPECT_REFUSAL(doppler({"run", demo, "hi", "--backend", "cpu", "--gpu-checked"}), 2, "contradicts itself");
  EXPECT_REFUSAL(doppler({"inspect", demo, "--gpu-adapter", "0"}), 2, "no effect without --gpu");
  EXPECT_REFUSAL(doppler({"inspect", "--gpu", "--context", "9"}), 2, "no effect without a MODEL");
  EXPECT_REFUSAL(doppler({"pull", "org/name", "--plan", "--connections", "2"}), 2, "no effect with --plan");
  EXPECT_REFUSAL(doppler({"convert", "--list", "--threads", "2"}), 2, "no effect with --list");
  EXPECT_REFUSAL(doppler({"doctor", "--list", "--backend", "cpu"}), 2, "no effect with --list");
}

// What narrows a choice has none to narrow at a temperature of 0. One that the user gives is a contradiction;
// one that is the model's own, which the user may not know, is a warning.
TEST(Help, SamplingFlagsAtTemperatureZeroAreSaid) {
  const std::string demo = source_path("demo").string();
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", demo, "hi", "--backend", "cpu", "--max-tokens", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return doppler(arguments);
  };
  EXPECT_REFUSAL(run({"--top-p", "0.5", "--temperature", "0"}), 2, "topP is 0.5", "leave one of them out");
  EXPECT_REFUSAL(run({"--temperature", "0", "--min-p", "0.5"}), 2, "minP is 0.5", "leave one of them out");
  EXPECT_EQ(run({"--temperature", "0", "--top-p", "1", "--top-k", "0"}).status, 0) << "neither narrows";
  EXPECT_EQ(run({"--config", "production", "--temperature", "0"}).status, 0) << "the flag overrules a preset";
  const Outcome idle = run({"--top-k", "3", "--top-p", "0.5"});
  EXPECT_EQ(idle.status, 0);
  EXPECT_NE(idle.err.find("--top-k and --top-p have no effect: the temperature is 0"), std::string::npos)
      << idle.err;
  EXPECT_EQ(run({"--top-k", "3", "--temperature", "0.5"}).err.find("no effect"), std::string::npos);
}

TEST(Help, AProbeTakesOneValue) {
  const Outcome outcome =
      doppler({"run", "--probe", "stage=layer_out,layers=0,dims=0", source_path("demo").string(),
               "The sky is", "--max-tokens", "1", "--backend", "cpu"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("PROBE stage=layer_out"), std::string::npos) << outcome.err;
}

TEST(Completion, KnowsTheValuesOfFlags) {
  const Outcome fish = doppler({"completion", "fish"});
  EXPECT_NE(fish.out.find("-l backend -r -f -a 'auto gpu cpu reference'"), std::string::npos);
  EXPECT_NE(fish.out.find("stage=q_rope,"), std::string::npos);
  EXPECT_NE(doppler({"completion", "bash"}).out.find("run:--kv-type) values=\"f32 f16 q8_0\""),
            std::string::npos);
  EXPECT_NE(doppler({"completion", "zsh"}).out.find("run:--trace) values=(all loader kernels"),
            std::string::npos);
  EXPECT_NE(doppler({"completion", "bash"}).out.find("gemma2-debug"), std::string::npos);  // a preset
}

// A python3 that says it has transformers, and records by copying what was recorded before.
TEST(ReferenceAuto, RecordsOnceWhereTransformersIsAndSaysHowWhereItIsNot) {
  const TempDir dir;
  const std::string gemma = model_path("gemma3"), python = (dir / "python").string();
  const Environment cache("XDG_CACHE_HOME", (dir / "cache").c_str());
  testing::write_file(python, "#!/bin/sh\nexit 1\n");
  ASSERT_EQ(chmod(python.c_str(), 0755), 0);
  const Environment name("DOPPLER_PYTHON", python.c_str());
  const std::vector<std::string> arguments = {"compare", gemma, "--reference", "auto", "--backend", "cpu"};
  EXPECT_REFUSAL(doppler(arguments), 3, "lacks torch, transformers", "hf_record.py", "--reference FILE");
  testing::write_file(python, "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\necho recorded >> " +
                                  (dir / "count").string() + "\nwhile [ \"$1\" != -o ]; do shift; done\ncp " +
                                  gemma + "/reference.safetensors \"$2\"\n");
  const Outcome first = doppler(arguments);
  EXPECT_EQ(first.status, 0) << first.err << first.out;
  EXPECT_NE(first.err.find("the recording is kept"), std::string::npos) << first.err;
  EXPECT_EQ(doppler(arguments).status, 0);
  EXPECT_EQ(doppler({"doctor", gemma, "--reference", "auto", "--backend", "cpu"}).status, 0);
  EXPECT_EQ(testing::read_file(dir / "count"), "recorded\n");  // by the first alone
  EXPECT_REFUSAL(doppler({"run", gemma, "--prompt-ids", "2,5", "--max-tokens", "1", "--backend", "cpu",
                          "--reference", gemma + "/reference.safetensors", "--json"}),
                 3, "is of another prompt");
}

}  // namespace
}  // namespace doppler
