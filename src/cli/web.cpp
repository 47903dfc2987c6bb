// doppler web: the WebAssembly build in a browser, examined from the command line: whether it says what this
// program says, and how fast it is there.
#include <fmt/core.h>

#include <cmath>

#include "base/json.h"
#include "base/layout.h"
#include "base/screen.h"
#include "base/text.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/statistics.h"
#include "cli/command.h"
#include "cli/looking.h"
#include "cli/models.h"
#include "cli/web/session.h"
#include "diagnosis/look/debug_config.h"
#include "engine/access.h"
#include "engine/loaded.h"

namespace doppler::cli {
namespace {

struct WebArguments {
  std::string model;
  WebFlags browser;
  LookFlags look;
  PromptFlags prompt;
  std::uint64_t prefill = 128, decode = 32, repetitions = 5;
};

// What the page gives to Doppler.load(): the settings that were given, by the names of docs/config.md there.
Json load_options(const Settings& settings) {
  struct Row {
    const char *path, *name;
    Json value;
  };
  const LoadOptions& load = settings.load;
  const Row rows[] = {{"runtime.backend", "backend", load.backend},
                      {"runtime.threads", "threads", load.threads},
                      {"runtime.family", "family", load.family},
                      {"runtime.inference.kvcache.maxSeqLen", "context", load.context},
                      {"runtime.inference.kvcache.kvDtype", "kv_type", load.kv_type},
                      {"runtime.cpu.exact", "exact", load.exact},
                      {"runtime.cpu.target", "cpu_target", load.cpu_target}};
  Json options = Json::object();
  for (const Row& row : rows) {
    if (settings.given(row.path)) options[row.name] = row.value;
  }
  return options;
}

Json generate_options(const GenerateOptions& options) {
  Json biases = Json::object();
  for (const auto& [id, bias] : options.logit_bias) biases[std::to_string(id)] = bias;
  return {{"max_tokens", options.max_tokens},
          {"temperature", options.temperature},
          {"top_k", options.top_k},
          {"top_p", options.top_p},
          {"min_p", options.min_p},
          {"repeat_penalty", options.repeat_penalty},
          {"presence_penalty", options.presence_penalty},
          {"frequency_penalty", options.frequency_penalty},
          {"penalty_window", options.penalty_window},
          {"seed", options.seed},
          {"stop", options.stop},
          {"logit_bias", biases},
          {"ignore_eos", options.ignore_eos},
          {"speculate", options.speculate}};
}

// --probe and --trace as the page passes them on.
Result<Json> watched(const LookFlags& flags, const SettingFlags& given) {
  const Json debug = debug_settings(given);
  DOPPLER_ASSIGN(diagnosis::DebugConfig config, diagnosis::read_debug_config(debug));
  for (const std::string& text : flags.probes) {
    DOPPLER_ASSIGN(diagnosis::Probe probe, diagnosis::parse_probe(text));
    config.probes.push_back(std::move(probe));
  }
  Json watch = Json::object();
  for (const diagnosis::Probe& probe : config.probes) watch["probes"].push_back(diagnosis::probe_text(probe));
  const Json& trace = debug["trace"];
  if (trace["enabled"] == true) {
    watch["trace"] = trace["categories"];
    watch["trace_layers"] = trace["layers"];
    watch["trace_steps"] = trace["maxDecodeSteps"];
  }
  return watch;
}

WebTask task_of(const WebArguments& arguments, const SettingFlags& given) {
  const bool chosen = given.flags.given("runtime.backend");
  return {.model = arguments.model,
          .load = load_options(given.flags),
          .gpu = chosen && given.flags.load.backend != "cpu" && given.flags.load.backend != "reference"};
}

// One generation of the browser's beside the program's.
struct WebVerdict {
  bool same = true;
  std::string said;
};

// Kernels that sum in another order round some activations otherwise, which moved log probabilities of the
// tests' models by less than this; which of two tokens so near is the likelier one is no fault.
constexpr double kTie = 0.1;

WebVerdict compare_ids(const Generation& native, const std::vector<TokenId>& ids) {
  const std::size_t common = std::min(native.ids.size(), ids.size());
  std::size_t at = 0;
  while (at < common && native.ids[at] == ids[at]) ++at;
  if (at == native.ids.size() && at == ids.size())
    return {true, fmt::format("the same {}", counted(at, "token"))};
  if (at == common)
    return {false,
            fmt::format("{} where the program has {}", counted(ids.size(), "token"), native.ids.size())};
  const TokenLogprobs& here = native.logprobs[at];
  for (const LikelyToken& likely : here.top) {
    const double margin = here.logprob - likely.logprob;
    if (likely.id != ids[at]) continue;
    return {
        std::abs(margin) <= kTie,
        fmt::format("token {} is {} where the program has {}, which it holds for likelier by {:.3f} nats{}",
                    at, ids[at], native.ids[at], margin,
                    std::abs(margin) <= kTie ? ": a tie, which rounding decides" : "")};
  }
  return {false, fmt::format("token {} is {} where the program has {}, and it is none of the likeliest there",
                             at, ids[at], native.ids[at])};
}

struct NativeSide {
  Generation made;
  std::vector<TokenId> prompt;
  GenerateOptions options;
};

// What this program says, on the cpu, which tests hold to the reference.
Result<NativeSide> run_natively(const WebArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const std::string text, prompt_text(arguments.prompt));
  Settings settings = given.flags;
  settings.load.backend = "cpu";
  settings.load.cpu_target.clear();
  DOPPLER_ASSIGN(Engine engine, load_engine(arguments.model, settings));
  NativeSide side;
  side.options = engine.default_options();
  if (!settings.given("runtime.inference.batching.maxTokens")) side.options.max_tokens = 32;
  settings.apply(side.options);
  // Draws would hide what they follow from.
  if (!settings.given("runtime.inference.sampling.temperature")) side.options.temperature = 0;
  DOPPLER_ASSIGN(side.prompt, prompt_ids(engine, arguments.prompt, text, settings.raw));
  constexpr int kTop = 10;  // of tokens beyond, a tie is out of the question
  side.options.logprobs = kTop;
  DOPPLER_ASSIGN(side.made, engine.generate(side.prompt, side.options, {}, nullptr));
  return side;
}

std::vector<TokenId> ids_in(const Json& generation) {
  std::vector<TokenId> ids;
  for (const Json& id : generation.value("ids", Json::array())) {
    if (id.is_number_integer()) ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Result<int> tell_test(const Json& result, const NativeSide& native, bool json) {
  Json runs = Json::array();
  bool same = true;
  for (const Json& run : result["runs"]) {
    const Json& generation = run["generations"][0];
    const WebVerdict verdict = compare_ids(native.made, ids_in(generation));
    same = same && verdict.same;
    const char* const kind = run["cold"] == true ? "cold" : "warm";
    const std::string where = run.value("device", run["backend"].get<std::string>());
    if (!json)
      DOPPLER_TRY(print(fit_lines(fmt::format("{}, on {}, ready in {:.0f} ms: {}\n", kind, where,
                                              run.value("ready_ms", 0.0), verdict.said))));
    Json told = run;
    told["same"] = verdict.same;
    told["said"] = verdict.said;
    runs.push_back(std::move(told));
  }
  for (const Json& note : result["runs"][0]["notes"]) {
    if (!json && note.is_string()) say(Said::kNote, note.get<std::string>());
  }
  if (json) {
    DOPPLER_TRY(print_json({{"same", same},
                            {"browser", result["browser"]},
                            {"isolated", result["isolated"]},
                            {"native", {{"ids", native.made.ids}, {"text", native.made.text}}},
                            {"prompt_ids", native.prompt},
                            {"runs", runs}}));
  } else {
    DOPPLER_TRY(print(same ? "The browser says what this program says.\n"
                           : "The browser says something ELSE. Look at it with --probe and --trace, here and "
                             "in doppler run.\n"));
  }
  return same ? kDone : kAnswerIsNo;
}

// The page is the program's own, but what it posts may be anybody's: its shape is looked at once, here.
Status check_runs(const Json& result, std::size_t runs, std::size_t generations) {
  const auto list = [](const Json& in, const char* key, std::size_t size) {
    return in.is_object() && in.contains(key) && in[key].is_array() && in[key].size() == size;
  };
  const auto has = [](const Json& in, const char* key, auto is) {
    return in.contains(key) && (in[key].*is)();
  };
  bool good = list(result, "runs", runs) && has(result, "browser", &Json::is_string) &&
              has(result, "processors", &Json::is_number) && has(result, "isolated", &Json::is_boolean);
  for (std::size_t i = 0; good && i < runs; ++i) {
    const Json& run = result["runs"][i];
    good = list(run, "generations", generations) && has(run, "ready_ms", &Json::is_number) &&
           has(run, "notes", &Json::is_array) && has(run, "cold", &Json::is_boolean) &&
           has(run, "backend", &Json::is_string) && (!run.contains("device") || run["device"].is_string());
    for (std::size_t g = 0; good && g < generations; ++g) {
      const Json& generation = run["generations"][g];
      good = generation.is_object() && has(generation, "ids", &Json::is_array) &&
             has(generation, "timings", &Json::is_object);
    }
  }
  if (good) return {};
  return fail(ErrorCode::kInternal,
              "The page has reported what it was not asked for. Run make web: build/web may be older than "
              "this program.");
}

Result<int> web_test(const WebArguments& arguments, const SettingFlags& given) {
  WebTask task = task_of(arguments, given);
  DOPPLER_ASSIGN(task.watch, watched(arguments.look, given));
  DOPPLER_ASSIGN(const NativeSide native, run_natively(arguments, given));
  task.options = generate_options(native.options);
  task.prompts = Json::array({native.prompt});
  task.runs = {true, false};
  const CancelToken cancel;
  const InterruptGuard guard(cancel);
  Result<Json> result = run_in_browser(arguments.browser, task, cancel);
  if (!result && cancel.cancelled()) return guard.status(kNotPossible);
  DOPPLER_TRY(result);
  DOPPLER_TRY(check_runs(*result, task.runs.size(), task.prompts.size()));
  return tell_test(*result, native, given.json);
}

// The last generation of each run counts: browsers compile what runs long once more.
Json speed_json(const Json& result, bool cold) {
  std::vector<double> ready, prompt, decode, download;
  for (const Json& run : result["runs"]) {
    if ((run["cold"] == true) != cold) continue;
    const Json& timings = run["generations"].back()["timings"];
    ready.push_back(run["ready_ms"].get<double>() / 1000);
    prompt.push_back(timings.value("prompt_tokens_per_second", 0.0));
    decode.push_back(timings.value("decode_tokens_per_second", 0.0));
    if (cold) download.push_back(run.value("download_ms", 0.0) / 1000);
  }
  Json json = {{"ready_seconds", bench::to_json(bench::summarise(ready))},
               {"prefill_tokens_per_second", bench::to_json(bench::summarise(prompt))},
               {"decode_tokens_per_second", bench::to_json(bench::summarise(decode))}};
  if (cold) json["download_seconds"] = bench::to_json(bench::summarise(download));
  return json;
}

std::string speed_text(const Json& measured) {
  Table table({{"", Column::Kind::kName},
               {"ready", Column::Kind::kNumber},
               {fmt::format("prompt of {}", measured["prefill"].get<std::uint64_t>()), Column::Kind::kNumber},
               {"decode", Column::Kind::kNumber}});
  for (const char* const kind : {"cold", "warm"}) {
    const auto median = [&](const char* what) { return measured[kind][what]["median"].get<double>(); };
    table.add({kind, fmt::format("{:.2f} s", median("ready_seconds")),
               fmt::format("{:.1f}/s", median("prefill_tokens_per_second")),
               fmt::format("{:.1f}/s", median("decode_tokens_per_second"))});
  }
  return fmt::format(
      "{} in {}\n{}The first download took {:.2f} s. Medians of {} warm runs; ready counts from the kept "
      "model's address.\n",
      measured["backend"].get<std::string>(), measured["browser"].get<std::string>(),
      table.text(table_columns()), measured["cold"]["download_seconds"]["median"].get<double>(),
      measured["repetitions"].get<std::uint64_t>());
}

Result<int> web_bench(const WebArguments& arguments, const SettingFlags& given) {
  WebTask task = task_of(arguments, given);
  DOPPLER_ASSIGN(task.watch, watched(arguments.look, given));
  DOPPLER_ASSIGN(const Model model, load_model_for_description(arguments.model, given.flags.load.family));
  task.prompts = Json::array();
  for (const std::uint64_t first : {std::uint64_t{0}, arguments.prefill}) {  // two that share no beginning
    Json ids = Json::array();
    for (std::uint64_t i = 0; i < arguments.prefill; ++i)
      ids.push_back(bench::bench_token(first + i, model.spec.vocab_size));
    task.prompts.push_back(std::move(ids));
  }
  GenerateOptions options;
  options.max_tokens = arguments.decode;
  options.ignore_eos = true;
  options.temperature = 0;
  task.options = generate_options(options);
  task.runs.assign(arguments.repetitions + 1, false);
  task.runs[0] = true;
  const CancelToken cancel;
  const InterruptGuard guard(cancel);
  Result<Json> result = run_in_browser(arguments.browser, task, cancel);
  if (!result && cancel.cancelled()) return guard.status(kNotPossible);
  DOPPLER_TRY(result);
  DOPPLER_TRY(check_runs(*result, task.runs.size(), task.prompts.size()));
  const Json& first = (*result)["runs"][0];
  const Json measured = {{"suite", "web"},
                         {"schema", bench::kReportSchema},
                         {"model", arguments.model},
                         {"date", bench::utc_date()},
                         {"browser", result->value("browser", "")},
                         {"processors", (*result)["processors"]},
                         {"isolated", (*result)["isolated"]},
                         {"backend", first["backend"]},
                         {"device", first.value("device", Json(nullptr))},
                         {"memory", first.value("memory", Json(nullptr))},
                         {"notes", first["notes"]},
                         {"prefill", arguments.prefill},
                         {"decode", arguments.decode},
                         {"repetitions", arguments.repetitions},
                         {"cold", speed_json(*result, true)},
                         {"warm", speed_json(*result, false)}};
  if (given.json) {
    DOPPLER_TRY(print_json(measured));
    return kDone;
  }
  DOPPLER_TRY(print(speed_text(measured)));
  for (const Json& note : measured["notes"]) {
    if (note.is_string()) say(Said::kNote, note.get<std::string>());
  }
  return kDone;
}

}  // namespace

Run add_web(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<WebArguments>();
  Command test =
      command.add_part("test", "let the model answer here and in a browser, and compare the tokens");
  add_model(test, given, "MODEL", arguments->model, "a model folder or file").required();
  add_prompt_flags(test, arguments->prompt);
  Command bench =
      command.add_part("bench", "time a first load in a browser, later loads, prompts and generating");
  add_model(bench, given, "MODEL", arguments->model, "a model folder or file").required();
  bench.add_option("--prefill", arguments->prefill, "tokens of the prompt").show_default().positive();
  bench.add_option("--decode", arguments->decode, "tokens generated after it").show_default().positive();
  bench.add_option("--repetitions", arguments->repetitions, "warm runs, each of an engine of its own")
      .show_default()
      .positive();
  command.require_part();
  add_web_flags(command, arguments->browser);
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given, bench] {
    return bench.chosen() ? web_bench(*arguments, given) : web_test(*arguments, given);
  };
}

}  // namespace doppler::cli
