// Settings: the configuration as commands read it, and its flags. The table of all settings is
// config/setting.h.
#pragma once

#include <cstdint>
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

// What was decided, as the options of what a command does. Which setting is which option is one table in
// settings.cpp.
struct Settings {
  // Everything, with defaults and sources.
  config::Config config;
  LoadOptions load;  // a command may change what it decides itself
  bool raw = false;  // prompts go as they are, without the model's chat template

  // Whether somebody decided a setting, or its default holds.
  bool given(std::string_view path) const;
  // runtime.shared.debug, complete, as `inspect` reads it.
  Json debug() const { return config.subtree("runtime.shared.debug"); }
  // Overrides what is set.
  void apply(GenerateOptions& options) const;
};

// What a command was given; filled while the command line is parsed.
struct SettingFlags {
  Settings flags;  // once resolved
  config::ConfigInput input;
  bool json = false;
};

// Adds --config, --set, --json and the flags of the groups: those of kTrace for commands that run a model so
// that there is something to trace.
void add_setting_flags(Command& command, SettingFlags& given, bool generation, bool trace = false);

// Applies the order of decision. Errors: those of resolve_config().
Result<Settings> resolve_settings(const SettingFlags& given);

// Directs the log as the settings say, and says what was loaded and which names are older ones. Errors: kIo
// for files that cannot be opened.
Status begin_log(const Settings& settings);
// Closes the log's files; `failed`: shows the newest lines if the screen was off. Errors: kIo for lines that
// were lost.
Status end_log(const Settings& settings, bool failed);

}  // namespace doppler::cli
