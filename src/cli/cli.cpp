#include "cli/cli.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "cli/command.h"
#include "cli/models.h"
#include "system/terminal.h"

namespace doppler::cli {

std::span<const CommandInfo> all_commands() {
  static constexpr std::array<CommandInfo, 16> kCommands = {{
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
      {"convert", "write a model as a GGUF file, quantised to any type", add_convert},
      {"synth", "write a model file with random weights of a published shape, for measuring", add_synth},
      {"config", "explain every setting and its source, print their JSON Schema, list presets", add_config},
      {"completion", "print a completion script for bash, zsh or fish", add_completion},
  }};
  return kCommands;
}

namespace {

constexpr const char* kFooter = R"(
A MODEL is a .gguf file, a Hugging Face folder, a .safetensors file beside its config.json, the name org/name[:TYPE]
of a model on the Hugging Face Hub, which is downloaded if it is not here, or ollama:NAME of one that Ollama has.
Exit status: 0 done, 1 the answer is no (compare, doctor), 2 wrong usage, 3 the input or the machine does not allow it.

  doppler run demo "The color of the sky is"
  doppler run models/gemma-3-1b-it "Why is the sky blue?" --max-tokens 200 --temperature 0.7
  doppler inspect models/gemma-3-1b-it
  doppler compare models/gemma-3-1b-it --reference gemma.safetensors)";

int status_of(ErrorCode code) {
  return code == ErrorCode::kUsage ? kWrongUsage : kNotPossible;
}

int report(const Error& error) {
  fmt::print(stderr, "doppler: {}\n", error.message);
  return status_of(error.code);
}

// The command between the opening and the closing of the log, whose own failure counts if nothing else fails.
int run_logged(const SettingFlags& given, const Run& run) {
  if (const Status status = begin_log(given.flags); !status) return report(status.error());
  const Status resolved = resolve_models(given);
  const Result<int> result = resolved ? run() : std::unexpected(resolved.error());
  const Status logged = end_log(given.flags, !result);
  if (!result) return report(result.error());
  return logged ? *result : report(logged.error());
}

// A name that is no command: the nearest one is probably meant.
int report_parse_error(const Error& error, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CommandInfo& command : all_commands()) names.emplace_back(command.name);
  std::string hint = "Run doppler --help.";
  if (argc > 1 && argv[1][0] != '-') {
    const bool known = std::find(names.begin(), names.end(), argv[1]) != names.end();
    const std::string nearest = nearest_name(argv[1], names);
    if (known)
      hint = fmt::format("Run doppler {} --help.", argv[1]);
    else if (!nearest.empty())
      hint = fmt::format("Did you mean {}?", nearest);
  }
  fmt::print(stderr, "doppler: {}. {}\n", error.message, hint);
  return kWrongUsage;
}

}  // namespace

int main(int argc, char** argv) {
  system::prepare_streams();
  CommandLine line("doppler", "Doppler runs language models on this machine and lets you see inside.",
                   "doppler " DOPPLER_VERSION, kFooter);
  std::vector<std::unique_ptr<SettingFlags>> given;
  std::vector<std::pair<Command, Run>> runs;
  for (const CommandInfo& info : all_commands()) {
    Command command = line.add_command(info.name, info.what);
    given.push_back(std::make_unique<SettingFlags>());
    runs.emplace_back(command, info.add(command, *given.back()));
  }
  const Result<bool> parsed = line.parse(argc, argv);
  if (!parsed) return report_parse_error(parsed.error(), argc, argv);
  if (!*parsed) return kDone;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].first.chosen()) continue;
    const Result<Settings> settings = resolve_settings(*given[i]);
    if (!settings) return report(settings.error());
    given[i]->flags = *settings;  // from here on the resolved settings
    return run_logged(*given[i], runs[i].second);
  }
  return kWrongUsage;
}

}  // namespace doppler::cli
