#include "cli/cli.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/examples.h"
#include "cli/models.h"
#include "cli/other_words.h"
#include "system/files.h"
#include "system/terminal.h"

namespace doppler::cli {

std::span<const CommandInfo> all_commands() {
  static constexpr std::array<CommandInfo, 18> kCommands = {{
      {"run", "continue a prompt, or answer it through the model's chat template", add_run},
      {"chat", "hold a conversation in the terminal", add_chat},
      {"pull", "download a model by its name", add_pull},
      {"list", "show the models that are here, by name, with types and sizes", add_list},
      {"rm", "remove a model that is here", add_rm},
      {"inspect", "show what a model is: every value with its source, tensors, memory", add_inspect},
      {"tokenize", "show a text's tokens, turn ids back into text, or render a conversation", add_tokenize},
      {"record", "write every stage of a run to a file", add_record},
      {"compare", "check a model against a recording, stage by stage", add_compare},
      {"debug", "run a prompt with everything measured, and say what looks wrong", add_debug},
      {"doctor", "find out what is wrong with a model, and why", add_doctor},
      {"bench", "measure speed against the machine's limits, or the loss on a text", add_bench},
      {"test", "check that this machine's GPU computes right, kernel by kernel", add_test},
      {"web", "examine the WebAssembly build in a browser: the same tokens as here, and how fast", add_web},
      {"convert", "write a model as a GGUF file, quantised to any type", add_convert},
      {"synth", "write a model file with random weights of a published shape, for measuring", add_synth},
      {"config", "explain every setting and its source, print their JSON Schema, list presets", add_config},
      {"completion", "print a completion script for bash, zsh or fish", add_completion},
  }};
  return kCommands;
}

namespace {

constexpr const char* kFooter = R"(
A MODEL is a .gguf file, a Hugging Face folder, the folder of an RDRR package, a .safetensors file beside its config.json, the name org/name[:TYPE] of a model on the Hugging Face Hub, which is downloaded if it is not here, or ollama:NAME of one that Ollama has.
Exit status: 0 done, 1 the answer is no (compare, doctor, debug, test, inspect --check), 2 wrong usage, 3 the input or the machine does not allow it, 128 + n ended by signal n (130: Ctrl-C).

  doppler run demo "The color of the sky is"
  doppler run models/gemma-3-1b-it "Why is the sky blue?" --max-tokens 200 --temperature 0.7
  doppler inspect models/gemma-3-1b-it
  doppler compare models/gemma-3-1b-it --reference gemma.safetensors)";

constexpr int kBrokenPipe = 13;  // SIGPIPE, on every system that has it

int status_of(ErrorCode code) {
  return code == ErrorCode::kUsage ? kWrongUsage : kNotPossible;
}

// The names of errors in --json.
std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kLimit:
      return "limit";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      break;
  }
  return "internal";
}

// The sentence on stderr, and with --json an object on stdout, too. When the reader of stdout has gone, as
// head goes, the program ends like others that the pipe's signal ends: without a word.
int report(const Error& error, bool json) {
  if (output_is_cut()) return kSignalled + kBrokenPipe;
  const int status = status_of(error.code);
  say(Said::kError, "doppler: {}", error.message);
  if (json && !object_is_printed()) {
    const Status printed = print_json(
        {{"error", {{"code", name_of(error.code)}, {"message", error.message}, {"status", status}}}});
    if (!printed) return output_is_cut() ? kSignalled + kBrokenPipe : status;
  }
  return status;
}

// The command between the opening and the closing of the log, whose own failure counts if nothing else fails.
int run_logged(const SettingFlags& given, const Run& run, bool json) {
  if (const Status status = begin_log(given.flags); !status) return report(status.error(), json);
  const Result<int> resolved = resolve_models(given);
  const Result<int> result = resolved && *resolved == kDone ? run() : resolved;
  const Status logged = end_log(given.flags, !result);
  if (!result) return report(result.error(), json);
  return logged ? *result : report(logged.error(), json);
}

// What a word that the command line does not know was probably meant to be: a sentence, or nothing.
std::string meant_command(std::string_view word, std::span<const CommandWords> commands) {
  if (const std::string_view instead = instead_of_command(word); !instead.empty())
    return std::string(instead);
  std::vector<std::string> names;
  for (const CommandWords& command : commands) names.push_back(command.command);
  const std::string nearest = nearest_name(word, names);
  return nearest.empty() ? "" : fmt::format("Did you mean {}?", nearest);
}

std::string meant_flag(std::string_view flag, const CommandWords& command,
                       std::span<const CommandWords> commands) {
  if (const std::string_view instead = instead_of_flag(command.command, flag); !instead.empty())
    return fmt::format("There is no {}. {}", flag, instead);
  std::vector<std::string> names, others;
  for (const CommandWords::Flag& known : command.flags) names.push_back(known.name);
  for (const CommandWords& other : commands) {
    if (std::ranges::find(other.flags, flag, &CommandWords::Flag::name) != other.flags.end())
      others.push_back(other.command);
  }
  if (!others.empty())
    return fmt::format("{} is a flag of {}, and would have no effect on {}.", flag, join(others, ", "),
                       command.command);
  const std::string nearest = nearest_name(flag, names);
  return nearest.empty() ? "" : fmt::format("There is no {}. Did you mean {}?", flag, nearest);
}

// What stands where a subcommand may.
std::string meant_part(std::string_view word, const CommandWords& command) {
  if (const std::string_view instead = instead_of_flag(command.command, word); !instead.empty())
    return std::string(instead);
  const std::string nearest = nearest_name(word, command.values);
  if (nearest.empty() || nearest == word) return "";
  return fmt::format("There is no {} {}. Did you mean {} {}?", command.command, printable(word),
                     command.command, nearest);
}

// The first word that looks like a flag and is none of the command's. A value may begin with a dash, too.
std::string_view unknown_flag(std::span<char* const> words, const CommandWords& command) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i], flag = word.substr(0, word.find('='));
    const bool is_flag =
        word.size() > 1 && word[0] == '-' && (word[1] == '-' || !(word[1] >= '0' && word[1] <= '9'));
    if (!is_flag) continue;
    if (word == "--") break;
    const auto known = std::ranges::find(command.flags, flag, &CommandWords::Flag::name);
    if (known == command.flags.end()) return flag;
    if (known->takes_value && flag == word) ++i;
  }
  return {};
}

// The parser's words, or where a word of another program or a slip of the fingers explains more, that.
int report_parse_error(const Error& error, std::span<char* const> words, const CommandLine& line, bool json) {
  const std::vector<CommandWords> commands = line.all_words();
  std::string hint = "Run doppler --help.", meant;
  if (!words.empty()) {
    const std::string_view first = words[0];
    const auto command = std::ranges::find(commands, first, &CommandWords::command);
    if (command != commands.end()) {
      hint = fmt::format("Run doppler {} --help.", first);
      const std::string_view flag = unknown_flag(words.subspan(1), *command);
      if (!flag.empty())
        meant = meant_flag(flag, *command, commands);
      else if (words.size() > 1 && words[1][0] != '-')
        meant = meant_part(words[1], *command);
      const bool more_words = error.message.find("not expected") != std::string::npos;  // the parser's words
      if (flag.empty() && meant.empty() && more_words) meant = instead_of_more_words(first);
    } else if (first.starts_with('-')) {
      meant = instead_of_flag("", first.substr(0, first.find('=')));
      if (!meant.empty()) meant = fmt::format("A command comes first, such as run. {}", meant);
    } else if (system::exists(std::filesystem::path(first))) {
      meant = fmt::format("{} is no command but a file or folder. A model is run by: doppler run {}",
                          printable(first), printable(first));
    } else {
      meant = meant_command(first, commands);
      meant = fmt::format("There is no command {}. {}", printable(first), meant.empty() ? hint : meant);
    }
  } else {
    meant =
        "No command is given. doppler run MODEL PROMPT answers, doppler chat MODEL talks, doppler list shows "
        "the "
        "models that are here; doppler --help lists all commands.";
  }
  return report({error.code, meant.empty() ? fmt::format("{}. {}", error.message, hint) : meant}, json);
}

int run_command_line(int argc, char** argv) {
  CommandLine line("doppler", "Doppler runs language models on this machine and lets you see inside.",
                   "doppler " DOPPLER_VERSION, kFooter);
  std::vector<std::unique_ptr<SettingFlags>> given;
  std::vector<std::pair<Command, Run>> runs;
  for (const CommandInfo& info : all_commands()) {
    Command command = line.add_command(info.name, info.what);
    given.push_back(std::make_unique<SettingFlags>());
    runs.emplace_back(command, info.add(command, *given.back()));
    command.footer(std::string(examples_of(info.name)));
  }
  const bool json = std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--json"; });
  const auto asked = line.parse(argc, argv, table_columns());
  if (!asked) {
    const std::span<char* const> words(argv + 1, static_cast<std::size_t>(std::max(argc - 1, 0)));
    return report_parse_error(asked.error(), words, line, json);
  }
  if (*asked) {
    const Status printed = print(**asked);
    return printed ? kDone : report(printed.error(), json);
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].first.chosen()) continue;
    const Result<Settings> settings = resolve_settings(*given[i]);
    if (!settings) return report(settings.error(), json);
    given[i]->flags = *settings;  // from here on the resolved settings
    if (const Status sets = check_sets(*given[i]); !sets) return report(sets.error(), json);
    return run_logged(*given[i], runs[i].second, json);
  }
  return kWrongUsage;
}

}  // namespace

int main(int argc, char** argv) {
  system::prepare_streams();
  choose_colours(ColourChoice::kAuto);
  const int status = run_command_line(argc, argv);
  if (status > kSignalled) system::end_by_signal(status - kSignalled);
  return status;
}

}  // namespace doppler::cli
