// Settings: every value a user can set, as one table that serves the configuration (runtime.…), --set and the
// flags. Order of decision: the model's own defaults < --config < --set < flag.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"

namespace doppler::cli {

struct Settings {
  std::optional<std::string> backend, log_level, kv_type, cpu_target, gpu_adapter;
  std::optional<std::uint64_t> threads, context, max_tokens, top_k, seed, penalty_window, submit_tokens;
  std::optional<double> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<std::vector<std::string>> stop, logit_bias;
  std::optional<bool> raw, ignore_eos, exact, gpu_checked, gpu_poison;

  LoadOptions load_options() const;
  // Overrides what is set. Errors: kUsage for a logit bias that is not ID=NUMBER, or a value out of range.
  Status apply(GenerateOptions& options) const;
};

// Which commands a setting is a flag of.
enum class SettingGroup { kEverywhere, kGeneration };

struct SettingInfo {
  std::string_view path;  // "runtime.inference.sampling.temperature"
  std::string_view flag;  // "--temperature"
  std::string_view help;
  SettingGroup group;
  std::variant<std::optional<std::string> Settings::*, std::optional<std::uint64_t> Settings::*,
               std::optional<double> Settings::*, std::optional<bool> Settings::*,
               std::optional<std::vector<std::string>> Settings::*>
      member;
};
std::span<const SettingInfo> all_settings();

// What a command was given; filled while the command line is parsed.
struct SettingFlags {
  Settings flags;
  std::vector<std::string> configs, sets;
  bool json = false;
};

// Adds --config, --set, --json and the flags of the groups.
void add_setting_flags(CLI::App& command, SettingFlags& given, bool generation);

// Applies the order of decision. Errors: kUsage for an unknown path (with the nearest known one) or a value
// of the wrong type, naming both; those of reading a file.
Result<Settings> resolve_settings(const SettingFlags& given);

}  // namespace doppler::cli
