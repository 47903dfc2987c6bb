#include "cli/session_file.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

// "[{"role": "user", "content": "…"}, …]"
std::string text_of(std::span<const Message> messages) {
  Json list = Json::array();
  for (const Message& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<Message>> messages_of(const std::string& text, const std::string& file) {
  std::vector<Message> messages;
  if (text.empty()) return messages;
  DOPPLER_ASSIGN(const Json list, parse_json(text, "The text in the file " + printable(file, 200)));
  const auto is_message = [](const Json& item) {
    return item.is_object() && item.contains("role") && item["role"].is_string() &&
           item.contains("content") && item["content"].is_string();
  };
  if (!list.is_array() || !std::ranges::all_of(list, is_message)) {
    return fail(
        ErrorCode::kCorrupt,
        "The file {} holds a sequence, but no messages beside it. Name another file with --session to "
        "begin anew.",
        printable(file, 200));
  }
  for (const Json& item : list)
    messages.push_back(
        {.role = item["role"].get<std::string>(), .content = item["content"].get<std::string>()});
  return messages;
}

}  // namespace

Result<std::vector<Message>> load_session(Engine& engine, const std::string& file) {
  if (!system::exists(file)) return std::vector<Message>();
  DOPPLER_ASSIGN(Sequence own, engine.sequence());
  std::string text;
  if (Status loaded = own.load(file, &text); !loaded) {
    Error error = std::move(loaded).error();
    error.message += " Or name another file with --session, to begin anew.";
    return std::unexpected(std::move(error));
  }
  auto messages = messages_of(text, file);
  if (!messages) DOPPLER_TRY(own.clear());
  return messages;
}

Status save_session(const Engine& engine, const std::string& file, std::span<const Message> messages) {
  DOPPLER_ASSIGN(const Sequence own, engine.sequence());
  return own.save(file, messages.empty() ? std::string() : text_of(messages));
}

}  // namespace doppler::cli
