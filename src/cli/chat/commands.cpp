#include "cli/chat/commands.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/unicode.h"
#include "cli/chat/external_editor.h"
#include "cli/chat/kept_files.h"
#include "cli/chat/show.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::cli {
namespace {

using Next = Chat::Next;

constexpr std::uint64_t kMostConversationBytes = 64 << 20;  // far beyond any context
constexpr std::uint64_t kMostFileBytes = 4 << 20;  // a million tokens of text, more than contexts hold

// The first word, and what follows it.
std::pair<std::string_view, std::string_view> divided(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  return {text.substr(0, end), trimmed(text.substr(end))};
}

// Quotes around a path that is typed are none of it.
std::filesystem::path path_of(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  return typed_path(text);
}

Result<Next> help(Chat&, std::string_view argument) {
  if (!argument.empty()) {
    DOPPLER_ASSIGN(const ChatCommand* const command, find_chat_command(argument));
    tell(fmt::format("{} {}: {}", command->name, command->arguments, command->what));
    return Next::kListen;
  }
  for (const ChatCommand& each : all_chat_commands())
    tell(fmt::format("{:22} {}", fmt::format("{} {}", each.name, each.arguments), each.what));
  tell(R"("""                    begins and ends a message of many lines)");
  tell("Alt-Enter              begins a new line of the message");
  tell("Ctrl-C                 stops the answer or drops the line; twice: leaves");
  return Next::kListen;
}

Result<Next> clear(Chat& chat, std::string_view) {
  chat.conversation.clear();
  chat.attached.clear();
  tell(chat.conversation.system.empty() ? "The conversation is empty."
                                        : "The conversation is empty; the system text stays.");
  return Next::kListen;
}

Result<Next> system_text(Chat& chat, std::string_view argument) {
  std::string& text = chat.conversation.system;
  if (argument.empty()) {
    tell(text.empty() ? "There is no system text. /system TEXT sets one." : "The system text: " + text);
    return Next::kListen;
  }
  text = argument == "none" || argument == "\"\"" ? "" : std::string(argument);
  tell(text.empty() ? "There is no system text from here on."
                    : "The system text is set for the answers from here on; /clear starts over with it.");
  return Next::kListen;
}

Result<Next> set(Chat& chat, std::string_view argument) {
  auto [name, value] = divided(argument);
  if (name == "parameter") std::tie(name, value) = divided(value);  // as ollama has it
  if (name.empty()) {
    tell(switches_table(chat) + chat.parameters.table() + "/set NAME says what a value may be.");
    return Next::kListen;
  }
  DOPPLER_ASSIGN(const std::string said, set_by_name(chat, name, value));
  tell(said);
  return Next::kListen;
}

Result<Next> show(Chat& chat, std::string_view argument) {
  DOPPLER_ASSIGN(const std::string text, show_part(chat, argument));
  tell(text);
  return Next::kListen;
}

Result<Next> save(Chat& chat, std::string_view argument) {
  if (argument.empty()) return fail(ErrorCode::kUsage, "/save needs a file's name. Write /save FILE.");
  const std::filesystem::path path = path_of(argument);
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(path));
  DOPPLER_TRY(file.write(dump_json(messages_json(all_messages(chat.conversation)), 2) + "\n"));
  DOPPLER_TRY(file.commit());
  tell(fmt::format("Saved {} to {}.", counted(chat.conversation.messages().size(), "message"),
                   printable_path(path)));
  return Next::kListen;
}

Result<Next> load(Chat& chat, std::string_view argument) {
  const std::filesystem::path path = argument.empty() ? last_conversation_file() : path_of(argument);
  if (path.empty()) return fail(ErrorCode::kUsage, "/load needs a file's name. Write /load FILE.");
  if (argument.empty() && !system::exists(path))
    return fail(ErrorCode::kNotFound, "No conversation was kept yet. Write /load FILE for one of /save.");
  DOPPLER_ASSIGN(const std::string text, read_text_file(path, kMostConversationBytes));
  DOPPLER_ASSIGN(std::vector<Message> messages, parse_messages(text, "The file " + printable_path(path)));
  Conversation loaded = conversation_of(std::move(messages));
  // What the template refuses is known now and not at the next answer.
  if (const auto sent = loaded.sent(); !sent.empty()) DOPPLER_TRY(chat.engine.render_chat(sent));
  chat.conversation = std::move(loaded);
  tell(fmt::format("Loaded {} in {} from {}.", counted(chat.conversation.messages().size(), "message"),
                   counted(chat.conversation.turns(), "turn"), printable_path(path)));
  return Next::kListen;
}

Result<Next> retry(Chat& chat, std::string_view) {
  if (chat.conversation.last_of_user() == nullptr)
    return fail(ErrorCode::kUsage, "There is no message to answer again.");
  if (chat.parameters.options().temperature <= 0) {
    return fail(
        ErrorCode::kUsage,
        "The temperature is 0, so that the answer would be the same. Try /set temperature 0.8 first.");
  }
  chat.conversation.take_back_answer();
  chat.draw_again();
  tell("Another answer:");
  return Next::kAnswer;
}

Result<Next> undo(Chat& chat, std::string_view) {
  const std::optional<Message> message = chat.conversation.take_back_turn();
  if (!message) return fail(ErrorCode::kUsage, "There is no turn to take back.");
  tell(fmt::format("Took back \"{}\"; {} left.", printable(message->content, 40),
                   counted(chat.conversation.turns(), "turn")));
  return Next::kListen;
}

Result<Next> edit(Chat& chat, std::string_view) {
  if (!chat.has_terminal) return fail(ErrorCode::kUsage, "/edit needs a terminal for the editor.");
  const Message* const last = chat.conversation.last_of_user();
  const std::string before = last == nullptr ? "" : last->content;
  DOPPLER_ASSIGN(const std::string after, edited(before));
  if (trimmed(after).empty() || after == before) {
    tell("Nothing was changed, so nothing is sent.");
    return Next::kListen;
  }
  if (last != nullptr) chat.conversation.take_back_turn();
  chat.add_message(after);
  tell(last == nullptr ? "The message is sent:" : "The message is sent in place of the last one:");
  return Next::kAnswer;
}

Result<Next> file(Chat& chat, std::string_view argument) {
  if (argument.empty()) return fail(ErrorCode::kUsage, "/file needs a file's name. Write /file PATH.");
  const std::filesystem::path path = path_of(argument);
  DOPPLER_ASSIGN(std::string text, read_text_file(path, kMostFileBytes));
  if (!is_valid_utf8(text) || text.find('\0') != std::string::npos) {
    return fail(ErrorCode::kCorrupt, "The file {} is no text in UTF-8. Convert it first.",
                printable_path(path));
  }
  DOPPLER_ASSIGN(const auto ids, chat.engine.tokenize(text, false));
  if (ids.size() >= chat.engine.context()) {
    return fail(ErrorCode::kLimit, "The file {} has {} tokens, but the context holds {}. Raise --context.",
                printable_path(path), ids.size(), chat.engine.context());
  }
  while (text.ends_with('\n')) text.pop_back();
  if (!chat.attached.empty()) chat.attached += "\n\n";
  chat.attached += path.filename().string() + ":\n" + text;
  tell(
      fmt::format("{} ({}) goes with the next message.", printable_path(path), counted(ids.size(), "token")));
  return Next::kListen;
}

Result<Next> stats(Chat& chat, std::string_view) {
  tell(chat.last_figures());
  tell(chat.total_figures());
  return Next::kListen;
}

Result<Next> leave(Chat&, std::string_view) {
  return Next::kLeave;
}

// What other programs call them.
struct OtherCommand {
  std::string_view other, name;
};
constexpr auto kOtherCommands = std::to_array<OtherCommand>({
    {"/bye", "/exit"},
    {"/quit", "/exit"},
    {"/q", "/exit"},
    {"/?", "/help"},
    {"/regen", "/retry"},
    {"/read", "/file"},
});

}  // namespace

std::span<const ChatCommand> all_chat_commands() {
  static constexpr auto kCommands = std::to_array<ChatCommand>({
      {"/help", "[COMMAND]", "this list, or what one command does", help},
      {"/clear", "", "start over; the system text stays", clear},
      {"/system", "[TEXT]", "set the system text, or show it; none: remove it", system_text},
      {"/set", "[NAME [VALUE]]", "how answers are drawn and shown", set},
      {"/show", "[PART]", "the model, template, settings, system text, messages", show},
      {"/save", "FILE", "write the conversation as JSON", save},
      {"/load", "[FILE]", "go on with a saved one; without FILE the last one", load},
      {"/retry", "", "another answer to the last message", retry},
      {"/undo", "", "take the last message and its answer back", undo},
      {"/edit", "", "change the last message in $EDITOR and send it again", edit},
      {"/file", "PATH", "put a text file into the next message", file},
      {"/stats", "", "figures of the last answer, and of all", stats},
      {"/exit", "", "leave; /bye and /quit, too", leave},
  });
  return kCommands;
}

Result<const ChatCommand*> find_chat_command(std::string_view line) {
  std::string word(divided(trimmed(line)).first);
  if (!word.starts_with('/')) word.insert(0, "/");
  const auto other = std::find_if(kOtherCommands.begin(), kOtherCommands.end(),
                                  [&](const OtherCommand& each) { return each.other == word; });
  if (other != kOtherCommands.end()) word = other->name;
  std::vector<std::string> names;
  for (const ChatCommand& each : all_chat_commands()) {
    if (each.name == word) return &each;
    names.emplace_back(each.name);
  }
  const std::string nearest = nearest_name(word, names);
  return fail(
      ErrorCode::kUsage, "There is no command {}. {} Put a space before a message that begins with a slash.",
      printable(word, 40), nearest.empty() ? "/help lists them." : fmt::format("Did you mean {}?", nearest));
}

Result<Chat::Next> run_chat_command(Chat& chat, std::string_view line) {
  DOPPLER_ASSIGN(const ChatCommand* const command, find_chat_command(line));
  return command->run(chat, divided(trimmed(line)).second);
}

}  // namespace doppler::cli
