// doppler run: one prompt, one answer.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/screen.h"
#include "base/text.h"
#include "cli/auto_reference.h"
#include "cli/chat/answer_view.h"
#include "cli/chat/chat.h"
#include "cli/command.h"
#include "cli/looking.h"
#include "cli/models.h"
#include "cli/seed.h"
#include "cli/session_file.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/compare_json.h"
#include "diagnosis/report/report_text.h"
#include "engine/access.h"
#include "engine/fallbacks.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

struct RunArguments {
  std::string model, session;
  PromptFlags prompt;
  LookFlags look;
  std::string reference;
};

// The model against a recording of this very prompt, after the answer.
Result<std::optional<diagnosis::Comparison>> check_reference(const RunArguments& arguments,
                                                             const Engine& engine,
                                                             const std::vector<TokenId>& ids) {
  if (arguments.reference.empty()) return std::nullopt;
  const Loaded& loaded = EngineAccess::loaded(engine);
  DOPPLER_ASSIGN(const std::string file, find_reference(arguments.reference, arguments.model, *loaded.model,
                                                        {.text = "", .ids = ids}));
  DOPPLER_ASSIGN(const diagnosis::Recording recording, diagnosis::open_recording(file));
  if (recording.prompt_ids != ids) {
    return fail(ErrorCode::kMismatch,
                "The recording {} is of another prompt ({} tokens, this one has {}). Use doppler compare, "
                "which runs the "
                "recording's own, or --reference auto.",
                printable(file, 200), recording.prompt_ids.size(), ids.size());
  }
  return diagnosis::compare_run(*loaded.backend, loaded.model->spec, recording, {}, &loaded.model->weights);
}

Json timings_json(const Timings& t) {
  return {{"load_ms", t.load_ms},
          {"prompt_ms", t.prompt_ms},
          {"decode_ms", t.decode_ms},
          {"prompt_tokens", t.prompt_tokens},
          {"cached_tokens", t.cached_tokens},
          {"generated_tokens", t.generated_tokens},
          {"guessed_tokens", t.guessed_tokens},
          {"guessed_right", t.guessed_right},
          {"prompt_tokens_per_second", t.prompt_tokens_per_second()},
          {"decode_tokens_per_second", t.decode_tokens_per_second()}};
}

// A person without a prompt wants to talk.
bool wants_chat(const RunArguments& arguments, const SettingFlags& given) {
  const PromptFlags& prompt = arguments.prompt;
  return !prompt.text_option.given() && prompt.ids.empty() && system::is_terminal(system::Stream::kInput) &&
         !given.json && !given.flags.raw;
}

// The prompt, and what is piped in besides: the instruction first, then the text that it is about.
Result<std::string> joined_prompt(const PromptFlags& prompt) {
  DOPPLER_ASSIGN(std::string text, prompt_text(prompt));
  if (!prompt.text_option.given() || !system::is_pipe_or_file(system::Stream::kInput)) return text;
  DOPPLER_ASSIGN(const std::string piped, read_piped_text());
  return piped.empty() ? text : text + "\n\n" + piped;
}

// What the session's file holds, and this run's question or text behind it.
struct Turn {
  Conversation conversation;  // without messages for plain text
  std::vector<TokenId> ids;
};

Result<Turn> next_turn(Engine& engine, const RunArguments& arguments, const std::string& text, bool raw) {
  Turn turn;
  const PromptFlags& prompt = arguments.prompt;
  if (!raw && engine.has_chat_template() && prompt.ids.empty()) {
    DOPPLER_ASSIGN(turn.conversation, resume_conversation(engine, arguments.session, prompt.system));
    turn.conversation.add({"user", text});
    DOPPLER_ASSIGN(turn.ids, chat_ids(engine, turn.conversation.sent()));
    return turn;
  }
  DOPPLER_ASSIGN(turn.ids, resume_text(engine, arguments.session));
  std::vector<TokenId> more;
  if (turn.ids.empty() || !prompt.ids.empty()) {
    DOPPLER_ASSIGN(more, prompt_ids(engine, prompt, text, raw));
  } else {
    DOPPLER_ASSIGN(more, engine.tokenize(text, false));  // no second BOS
  }
  turn.ids.insert(turn.ids.end(), more.begin(), more.end());
  return turn;
}

// Generates and shows the answer as it comes, with its words wrapped where a person reads it.
Result<Generation> shown_answer(Engine& engine, const std::vector<TokenId>& ids,
                                const GenerateOptions& options, bool silent, const CancelToken& cancel) {
  ViewOptions look = usual_view();
  look.silent = silent;
  look.dim = false;  // the text as the model gives it, the marks of its thinking included
  AnswerView view(look);
  Status printed;
  const OnText on_text = [&](std::string_view piece) {
    printed = view.show(piece, {});
    return printed.has_value();
  };
  Result<Generation> result = engine.generate(ids, options, on_text, &cancel);
  DOPPLER_TRY(printed);
  DOPPLER_TRY(result);
  if (!silent && !engine.has_tokenizer()) DOPPLER_TRY(print(fmt::format("{}", fmt::join(result->ids, ","))));
  DOPPLER_TRY(view.end());
  return result;
}

Result<int> run(const RunArguments& arguments, const SettingFlags& given) {
  const Settings& settings = given.flags;
  if (wants_chat(arguments, given))
    return hold_chat({.model = arguments.model,
                      .system = arguments.prompt.system,
                      .session = arguments.session,
                      .look = arguments.look},
                     given);
  DOPPLER_ASSIGN(const std::string text, joined_prompt(arguments.prompt));
  DOPPLER_ASSIGN(Engine engine, load_engine(arguments.model, settings));
  GenerateOptions options = engine.default_options();
  settings.apply(options);
  choose_seed(settings, options);
  tell_idle_sampling(settings, options);
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, EngineAccess::loaded(engine)));
  Turn turn;
  if (arguments.session.empty()) {
    DOPPLER_ASSIGN(turn.ids, prompt_ids(engine, arguments.prompt, text, settings.raw));
  } else {
    DOPPLER_ASSIGN(turn, next_turn(engine, arguments, text, settings.raw));
  }
  DOPPLER_TRY(looking->begin(turn.ids.size(), false));
  EngineAccess::look(engine, looking->tap());

  const CancelToken cancel;
  const InterruptGuard guard(cancel);  // before, nothing is lost when the program ends at once
  DOPPLER_ASSIGN(const Generation result, shown_answer(engine, turn.ids, options, given.json, cancel));
  if (!arguments.session.empty()) {
    if (!turn.conversation.messages().empty()) turn.conversation.add({"assistant", result.text});
    DOPPLER_TRY(keep_session(engine, arguments.session, turn.conversation));
  }
  const std::string_view reason = stop_reason_name(result.stop_reason);
  EngineAccess::look(engine, nullptr);  // probes are of the answer alone
  if (given.json) {
    looking->end();
    DOPPLER_ASSIGN(const auto comparison, check_reference(arguments, engine, turn.ids));
    Json json = {{"text", result.text},
                 {"ids", result.ids},
                 {"prompt_ids", result.prompt_ids},
                 {"stop_reason", reason},
                 {"seed", options.seed},
                 {"backend", engine.backend_name()},
                 {"backend_choice", engine.backend_choice()},
                 {"fallbacks", fallbacks_json(EngineAccess::loaded(engine).backend->fallbacks())},
                 {"timings", timings_json(result.timings)}};
    if (const Json probes = looking->probes(); !probes.is_null()) json["probes"] = probes;
    if (comparison) json["comparison"] = diagnosis::comparison_json(*comparison, engine.backend_name());
    DOPPLER_TRY(print_json(json));
    return guard.status(comparison && !comparison->agrees() ? kAnswerIsNo : kDone);
  }
  const Timings& t = result.timings;
  say(Said::kNote,
      "{}: loaded in {:.0f} ms; {} prompt tokens{} at {:.1f}/s; {} generated at {:.1f}/s{}; {}stopped by {}",
      engine.backend_name(), t.load_ms, t.prompt_tokens,
      t.cached_tokens == 0 ? "" : fmt::format(" ({} cached)", t.cached_tokens), t.prompt_tokens_per_second(),
      t.generated_tokens, t.decode_tokens_per_second(), guesses_text(t),
      options.temperature > 0 ? fmt::format("seed {}; ", options.seed) : "", reason);
  looking->end();
  DOPPLER_ASSIGN(const auto comparison, check_reference(arguments, engine, turn.ids));
  if (!comparison) return guard.status(kDone);
  say(Said::kAsked, "{}: {}", arguments.reference == "auto" ? "transformers" : arguments.reference,
      join(diagnosis::verdict_of(*comparison), " "));
  return guard.status(comparison->agrees() ? kDone : kAnswerIsNo);
}

}  // namespace

Run add_run(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<RunArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file").required();
  add_prompt_flags(command, arguments->prompt);
  command.add_option("--system", arguments->prompt.system, "what the model is told before the conversation");
  command
      .add_option(
          "--reference", arguments->reference,
          "afterwards, compare every stage with a recording of this prompt; auto: made by transformers now, "
          "where python3 has it; exit status 1 if they differ")
      .values({"auto"});
  command.add_option(
      "--session", arguments->session,
      "goes on with the conversation in this file, and keeps it there: messages, tokens, cache");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given] { return run(*arguments, given); };
}

}  // namespace doppler::cli
