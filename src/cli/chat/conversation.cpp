#include "cli/chat/conversation.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace doppler::cli {

std::vector<Message> Conversation::sent() const {
  std::vector<Message> all;
  if (!system.empty()) all.push_back({"system", system});
  all.insert(all.end(), messages_.begin() + static_cast<std::ptrdiff_t>(first_sent_), messages_.end());
  return all;
}

namespace {

bool is_of_user(const Message& message) {
  return message.role == "user";
}

}  // namespace

std::size_t Conversation::turns() const {
  return static_cast<std::size_t>(std::count_if(messages_.begin(), messages_.end(), is_of_user));
}

std::size_t Conversation::turns_left_out() const {
  const auto first = messages_.begin() + static_cast<std::ptrdiff_t>(first_sent_);
  return static_cast<std::size_t>(std::count_if(messages_.begin(), first, is_of_user));
}

std::size_t Conversation::begin_of_last_turn() const {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), is_of_user);
  return last == messages_.rend() ? messages_.size() : static_cast<std::size_t>(messages_.rend() - last) - 1;
}

const Message* Conversation::last_of_user() const {
  const std::size_t at = begin_of_last_turn();
  return at < messages_.size() ? &messages_[at] : nullptr;
}

void Conversation::clear() {
  messages_.clear();
  first_sent_ = 0;
}

std::optional<Message> Conversation::take_back_turn() {
  const std::size_t at = begin_of_last_turn();
  if (at == messages_.size()) return std::nullopt;
  Message message = std::move(messages_[at]);
  messages_.resize(at);
  // What was left out comes back as far as it must, so that the newest turn is always sent.
  first_sent_ = std::min(first_sent_, begin_of_last_turn());
  return message;
}

void Conversation::take_back_answer() {
  const std::size_t at = begin_of_last_turn();
  if (at < messages_.size()) messages_.resize(at + 1);
}

bool Conversation::leave_out_oldest_turn() {
  const auto first = messages_.begin() + static_cast<std::ptrdiff_t>(first_sent_);
  auto next = std::find_if(first, messages_.end(), is_of_user);
  if (next != messages_.end()) next = std::find_if(next + 1, messages_.end(), is_of_user);
  if (next == messages_.end()) return false;
  first_sent_ = static_cast<std::size_t>(next - messages_.begin());
  return true;
}

namespace {

Json json_of_message(const Message& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.parts.empty()) {
    json["content"] = Json::array();
    for (const ContentPart& part : message.parts)
      json["content"].push_back({{"type", part.type}, {"text", part.text}});
  }
  for (const ToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back({{"id", call.id},
                                  {"type", "function"},
                                  {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

// Reads one message; errors name the file and the message's number.
class MessageParser {
 public:
  MessageParser(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  Result<Message> parse() const {
    if (!json_.is_object()) return wrong(ErrorCode::kCorrupt, "is no object");
    Message message;
    DOPPLER_TRY(read_text(json_, "role", message.role));
    if (message.role.empty()) return wrong(ErrorCode::kCorrupt, "has no role, such as user or assistant");
    DOPPLER_TRY(read_content(message));
    DOPPLER_TRY(read_text(json_, "name", message.name));
    DOPPLER_TRY(read_text(json_, "tool_call_id", message.tool_call_id));
    const auto calls = json_.find("tool_calls");
    if (calls == json_.end() || calls->is_null()) return message;
    if (!calls->is_array()) return wrong(ErrorCode::kCorrupt, "has tool_calls that are no list");
    for (const Json& call : *calls) DOPPLER_TRY(read_call(call, message));
    return message;
  }

 private:
  std::unexpected<Error> wrong(ErrorCode code, std::string_view what) const {
    return fail(code, "{} {}.", where_, what);
  }

  Status read_text(const Json& object, const char* key, std::string& to) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return {};
    if (!found->is_string()) return wrong(ErrorCode::kCorrupt, fmt::format("has a {} that is no text", key));
    to = found->get<std::string>();
    return {};
  }

  Status read_content(Message& message) const {
    const auto content = json_.find("content");
    if (content == json_.end() || !content->is_array()) return read_text(json_, "content", message.content);
    for (const Json& each : *content) {
      ContentPart part;
      if (!each.is_object()) return wrong(ErrorCode::kCorrupt, "has a part that is no object");
      DOPPLER_TRY(read_text(each, "type", part.type));
      if (part.type != "text") {
        return wrong(
            ErrorCode::kUnsupported,
            fmt::format("has a part of the type {}, but models read text here", printable(part.type)));
      }
      DOPPLER_TRY(read_text(each, "text", part.text));
      message.parts.push_back(std::move(part));
    }
    return {};
  }

  Status read_call(const Json& json, Message& message) const {
    ToolCall call;
    if (!json.is_object() || !json.contains("function") || !json["function"].is_object())
      return wrong(ErrorCode::kCorrupt, "has a tool call without a function");
    const Json& function = json["function"];
    DOPPLER_TRY(read_text(json, "id", call.id));
    DOPPLER_TRY(read_text(function, "name", call.name));
    if (const auto arguments = function.find("arguments");
        arguments != function.end() && arguments->is_object())
      call.arguments = arguments->dump();
    else
      DOPPLER_TRY(read_text(function, "arguments", call.arguments));
    message.tool_calls.push_back(std::move(call));
    return {};
  }

  const Json& json_;
  const std::string where_;
};

}  // namespace

Conversation conversation_of(std::vector<Message> messages) {
  Conversation conversation;
  for (Message& message : messages) {
    const bool opens = &message == messages.data() && message.role == "system" && message.parts.empty();
    if (opens)
      conversation.system = std::move(message.content);
    else
      conversation.add(std::move(message));
  }
  return conversation;
}

std::vector<Message> all_messages(const Conversation& conversation) {
  std::vector<Message> all;
  if (!conversation.system.empty()) all.push_back({"system", conversation.system});
  all.insert(all.end(), conversation.messages().begin(), conversation.messages().end());
  return all;
}

Json messages_json(std::span<const Message> messages) {
  Json list = Json::array();
  for (const Message& message : messages) list.push_back(json_of_message(message));
  return {{"messages", std::move(list)}};
}

Result<std::vector<Message>> parse_messages(std::string_view json, std::string_view what) {
  DOPPLER_ASSIGN(const Json given, parse_json(json, what));
  const Json* messages = given.is_array() ? &given : nullptr;
  if (given.is_object() && given.contains("messages")) messages = &given["messages"];
  if (messages == nullptr || !messages->is_array()) {
    return fail(
        ErrorCode::kCorrupt,
        "{} holds no conversation. Write {{\"messages\": [{{\"role\": \"user\", \"content\": \"…\"}}]}}.",
        what);
  }
  if (given.is_object() && given.contains("tools") && !given["tools"].empty())
    return fail(ErrorCode::kUnsupported, "{} has tools, which a chat cannot call. Take them out.", what);
  std::vector<Message> parsed;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    DOPPLER_ASSIGN(Message message,
                   MessageParser((*messages)[i], fmt::format("{}: message {}", what, i + 1)).parse());
    parsed.push_back(std::move(message));
  }
  return parsed;
}

}  // namespace doppler::cli
