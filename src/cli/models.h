// What commands take for a MODEL besides paths: names of the Hub, and of what Ollama has; and how a download
// is shown.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command.h"
#include "hub/pull.h"

namespace doppler::cli {

// Declares a model's argument or option: its value may be a name, and is a path when the command runs.
Option add_model(Command& command, SettingFlags& given, const std::string& name, std::string& to,
                 const std::string& what);

// Makes paths of all that add_model() declared, which may download a model. The exit status: kDone, or that
// of the signal that stopped a download. Errors: those of resolve_here() and pull().
Result<int> resolve_models(const SettingFlags& given);

// Downloads with the plan and a progress bar on stderr. Options' callbacks are set here.
Result<hub::Pulled> pull_with_bar(const hub::Places& places, const hub::ModelName& name,
                                  hub::PullOptions options, const CancelToken& cancel);

}  // namespace doppler::cli
