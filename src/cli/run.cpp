// doppler run: one prompt, one answer.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/looking.h"
#include "cli/session_file.h"
#include "engine/access.h"
#include "engine/fallbacks.h"

namespace doppler::cli {
namespace {

struct RunArguments {
  std::string model, session;
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

// What the session's file holds, and this run's question or text behind it.
struct Turn {
  std::vector<Message> messages;  // empty for plain text
  std::vector<TokenId> ids;
};

Result<Turn> next_turn(Engine& engine, const RunArguments& arguments, const std::string& text, bool raw) {
  Turn turn;
  const bool chats = !raw && engine.has_chat_template() && arguments.prompt.ids.empty();
  DOPPLER_ASSIGN(turn.messages, load_session(engine, arguments.session));
  DOPPLER_ASSIGN(const Sequence own, engine.sequence());
  const std::vector<TokenId> held = own.tokens();
  if (!held.empty() && turn.messages.empty() == chats) {
    return fail(ErrorCode::kUsage, "The file {} holds {}. {}, or name another file with --session.",
                printable(arguments.session, 200), chats ? "plain text and no messages" : "a conversation",
                chats ? "Give --raw to go on with it" : "Leave out --raw and --prompt-ids");
  }
  if (chats) {
    const std::string& system = arguments.prompt.system;
    if (!system.empty() && !turn.messages.empty()) {
      return fail(ErrorCode::kUsage,
                  "The conversation in the file {} has begun already, so that --system comes too late. Leave "
                  "it out, or name another file with --session.",
                  printable(arguments.session, 200));
    }
    if (!system.empty()) turn.messages.push_back({"system", system});
    turn.messages.push_back({"user", text});
    DOPPLER_ASSIGN(turn.ids, chat_ids(engine, turn.messages));
    return turn;
  }
  turn.ids = held;
  std::vector<TokenId> more;
  if (held.empty() || !arguments.prompt.ids.empty()) {
    DOPPLER_ASSIGN(more, prompt_ids(engine, arguments.prompt, text, raw));
  } else {
    DOPPLER_ASSIGN(more, engine.tokenize(text, false));
  }
  turn.ids.insert(turn.ids.end(), more.begin(), more.end());
  return turn;
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
  Turn turn;
  if (arguments.session.empty()) {
    DOPPLER_ASSIGN(turn.ids, prompt_ids(engine, arguments.prompt, text, settings.raw));
  } else {
    DOPPLER_ASSIGN(turn, next_turn(engine, arguments, text, settings.raw));
  }
  DOPPLER_TRY(looking->begin(turn.ids.size(), false));
  EngineAccess::look(engine, looking->tap());

  Status printed;
  const OnText on_text = [&](std::string_view piece) {
    if (!given.json) printed = print(piece);
    return printed.has_value();
  };
  DOPPLER_ASSIGN(const Generation result, engine.generate(turn.ids, options, on_text, &cancel));
  DOPPLER_TRY(printed);
  if (!arguments.session.empty()) {
    if (!turn.messages.empty()) turn.messages.push_back({"assistant", result.text});
    DOPPLER_TRY(save_session(engine, arguments.session, turn.messages));
  }
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
      "{}: loaded in {:.0f} ms; {} prompt tokens{} at {:.1f}/s; {} generated at {:.1f}/s; stopped by {}\n",
      engine.backend_name(), t.load_ms, t.prompt_tokens,
      t.cached_tokens == 0 ? "" : fmt::format(" ({} cached)", t.cached_tokens), t.prompt_tokens_per_second(),
      t.generated_tokens, t.decode_tokens_per_second(), reason);
  looking->end();
  return kDone;
}

}  // namespace

Run add_run(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<RunArguments>();
  command.add_option("MODEL", arguments->model, "a model folder or file").required();
  add_prompt_flags(command, arguments->prompt);
  command.add_option("--system", arguments->prompt.system, "what the model is told before the conversation");
  command.add_option(
      "--session", arguments->session,
      "goes on with the conversation in this file, and keeps it there: messages, tokens, cache");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given] { return run(*arguments, given); };
}

}  // namespace doppler::cli
