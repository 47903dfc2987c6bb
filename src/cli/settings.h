// Settings: the configuration as commands read it, and its flags. The table of all settings is
// config/setting.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/flags.h"
#include "config/config.h"
#include "doppler/doppler.h"

namespace doppler::cli {

// The resolved settings as the options of the engine. One table in settings.cpp maps settings to options.
struct Settings {
  // All values, with defaults and sources.
  config::Config config;
  LoadOptions load;  // a command may change those that it decides itself
  bool raw = false;  // prompts are used as they are, without the model's chat template

  // Whether a setting was given; else its default holds.
  bool given(std::string_view path) const;
  // The whole subtree runtime.shared.debug, as `inspect` reads it.
  Json debug() const { return config.subtree("runtime.shared.debug"); }
  // Overrides those options that were given.
  void apply(GenerateOptions& options) const;
};

// The settings' flags of a command; filled while the command line is parsed.
struct SettingFlags {
  Settings flags;  // once resolved
  config::ConfigInput input;
  bool json = false;
  std::vector<std::string*> models;               // that may be names, to be resolved before the command runs
  std::vector<const config::SettingInfo*> taken;  // whose flags the command has
};

// Adds --config, --set, --json, --quiet, --color and the flags of the groups: those of kTrace for commands
// whose runs can be traced. `without`: flags of these groups that have no effect on the command.
void add_setting_flags(Command& command, SettingFlags& given, bool generation, bool trace = false,
                       std::initializer_list<std::string_view> without = {});
// For commands that run no model: of the settings' flags only these, such as --threads, and --log-level.
void add_few_setting_flags(Command& command, SettingFlags& given,
                           std::initializer_list<std::string_view> flags = {});

// Refuses those of these flags that are given, because they have no effect, as `why` says ("with --list"); an
// empty list stands for all but --log-level. Errors: kUsage.
Status refuse_flags(const SettingFlags& given, std::initializer_list<std::string_view> flags,
                    std::string_view why);
// Refuses a --set of how answers are made, if the command makes none. Errors: kUsage.
Status check_sets(const SettingFlags& given);

// Applies the order of decision. Errors: those of resolve_config().
Result<Settings> resolve_settings(const SettingFlags& given);

// Sets up the log as the settings say, and logs the loaded configurations and the use of older names. Errors:
// kIo for files that cannot be opened.
Status begin_log(const Settings& settings);
// Closes the log's files; `failed`: prints the newest lines if logging to the screen was off. Errors: kIo for
// lines that were lost.
Status end_log(const Settings& settings, bool failed);

}  // namespace doppler::cli
