// doppler chat: a conversation in the terminal, or from a pipe.
#include <fmt/core.h>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/chat/chat.h"
#include "cli/chat/commands.h"
#include "cli/chat/wrap.h"
#include "cli/command.h"
#include "cli/seed.h"
#include "engine/access.h"
#include "system/terminal.h"

namespace doppler::cli {

void tell(std::string_view line) {
  while (line.ends_with('\n')) line.remove_suffix(1);
  say(Said::kNote, line);
}

namespace {

void tell_error(const Error& error) {
  say(Said::kError, "doppler: " + error.message);
}

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

  // Until somebody leaves. False if a pipe's message or command failed, which ends the chat.
  Result<bool> hold() {
    for (;;) {
      DOPPLER_ASSIGN(const TypedMessage typed, reader_.next());
      if (typed.kind == Typed::Kind::kEnd) break;
      if (typed.kind == Typed::Kind::kInterrupt) {
        if (std::exchange(warned_, true)) return true;
        tell("Ctrl-C once more leaves, as Ctrl-D and /exit do.");
        continue;
      }
      warned_ = false;
      const Result<Chat::Next> next = take(typed);
      if (!next) {
        tell_error(next.error());
        if (!chat_.has_terminal) return false;
      } else if (*next == Chat::Next::kLeave) {
        return true;
      }
    }
    if (chat_.has_terminal) DOPPLER_TRY(print("\n"));
    return true;
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
    if (chat_.has_terminal && chat_.was_stopped()) {
      tell("Stopped. Ctrl-C once more leaves.");
      warned_ = true;
    }
    return next;
  }

  void remember(const std::string& text) {
    reader_.remember(text);
    if (const Status kept = history_.add(text); !kept) tell_error(kept.error());
  }

  // So that a chat that ends in any way can go on.
  void keep() {
    if (!keeps_ || last_conversation_file().empty()) return;
    const Json json = conversation_json(chat_.conversation);
    const Status kept = write_kept_file(last_conversation_file(),
                                        json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
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
  tell(fmt::format("{} on {}, context of {} tokens{}", printable(chat.model), chat.engine.backend_name(),
                   chat.engine.context(), drawn));
  tell("/help lists the commands, \"\"\" begins a message of many lines, Ctrl-D leaves");
}

Status check_on_full(const std::string& value) {
  if (value == "shift" || value == "stop") return {};
  return fail(ErrorCode::kUsage, "--on-full is set to {}, but it must be shift or stop.", printable(value));
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
  if (chat.has_terminal) greet(chat);
  Talk talk(chat, chat.has_terminal && !arguments.keep_nothing);
  DOPPLER_ASSIGN(const bool well, talk.hold());
  if (given.json) {
    Json json = conversation_json(chat.conversation);
    json["seed"] = chat.parameters.options().seed;
    DOPPLER_TRY(print_json(json));
  }
  looking->end();
  return well ? kDone : kNotPossible;
}

Run add_chat(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<ChatArguments>();
  command.add_option("MODEL", arguments->model, "a model folder or file with a chat template").required();
  command.add_option("--system", arguments->system, "what the model is told before the conversation");
  command
      .add_option("--on-full", arguments->on_full,
                  "when the context is full: shift leaves out the oldest turns, stop ends the answer")
      .show_default();
  command.add_flag("--keep-nothing", arguments->keep_nothing,
                   "keep neither a history of what is typed nor the last conversation");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given] { return hold_chat(*arguments, given); };
}

}  // namespace doppler::cli
