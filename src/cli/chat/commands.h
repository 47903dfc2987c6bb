// The commands of a chat: what begins with a slash.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/chat/chat.h"

namespace doppler::cli {

struct ChatCommand {
  std::string_view name;       // "/save"
  std::string_view arguments;  // "FILE", "[NAME [VALUE]]"
  std::string_view what;
  // Does it and says so in a line. `argument`: what follows the name, without spaces around it.
  Result<Chat::Next> (*run)(Chat& chat, std::string_view argument);
  // What Tab may put after the name, where `typed` stands; null: nothing.
  std::vector<std::string> (*words)(std::string_view typed) = nullptr;
};
std::span<const ChatCommand> all_chat_commands();

// The command that the first word of `line` names, perhaps by a name that other programs use. Errors: kUsage
// with the nearest.
Result<const ChatCommand*> find_chat_command(std::string_view line);

// Runs the command of a line that begins with a slash.
Result<Chat::Next> run_chat_command(Chat& chat, std::string_view line);

}  // namespace doppler::cli
