// doppler chat: a conversation in the terminal, or from a pipe.
#include <fmt/core.h>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/chat/chat.h"
#include "cli/chat/commands.h"
#include "cli/command.h"
#include "cli/models.h"
#include "cli/seed.h"
#include "cli/session_file.h"
#include "engine/access.h"
#include "system/terminal.h"

namespace doppler::cli {

void tell(std::string_view line) {
  while (line.ends_with('\n')) line.remove_suffix(1);
  say(Said::kAsked, line);
}

namespace {

void tell_error(const Error& error) {
  say(Said::kError, "doppler: " + error.message);
}

constexpr int kInterrupted = kSignalled + 2;  // after Ctrl-C, SIGINT

// A chat from its first line to its last.
class Talk {
 public:
  // `keeps`: history and the newest conversation go to the user's folder.
  Talk(Chat& chat, bool keeps)
      : chat_(chat),
        keeps_(keeps),
        reader_(chat.has_terminal),
        history_(keeps ? chat_history_file() : std::filesystem::path()) {
    for (const std::string& message : history_.messages()) reader_.remember(message);
  }

  // Until somebody leaves. Returns the exit status: a pipe's message or command that fails ends the chat.
  Result<int> hold() {
    for (;;) {
      DOPPLER_ASSIGN(const TypedMessage typed, reader_.next());
      if (typed.kind == Typed::Kind::kEnd) {
        if (chat_.has_terminal) DOPPLER_TRY(print("\n"));
        return typed.signalled;
      }
      if (typed.kind == Typed::Kind::kInterrupt) {
        if (std::exchange(warned_, true)) return kDone;
        say(Said::kNote, "Ctrl-C once more leaves, as Ctrl-D and /exit do.");
        continue;
      }
      warned_ = false;
      const Result<Chat::Next> next = take(typed);
      if (next && *next == Chat::Next::kLeave) return chat_.signalled();
      if (next) continue;
      tell_error(next.error());
      if (!chat_.has_terminal) return kNotPossible;
    }
  }

 private:
  Result<Chat::Next> take(const TypedMessage& typed) {
    if (typed.text.empty() && chat_.attached.empty()) return Chat::Next::kListen;
    remember(typed.text);
    // What has several lines is a message, also one that begins with the path of a file.
    const bool command =
        !typed.quoted && typed.text.starts_with('/') && typed.text.find('\n') == std::string::npos;
    Chat::Next next = Chat::Next::kAnswer;
    if (command) {
      DOPPLER_ASSIGN(next, run_chat_command(chat_, typed.text));
    } else {
      chat_.add_message(typed.text);
    }
    if (next != Chat::Next::kAnswer) return next;
    DOPPLER_TRY(chat_.answer());
    keep();
    if (chat_.signalled() == 0) return Chat::Next::kListen;
    if (!chat_.has_terminal || chat_.signalled() != kInterrupted) return Chat::Next::kLeave;
    say(Said::kNote, "Stopped. Ctrl-C once more leaves.");
    warned_ = true;
    return Chat::Next::kListen;
  }

  void remember(const std::string& text) {
    reader_.remember(text);
    if (const Status kept = history_.add(text); !kept) tell_error(kept.error());
  }

  // So that a chat that ends in any way can go on.
  void keep() {
    if (!keeps_ || last_conversation_file().empty()) return;
    const Json json = messages_json(all_messages(chat_.conversation));
    const Status kept = write_kept_file(last_conversation_file(), dump_json(json, 2) + "\n");
    if (kept) return;
    tell_error(kept.error());
    keeps_ = false;
  }

  Chat& chat_;
  bool keeps_;
  MessageReader reader_;
  ChatHistory history_;
  bool warned_ = false;  // the last thing typed was Ctrl-C
};

void greet(const Chat& chat) {
  const GenerateOptions& options = chat.parameters.options();
  const std::string drawn = options.temperature > 0
                                ? fmt::format(", temperature {}, seed {}", options.temperature, options.seed)
                                : "";
  say(Said::kNote, "{} on {}, context of {} tokens{}", printable(chat.model), chat.engine.backend_name(),
      chat.engine.context(), drawn);
  if (const std::size_t turns = chat.conversation.turns(); turns > 0)
    say(Said::kNote, "the conversation goes on after {}", counted(turns, "turn"));
  say(Said::kNote, "/help lists the commands, \"\"\" begins a message of many lines, Ctrl-D leaves");
}

Status check_on_full(const std::string& value) {
  if (value == "shift" || value == "stop") return {};
  return fail(ErrorCode::kUsage, "The flag --on-full is set to {}, but it must be shift or stop.",
              printable(value));
}

}  // namespace

Result<int> hold_chat(const ChatArguments& arguments, const SettingFlags& given) {
  DOPPLER_TRY(check_on_full(arguments.on_full));
  DOPPLER_ASSIGN(Engine engine, load_engine(arguments.model, given.flags));
  // Reports a missing tokenizer or template at once, not after the first question.
  DOPPLER_TRY(chat_ids(engine, std::vector<Message>{{"user", "Hello"}}));
  GenerateOptions model = engine.default_options();
  model.max_tokens = static_cast<std::uint32_t>(engine.context());  // as long as the context allows
  choose_seed(given.flags, model);
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, EngineAccess::loaded(engine)));
  Chat chat(engine, *looking, Parameters(given.flags, model), arguments);
  chat.has_terminal = system::is_terminal(system::Stream::kInput) && !given.json;
  chat.view = usual_view();
  chat.view.silent = given.json;
  if (!arguments.session.empty()) {
    DOPPLER_ASSIGN(chat.conversation, resume_conversation(engine, arguments.session, arguments.system));
  }
  if (chat.has_terminal) greet(chat);
  Talk talk(chat, chat.has_terminal && !arguments.keep_nothing);
  const Result<int> status = talk.hold();
  // Also after an error: what was said before is not lost.
  if (!arguments.session.empty() && !chat.conversation.messages().empty())
    DOPPLER_TRY(keep_session(engine, arguments.session, chat.conversation));
  if (!status) return status;
  if (given.json) {
    Json json = messages_json(all_messages(chat.conversation));
    json["seed"] = chat.parameters.options().seed;
    DOPPLER_TRY(print_json(json));
  }
  looking->end();
  return *status;
}

Run add_chat(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<ChatArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file with a chat template")
      .required();
  command.add_option("--system", arguments->system, "what the model is told before the conversation");
  command
      .add_option("--on-full", arguments->on_full,
                  "when the context is full: shift leaves out the oldest turns, stop ends the answer")
      .values({"shift", "stop"})
      .show_default();
  command.add_option(
      "--session", arguments->session,
      "goes on with the conversation in this file, and keeps it there at the end: messages, tokens, cache");
  command.add_flag("--keep-nothing", arguments->keep_nothing,
                   "keep neither a history of what is typed nor the last conversation");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given] { return hold_chat(*arguments, given); };
}

}  // namespace doppler::cli
