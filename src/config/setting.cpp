#include "config/setting.h"

#include <algorithm>
#include <array>

#include "doppler/options.h"

namespace doppler::config {
namespace {

using enum ValueType;
using enum SettingGroup;

constexpr std::array<std::string_view, 4> kBackends = {"auto", "gpu", "cpu", "reference"};
constexpr std::array<std::string_view, 3> kKvTypes = {"f32", "f16", "q8_0"};
constexpr std::array<std::string_view, 6> kLevels = {"debug", "verbose", "info", "warn", "error", "silent"};
constexpr std::array<std::string_view, 18> kGuesses = {
    "auto", "off", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"};
constexpr std::array<std::string_view, 3> kIntents = {"verify", "investigate", "calibrate"};

// Paths and names are those of the Doppler runtime configuration where it has them; backend, threads, cpu and
// gpu are this program's own. Defaults of null leave the decision to the model's own files or to the command.
constexpr auto kSettings = std::to_array<SettingInfo>({
    {.path = "runtime.backend",
     .type = kText,
     .fallback = "\"auto\"",
     .off = "\"auto\"",
     .meaning = "what computes: auto (a real GPU, or else the cpu), gpu, cpu or reference",
     .flag = "--backend",
     .choices = kBackends},
    {.path = "runtime.threads",
     .type = kWhole,
     .fallback = "0",
     .off = "0",
     .meaning = "threads to use at most; 0: as many as this process may run at once",
     .flag = "--threads"},
    {.path = "runtime.family",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning =
         "the family by whose rule a folder's config.json is read, or guess: a decoder inferred from keys "
         "and tensors; what model_type says unless given",
     .flag = "--family"},
    {.path = "runtime.inference.kvcache.maxSeqLen",
     .type = kWhole,
     .fallback = "0",
     .off = "0",
     .meaning = "longest sequence in tokens; 0: the model's own, at most 4096",
     .flag = "--context"},
    {.path = "runtime.inference.kvcache.positions",
     .type = kWhole,
     .fallback = "0",
     .off = "0",
     .meaning = "tokens for which all sequences together have room in the cache; 0: as many as each may use, "
                "or as fit",
     .flag = "--cache-positions"},
    {.path = "runtime.inference.kvcache.kvDtype",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning =
         "how keys and values are kept: f32, f16 or q8_0; f16 for quantised models unless given, else f32",
     .flag = "--kv-type",
     .choices = kKvTypes},
    {.path = "runtime.cpu.exact",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "multiply quantised weights with float activations instead of 8-bit ones: slower",
     .flag = "--exact"},
    {.path = "runtime.cpu.target",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning = "kernels by instruction set, such as AVX2; the best unless given",
     .flag = "--cpu-target"},
    {.path = "runtime.gpu.adapter",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning = "part of a GPU's name, or its number in doppler inspect --gpu; the best unless given",
     .flag = "--gpu-adapter"},
    {.path = "runtime.gpu.submitTokens",
     .type = kWhole,
     .fallback = "8",
     .off = "1",
     .meaning = "tokens that a GPU generates before the host looks at them",
     .flag = "--submit-tokens",
     .least = 1,
     .most = GpuOptions::kMostSubmitTokens},
    {.path = "runtime.gpu.checked",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "GPU kernels check every access to memory: slower",
     .flag = "--gpu-checked"},
    {.path = "runtime.gpu.poison",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "memory on the GPU begins as NaN, so that reading too early shows",
     .flag = "--gpu-poison"},

    {.path = "runtime.inference.batching.maxTokens",
     .type = kWhole,
     .fallback = "null",
     .off = "null",
     .meaning = "tokens to generate at most; 256 unless given, in a chat as many as the context holds",
     .flag = "--max-tokens",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.temperature",
     .type = kNumber,
     .fallback = "null",
     .off = "0",
     .meaning = "0 takes the likeliest token each time (greedy); the model's own unless given",
     .flag = "--temperature",
     .group = kGeneration,
     .least = 0},
    {.path = "runtime.inference.sampling.topK",
     .type = kWhole,
     .fallback = "null",
     .off = "0",
     .meaning = "sample among the k likeliest; 0: all; the model's own unless given",
     .flag = "--top-k",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.topP",
     .type = kNumber,
     .fallback = "null",
     .off = "1",
     .meaning =
         "sample among the likeliest that together reach this probability; the model's own unless given",
     .flag = "--top-p",
     .group = kGeneration,
     .least = 0,
     .most = 1},
    {.path = "runtime.inference.sampling.minP",
     .type = kNumber,
     .fallback = "null",
     .off = "0",
     .meaning =
         "sample among those at least this share as likely as the likeliest; the model's own unless given",
     .flag = "--min-p",
     .group = kGeneration,
     .least = 0,
     .most = 1},
    {.path = "runtime.inference.sampling.repetitionPenalty",
     .type = kNumber,
     .fallback = "null",
     .off = "1",
     .meaning = "above 1: tokens seen before become less likely; the model's own unless given",
     .flag = "--repeat-penalty",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.presencePenalty",
     .type = kNumber,
     .fallback = "0",
     .off = "0",
     .meaning = "subtracted once from tokens seen before",
     .flag = "--presence-penalty",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.frequencyPenalty",
     .type = kNumber,
     .fallback = "0",
     .off = "0",
     .meaning = "subtracted for each time they were seen",
     .flag = "--frequency-penalty",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.repetitionPenaltyWindow",
     .type = kWhole,
     .fallback = "0",
     .off = "0",
     .meaning = "tokens back that count as seen; 0: all",
     .flag = "--penalty-window",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.seed",
     .type = kWhole,
     .fallback = "0",
     .off = "0",
     .meaning = "the same seed gives the same text; run and chat draw one unless given",
     .flag = "--seed",
     .group = kGeneration},
    {.path = "runtime.inference.sampling.logitBias",
     .type = kBiases,
     .fallback = "{}",
     .off = "{}",
     .meaning = "ID=NUMBER, added to a token's logit; may be repeated",
     .flag = "--logit-bias",
     .group = kGeneration},
    {.path = "runtime.inference.generation.stopSequences",
     .type = kTexts,
     .fallback = "[]",
     .off = "[]",
     .meaning = "end before this text; may be repeated",
     .flag = "--stop",
     .group = kGeneration},
    {.path = "runtime.inference.generation.ignoreEos",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "go on past end-of-sequence tokens",
     .flag = "--ignore-eos",
     .group = kGeneration},
    {.path = "runtime.inference.generation.speculate",
     .type = kText,
     .fallback = "\"auto\"",
     .off = "\"off\"",
     .meaning =
         "tokens that are guessed ahead where text repeats, and checked in one step: the same tokens come "
         "faster; auto: as many as pay",
     .flag = "--speculate",
     .group = kGeneration,
     .choices = kGuesses},
    {.path = "runtime.inference.chatTemplate.disabled",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "continue the prompt as it is, without the model's chat template",
     .flag = "--raw",
     .group = kGeneration},

    {.path = "runtime.shared.tooling.intent",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning = "what a run is for: verify, investigate, or calibrate, which refuses whatever looks inside",
     .choices = kIntents},

    // Quieter than the info of Doppler's own default: a command prints its figures itself.
    {.path = "runtime.shared.debug.logLevel.defaultLogLevel",
     .type = kText,
     .fallback = "\"warn\"",
     .off = "\"silent\"",
     .meaning = "debug, verbose, info, warn, error or silent",
     .flag = "--log-level",
     .choices = kLevels},
    {.path = "runtime.shared.debug.logLevel.modules",
     .type = kTexts,
     .fallback = "[]",
     .off = "[]",
     .meaning =
         "modules that may log, such as Loader; -NAME leaves one out; empty: all; warnings always pass",
     .comma = true},
    {.path = "runtime.shared.debug.logOutput.stdout",
     .type = kBool,
     .fallback = "true",
     .off = "false",
     .meaning = "log and trace lines on the screen: on stderr, since stdout is the answer's"},
    {.path = "runtime.shared.debug.logOutput.file",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning = "a file for all log and trace lines as JSON, one a line"},
    {.path = "runtime.shared.debug.logOutput.append",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "append to that file instead of replacing it"},
    {.path = "runtime.shared.debug.logHistory.maxLogHistoryEntries",
     .type = kWhole,
     .fallback = "1000",
     .off = "0",
     .meaning = "lines kept in memory; a command that fails shows the last of them if the screen was off",
     .least = 0,
     .most = 1000000},
    {.path = "runtime.shared.debug.trace.enabled",
     .type = kBool,
     .fallback = "false",
     .off = "false",
     .meaning = "trace lines, by category"},
    {.path = "runtime.shared.debug.trace.categories",
     .type = kTexts,
     .fallback = "[\"all\"]",
     .off = "[]",
     .meaning =
         "loader, kernels, embed, attn, ffn, logits, kv, sample, buffers, perf or all; -NAME leaves one out",
     .flag = "--trace",
     .group = kTrace,
     .turns_on = "runtime.shared.debug.trace.enabled",
     .comma = true},
    {.path = "runtime.shared.debug.trace.layers",
     .type = kLayers,
     .fallback = "[]",
     .off = "[]",
     .meaning = "layers that are traced, such as 0,17 or 0-5; empty: all",
     .flag = "--trace-layers",
     .group = kTrace},
    {.path = "runtime.shared.debug.trace.maxDecodeSteps",
     .type = kWhole,
     .fallback = "0",
     .off = "0",
     .meaning = "decode steps that are traced after the prompt; 0: all",
     .flag = "--trace-steps",
     .group = kTrace},
    {.path = "runtime.shared.debug.trace.file",
     .type = kText,
     .fallback = "null",
     .off = "null",
     .meaning = "a file for the trace lines as JSON, one a line, besides the screen",
     .flag = "--trace-file",
     .group = kTrace},
    {.path = "runtime.shared.debug.probes",
     .type = kProbes,
     .fallback = "[]",
     .off = "[]",
     .meaning = "values to print as they are computed, by stage, layers, tokens and dims"},
    {.path = "runtime.shared.debug.debugLayers",
     .type = kLayers,
     .fallback = "null",
     .off = "null",
     .meaning = "layers whose state is printed as a checkpoint; empty: all; null: none"},
});

constexpr std::array<SettingAlias, 2> kAliases = {{
    {"runtime.inference.generation.maxTokens", "runtime.inference.batching.maxTokens"},
    {"runtime.shared.debug.logLevel.level", "runtime.shared.debug.logLevel.defaultLogLevel"},
}};

constexpr std::array<ProbeField, 6> kProbeFields = {{
    {"id", kText, false, "a name to find its lines by"},
    {"stage", kText, true, "the stage it reads, such as layer_out"},
    {"layers", kLayers, false, "the layers; empty or null: all"},
    {"tokens", kNumber, false, "the tokens of the prompt, negative ones from its end; 0 unless given"},
    {"dims", kWhole, false, "the dimensions"},
    {"category", kText, false, "the trace category its lines belong to, unless the stage's own"},
}};

}  // namespace

std::span<const SettingInfo> all_settings() {
  return kSettings;
}

const SettingInfo* find_setting(std::string_view path) {
  const auto at = std::find_if(kSettings.begin(), kSettings.end(),
                               [&](const SettingInfo& info) { return info.path == path; });
  return at == kSettings.end() ? nullptr : &*at;
}

bool is_setting_below(std::string_view path, std::string_view group) {
  return path.size() > group.size() && path.starts_with(group) && path[group.size()] == '.';
}

bool is_setting_group(std::string_view path) {
  return std::any_of(kSettings.begin(), kSettings.end(),
                     [&](const SettingInfo& info) { return is_setting_below(info.path, path); });
}

std::span<const SettingAlias> all_setting_aliases() {
  return kAliases;
}

std::span<const ProbeField> all_probe_fields() {
  return kProbeFields;
}

}  // namespace doppler::config
