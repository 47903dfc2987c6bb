// doppler run: one prompt, one answer.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/models.h"
#include "cli/looking.h"
#include "engine/access.h"
#include "engine/fallbacks.h"

namespace doppler::cli {
namespace {

struct RunArguments {
  std::string model;
  PromptFlags prompt;
  LookFlags look;
};

Json timings_json(const Timings& t) {
  return {{"load_ms", t.load_ms},
          {"prompt_ms", t.prompt_ms},
          {"decode_ms", t.decode_ms},
          {"prompt_tokens", t.prompt_tokens},
          {"cached_tokens", t.cached_tokens},
          {"generated_tokens", t.generated_tokens},
          {"prompt_tokens_per_second", t.prompt_tokens_per_second()},
          {"decode_tokens_per_second", t.decode_tokens_per_second()}};
}

Result<int> run(const RunArguments& arguments, const SettingFlags& given) {
  const Settings& settings = given.flags;
  DOPPLER_ASSIGN(const std::string text, prompt_text(arguments.prompt));
  const CancelToken cancel;
  const InterruptGuard guard(cancel);
  DOPPLER_ASSIGN(Engine engine, load_engine(arguments.model, settings));
  GenerateOptions options = engine.default_options();
  settings.apply(options);
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, EngineAccess::loaded(engine)));
  DOPPLER_ASSIGN(const auto ids, prompt_ids(engine, arguments.prompt, text, settings.raw));
  DOPPLER_TRY(looking->begin(ids.size(), false));
  EngineAccess::look(engine, looking->tap());

  Status printed;
  const OnText on_text = [&](std::string_view piece) {
    if (!given.json) printed = print(piece);
    return printed.has_value();
  };
  DOPPLER_ASSIGN(const Generation result, engine.generate(ids, options, on_text, &cancel));
  DOPPLER_TRY(printed);
  const std::string_view reason = stop_reason_name(result.stop_reason);
  if (given.json) {
    looking->end();
    Json json = {{"text", result.text},
                 {"ids", result.ids},
                 {"prompt_ids", result.prompt_ids},
                 {"stop_reason", reason},
                 {"backend", engine.backend_name()},
                 {"backend_choice", engine.backend_choice()},
                 {"fallbacks", fallbacks_json(EngineAccess::loaded(engine).backend->fallbacks())},
                 {"timings", timings_json(result.timings)}};
    if (const Json probes = looking->probes(); !probes.is_null()) json["probes"] = probes;
    DOPPLER_TRY(print_json(json));
    return kDone;
  }
  if (!engine.has_tokenizer()) {
    DOPPLER_TRY(print(fmt::format("{}", fmt::join(result.ids, ","))));
  }
  DOPPLER_TRY(print("\n"));
  const Timings& t = result.timings;
  fmt::print(
      stderr,
      "{}: loaded in {:.0f} ms; {} prompt tokens at {:.1f}/s; {} generated at {:.1f}/s; stopped by {}\n",
      engine.backend_name(), t.load_ms, t.prompt_tokens, t.prompt_tokens_per_second(), t.generated_tokens,
      t.decode_tokens_per_second(), reason);
  looking->end();
  return kDone;
}

}  // namespace

Run add_run(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<RunArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file").required();
  add_prompt_flags(command, arguments->prompt);
  command.add_option("--system", arguments->prompt.system, "what the model is told before the conversation");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given] { return run(*arguments, given); };
}

}  // namespace doppler::cli
