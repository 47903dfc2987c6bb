// doppler chat: a conversation in the terminal.
#include <fmt/core.h>

#include <iostream>

#include "cli/command.h"
#include "cli/models.h"
#include "cli/looking.h"
#include "engine/access.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

struct ChatArguments {
  std::string model, system;
  LookFlags look;
};

constexpr const char* kHelp =
    "/clear starts over, /system TEXT sets the system text and starts over, /exit or Ctrl-D ends; Ctrl-C "
    "stops an answer\n";

class Conversation {
 public:
  Conversation(Engine& engine, Looking& looking, GenerateOptions options, std::string system, bool json)
      : engine_(engine), looking_(looking), options_(std::move(options)), json_(json) {
    EngineAccess::look(engine, looking.tap());
    start(std::move(system));
  }

  void start(std::string system) {
    messages_.clear();
    if (!system.empty()) messages_.push_back({"system", std::move(system)});
  }

  // One turn. A turn that fails leaves the conversation as it was.
  Status say(const std::string& text) {
    messages_.push_back({"user", text});
    const CancelToken cancel;
    const InterruptGuard guard(cancel);
    Status printed;
    const OnText on_text = [&](std::string_view piece) {
      if (!json_) printed = print(piece);
      return printed.has_value();
    };
    Result<Generation> answer = answer_to(on_text, cancel);
    if (!answer) {
      messages_.pop_back();
      return std::unexpected(std::move(answer).error());
    }
    DOPPLER_TRY(printed);
    if (!json_) DOPPLER_TRY(print("\n"));
    if (answer->stop_reason == StopReason::kContextEnd) {
      fmt::print(
          stderr,
          "The conversation fills the context of {} tokens. /clear starts over; --context makes it longer.\n",
          engine_.context());
    }
    messages_.push_back({"assistant", answer->text});
    return {};
  }

  std::span<const Message> messages() const { return messages_; }

 private:
  Result<Generation> answer_to(const OnText& on_text, const CancelToken& cancel) {
    DOPPLER_ASSIGN(const auto ids, chat_ids(engine_, messages_));
    // Turns differ in length: a probe that cannot fire in this one may fire in the next.
    (void)looking_.begin(ids.size(), false);
    return engine_.generate(ids, options_, on_text, &cancel);
  }

  Engine& engine_;
  Looking& looking_;
  const GenerateOptions options_;
  const bool json_;
  std::vector<Message> messages_;
};

// True if the line was a command to the program and not to the model.
bool obey(const std::string& line, Conversation& conversation, bool& done) {
  if (!line.starts_with('/')) return false;
  if (line == "/exit" || line == "/quit")
    done = true;
  else if (line == "/clear")
    conversation.start("");
  else if (line.starts_with("/system"))
    conversation.start(line.size() > 8 ? line.substr(8) : "");
  else
    fmt::print(stderr, "{}", kHelp);
  return true;
}

Result<int> chat(const ChatArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(Engine engine, load_engine(arguments.model, given.flags));
  // Reports a missing tokenizer or template at once, not after the first question.
  DOPPLER_TRY(chat_ids(engine, std::vector<Message>{{"user", "Hello"}}));
  GenerateOptions options = engine.default_options();
  given.flags.apply(options);
  // An answer may be as long as the context allows unless told otherwise.
  if (!given.flags.given("runtime.inference.batching.maxTokens"))
    options.max_tokens = static_cast<std::uint32_t>(engine.context());
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, EngineAccess::loaded(engine)));
  Conversation conversation(engine, *looking, options, arguments.system, given.json);
  const bool terminal = system::is_terminal(system::Stream::kInput) && !given.json;
  if (terminal) fmt::print(stderr, "{}", kHelp);
  bool done = false, failed = false;
  std::string line;
  while (!done) {
    if (terminal) DOPPLER_TRY(print("> "));
    if (!std::getline(std::cin, line)) break;
    if (line.empty() || obey(line, conversation, done)) continue;
    const Status status = conversation.say(line);
    if (status) continue;
    failed = true;
    fmt::print(stderr, "doppler: {}\n", status.error().message);
    if (!terminal) break;
  }
  if (given.json) {
    Json messages = Json::array();
    for (const Message& message : conversation.messages())
      messages.push_back({{"role", message.role}, {"content", message.content}});
    DOPPLER_TRY(print_json({{"messages", messages}}));
  } else if (terminal && !done) {
    DOPPLER_TRY(print("\n"));
  }
  looking->end();
  return failed && !terminal ? kNotPossible : kDone;
}

}  // namespace

Run add_chat(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<ChatArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file with a chat template").required();
  command.add_option("--system", arguments->system, "what the model is told before the conversation");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true);
  return [arguments, &given] { return chat(*arguments, given); };
}

}  // namespace doppler::cli
