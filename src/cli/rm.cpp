// doppler rm: removes a model from the Hugging Face cache, or from Ollama's store.
#include <fmt/core.h>

#include <iostream>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/models.h"
#include "hub/ollama.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

struct RemoveArguments {
  std::string model;
  bool yes = false;
};

Result<hub::Removal> plan_removal(const std::string& model) {
  DOPPLER_ASSIGN(const hub::Places places, hub::find_places());
  if (model.starts_with(hub::kOllamaPrefix)) {
    DOPPLER_ASSIGN(const hub::OllamaModel found,
                   hub::find_ollama(places.ollama, model.substr(hub::kOllamaPrefix.size())));
    return hub::plan_ollama_removal(found);
  }
  DOPPLER_ASSIGN(const hub::ModelName name, hub::parse_name(model));
  return hub::plan_removal(places.cache, name);
}

// Whether the user says yes; anything but that is no.
bool agreed() {
  say(Said::kAsked, "Remove it? [y/N]");
  std::string line;
  std::getline(std::cin, line);
  return line == "y" || line == "Y" || line == "yes";
}

Result<int> rm(const RemoveArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const hub::Removal removal, plan_removal(arguments.model));
  const std::string what = fmt::format("{}: {}{}", removal.what, human_bytes(removal.bytes),
                                       removal.stays.empty() ? "" : "; " + removal.stays);
  if (!arguments.yes) {
    if (!system::is_terminal(system::Stream::kInput)) {
      return fail(ErrorCode::kUsage, "Nobody is there to ask whether to remove {}. Give --yes.",
                  removal.what);
    }
    say(Said::kAsked, what);
    if (!agreed()) {
      say(Said::kNote, "Nothing is removed.");
      return kAnswerIsNo;
    }
  }
  DOPPLER_TRY(hub::remove(removal));
  if (given.json)
    DOPPLER_TRY(print_json({{"removed", removal.what}, {"bytes", removal.bytes}}));
  else
    say(Said::kNote, "removed {}", what);
  return kDone;
}

}  // namespace

Run add_rm(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<RemoveArguments>();
  command
      .add_option("NAME", arguments->model,
                  "a name as doppler list shows it: org/name, org/name:TYPE, ollama:NAME")
      .required();
  command.add_flag("--yes,-y", arguments->yes, "do not ask");
  add_few_setting_flags(command, given);
  return [arguments, &given] { return rm(*arguments, given); };
}

}  // namespace doppler::cli
