#include "cli/session_file.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/chat/conversation.h"
#include "system/files.h"

namespace doppler::cli {
Result<std::vector<Message>> load_session(Engine& engine, const std::string& file) {
  if (!system::exists(file)) return std::vector<Message>();
  DOPPLER_ASSIGN(Sequence own, engine.sequence());
  std::string text;
  if (Status loaded = own.load(file, &text); !loaded) {
    Error error = std::move(loaded).error();
    error.message += " Or name another file with --session, to begin anew.";
    return std::unexpected(std::move(error));
  }
  if (text.empty()) return std::vector<Message>();
  auto messages = parse_messages(text, "The text in the file " + printable(file, 200));
  if (!messages) DOPPLER_TRY(own.clear());
  return messages;
}

Status save_session(const Engine& engine, const std::string& file, std::span<const Message> messages) {
  DOPPLER_ASSIGN(const Sequence own, engine.sequence());
  return own.save(file, messages.empty()
                            ? std::string()
                            : messages_json(messages).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace doppler::cli
