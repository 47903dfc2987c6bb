#include "engine/messages.h"

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// Parses `text`, a JSON object; `where` names it in errors.
Result<chat::OrderedJson> read_object(const std::string& text, const std::string& where) {
  auto object = chat::parse_ordered_json(text, where);
  if (!object) return fail(ErrorCode::kUsage, "{}", object.error().message);
  if (!object->is_object())
    return fail(ErrorCode::kUsage, "{} is no JSON object: {}.", where, printable(text));
  return object;
}

Result<chat::OrderedJson> content_of(const Message& message) {
  if (message.parts.empty()) return chat::OrderedJson(message.content);
  if (!message.content.empty()) {
    return fail(ErrorCode::kUsage, "A message of the {} has both content and parts. Give one of them.",
                printable(message.role));
  }
  chat::OrderedJson parts = chat::OrderedJson::array();
  for (const ContentPart& part : message.parts) {
    if (part.type != "text") {
      return fail(ErrorCode::kUnsupported,
                  "A message's part has the type {}, but models read text here. Leave it out.",
                  printable(part.type));
    }
    parts.push_back({{"type", "text"}, {"text", part.text}});
  }
  return parts;
}

Result<chat::OrderedJson> calls_of(const Message& message) {
  chat::OrderedJson calls = chat::OrderedJson::array();
  for (const ToolCall& call : message.tool_calls) {
    DOPPLER_ASSIGN(chat::OrderedJson arguments,
                   read_object(call.arguments, "The arguments of the tool call " + printable(call.name)));
    chat::OrderedJson object = chat::OrderedJson::object();
    if (!call.id.empty()) object["id"] = call.id;
    object["type"] = "function";
    object["function"] = {{"name", call.name}, {"arguments", std::move(arguments)}};
    calls.push_back(std::move(object));
  }
  return calls;
}

Result<chat::OrderedJson> json_of(const Message& message) {
  if (message.role.empty())
    return fail(ErrorCode::kUsage, "A message has no role. Give it one, such as user or assistant.");
  chat::OrderedJson object = {{"role", message.role}};
  DOPPLER_ASSIGN(object["content"], content_of(message));
  if (!message.name.empty()) object["name"] = message.name;
  if (!message.tool_call_id.empty()) object["tool_call_id"] = message.tool_call_id;
  if (!message.tool_calls.empty()) {
    DOPPLER_ASSIGN(object["tool_calls"], calls_of(message));
  }
  return object;
}

Result<chat::OrderedJson> json_of(const Tool& tool) {
  DOPPLER_ASSIGN(chat::OrderedJson parameters,
                 read_object(tool.parameters, "The parameters of the tool " + printable(tool.name)));
  return chat::OrderedJson{
      {"type", "function"},
      {"function",
       {{"name", tool.name}, {"description", tool.description}, {"parameters", std::move(parameters)}}}};
}

// {"function": {"arguments": "{...}"}} to the object that the text holds.
void open_arguments(chat::OrderedJson& call) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) return;
  chat::OrderedJson& function = call["function"];
  if (!function.contains("arguments") || !function["arguments"].is_string()) return;
  auto arguments =
      chat::parse_ordered_json(function["arguments"].get_ref<const std::string&>(), "The arguments");
  if (arguments && arguments->is_object()) function["arguments"] = std::move(*arguments);
}

}  // namespace

Result<chat::OrderedJson> conversation_of(std::span<const Message> messages, const ChatOptions& options) {
  chat::OrderedJson conversation = chat::OrderedJson::object();
  if (!options.variables.empty()) {
    DOPPLER_ASSIGN(conversation, read_object(options.variables, "The text of the template's variables"));
  }
  conversation["messages"] = chat::OrderedJson::array();
  for (const Message& message : messages) {
    DOPPLER_ASSIGN(chat::OrderedJson object, json_of(message));
    conversation["messages"].push_back(std::move(object));
  }
  if (!options.tools.empty()) conversation["tools"] = chat::OrderedJson::array();
  for (const Tool& tool : options.tools) {
    DOPPLER_ASSIGN(chat::OrderedJson object, json_of(tool));
    conversation["tools"].push_back(std::move(object));
  }
  conversation["add_generation_prompt"] = options.add_generation_prompt;
  return conversation;
}

Result<chat::OrderedJson> read_conversation(std::string_view json) {
  auto given = chat::parse_ordered_json(json, "The conversation");
  if (!given) return fail(ErrorCode::kUsage, "{}", given.error().message);
  chat::OrderedJson conversation = std::move(*given);
  if (conversation.is_array()) conversation = chat::OrderedJson{{"messages", std::move(conversation)}};
  if (!conversation.is_object() || !conversation.contains("messages") ||
      !conversation["messages"].is_array()) {
    return fail(ErrorCode::kUsage,
                "The text holds no conversation. Write {{\"messages\": [{{\"role\": \"user\", \"content\": "
                "\"…\"}}]}}.");
  }
  for (chat::OrderedJson& message : conversation["messages"]) {
    if (!message.is_object() || !message.contains("tool_calls")) continue;
    if (message["tool_calls"].is_array())
      for (chat::OrderedJson& call : message["tool_calls"]) open_arguments(call);
  }
  if (!conversation.contains("add_generation_prompt")) conversation["add_generation_prompt"] = true;
  return conversation;
}

Result<std::string> render_conversation(const Loaded& loaded, const chat::OrderedJson& conversation,
                                        const chat::RenderOptions& options) {
  if (!loaded.chat) {
    return fail(
        ErrorCode::kNotFound,
        "The model in {} has no chat template. Use a model made for chat, or continue plain text with "
        "run --raw.",
        loaded.model->files.folder.string());
  }
  DOPPLER_ASSIGN(chat::OrderedJson variables, template_variables(loaded.model->files, loaded.tokenizer));
  for (const auto& [key, value] : conversation.items()) variables[key] = value;
  if (!conversation.contains("tools") || conversation["tools"].empty())
    return loaded.chat->render(variables, options);
  DOPPLER_ASSIGN(const chat::ChatTemplate chat,
                 load_chat_template(loaded.model->files, {.name = "", .with_tools = true}));
  return chat.render(variables, options);
}

Result<std::string> render_messages(const Loaded& loaded, std::span<const Message> messages,
                                    const ChatOptions& options) {
  DOPPLER_ASSIGN(const chat::OrderedJson conversation, conversation_of(messages, options));
  return render_conversation(loaded, conversation);
}

Result<std::vector<TokenId>> tokenize_messages(const Loaded& loaded, std::span<const Message> messages,
                                               const ChatOptions& options) {
  DOPPLER_ASSIGN(const std::string text, render_messages(loaded, messages, options));
  DOPPLER_TRY(need_tokenizer(loaded));
  return loaded.tokenizer->encode(text, {.add_special = false});
}

}  // namespace doppler
