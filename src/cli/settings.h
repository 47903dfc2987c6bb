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

// Typed views of what was given; nothing where the default holds.
struct Settings {
  std::optional<std::string> backend, kv_type, cpu_target, gpu_adapter;
  std::optional<std::uint64_t> threads, context, max_tokens, top_k, seed, penalty_window, submit_tokens;
  std::optional<double> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<std::vector<std::string>> stop, logit_bias;
  std::optional<bool> raw, ignore_eos, exact, gpu_checked, gpu_poison;

  // Everything, with defaults and sources.
  config::Config config;
  // runtime.shared.debug, complete, as `inspect` reads it.
  Json debug() const { return config.subtree("runtime.shared.debug"); }

  LoadOptions load_options() const;
  // Overrides what is set. Errors: kUsage for a value out of range.
  Status apply(GenerateOptions& options) const;
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

// Applies the order of decision. Errors: those of config::resolve_config().
Result<Settings> resolve_settings(const SettingFlags& given);

// Directs the log as the settings say, and says what was loaded and which names are older ones. Errors: kIo
// for files that cannot be opened.
Status begin_log(const Settings& settings);
// Closes the log's files; `failed`: shows the newest lines if the screen was off. Errors: kIo for lines that
// were lost.
Status end_log(const Settings& settings, bool failed);

}  // namespace doppler::cli
