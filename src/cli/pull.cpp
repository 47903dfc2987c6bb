// doppler pull: a model by its name, from the Hub into the Hugging Face cache.
#include "hub/pull.h"

#include "base/json.h"
#include "base/screen.h"
#include "cli/models.h"
#include "hub/ollama.h"

namespace doppler::cli {
namespace {

struct PullArguments {
  std::string model;
  bool plan = false, force = false;
  std::uint32_t connections = hub::DownloadOptions().connections;
};

Result<int> pull(const PullArguments& arguments, const SettingFlags& given) {
  if (arguments.model.starts_with(hub::kOllamaPrefix)) {
    return fail(
        ErrorCode::kUsage,
        "Doppler runs what Ollama has pulled, but pulls from the Hugging Face Hub only. Run ollama pull {}.",
        arguments.model.substr(hub::kOllamaPrefix.size()));
  }
  DOPPLER_ASSIGN(const hub::ModelName name, hub::parse_name(arguments.model));
  DOPPLER_ASSIGN(const hub::Places places, hub::find_places());
  const CancelToken cancel;
  const InterruptGuard guard(cancel);
  hub::PullOptions options{.plan_only = arguments.plan, .force = arguments.force};
  options.download.connections = arguments.connections;
  const Result<hub::Pulled> pulled = pull_with_bar(places, name, options, cancel);
  if (!pulled && cancel.cancelled()) {
    say(Said::kNote, pulled.error().message);
    return guard.status(kNotPossible);
  }
  if (!pulled) return std::unexpected(pulled.error());
  if (given.json) {
    Json object = hub::plan_json(pulled->plan);
    if (!arguments.plan) object["path"] = pulled->model.path.string();
    DOPPLER_TRY(print_json(object));
  } else {
    DOPPLER_TRY(print(arguments.plan ? hub::describe(pulled->plan) : pulled->model.path.string() + "\n"));
  }
  return kDone;
}

}  // namespace

Run add_pull(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<PullArguments>();
  command
      .add_option("NAME", arguments->model,
                  "org/name on the Hub, perhaps with :TYPE (as Q4_K_M) or :FILE, or @REVISION before that")
      .required();
  command.add_flag("--plan", arguments->plan, "show what would be downloaded and why, and download nothing");
  command.add_flag("--force", arguments->force,
                   "also what does not fit the memory, or is of a family that does not run");
  command.add_option("--connections", arguments->connections, "how many at once")
      .between(1, 16)
      .show_default();
  add_few_setting_flags(command, given);
  return [arguments, &given] { return pull(*arguments, given); };
}

}  // namespace doppler::cli
