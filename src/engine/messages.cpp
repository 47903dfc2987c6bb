#include "engine/messages.h"

#include "base/text.h"

namespace doppler {
namespace {

// `where` names it in errors.
Result<OrderedJson> read_object(const std::string& text, const std::string& where) {
  auto object = parse_ordered_json(text, where);
  if (!object) return fail(ErrorCode::kUsage, "{}", object.error().message);
  if (!object->is_object())
    return fail(ErrorCode::kUsage, "{} is no JSON object: {}.", where, printable(text));
  return object;
}

Result<OrderedJson> content_of(const Message& message) {
  if (message.parts.empty()) return OrderedJson(message.content);
  if (!message.content.empty()) {
    return fail(ErrorCode::kUsage, "A message of the {} has both content and parts. Give one of them.",
                printable(message.role));
  }
  OrderedJson parts = OrderedJson::array();
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

Result<OrderedJson> calls_of(const Message& message) {
  OrderedJson calls = OrderedJson::array();
  for (const ToolCall& call : message.tool_calls) {
    DOPPLER_ASSIGN(OrderedJson arguments,
                   read_object(call.arguments, "The arguments of the tool call " + printable(call.name)));
    OrderedJson object = OrderedJson::object();
    if (!call.id.empty()) object["id"] = call.id;
    object["type"] = "function";
    object["function"] = {{"name", call.name}, {"arguments", std::move(arguments)}};
    calls.push_back(std::move(object));
  }
  return calls;
}

Result<OrderedJson> json_of(const Message& message) {
  if (message.role.empty())
    return fail(ErrorCode::kUsage, "A message has no role. Give it one, such as user or assistant.");
  OrderedJson object = {{"role", message.role}};
  DOPPLER_ASSIGN(object["content"], content_of(message));
  if (!message.name.empty()) object["name"] = message.name;
  if (!message.tool_call_id.empty()) object["tool_call_id"] = message.tool_call_id;
  if (!message.tool_calls.empty()) {
    DOPPLER_ASSIGN(object["tool_calls"], calls_of(message));
  }
  return object;
}

Result<OrderedJson> json_of(const Tool& tool) {
  DOPPLER_ASSIGN(OrderedJson parameters,
                 read_object(tool.parameters, "The parameters of the tool " + printable(tool.name)));
  return OrderedJson{
      {"type", "function"},
      {"function",
       {{"name", tool.name}, {"description", tool.description}, {"parameters", std::move(parameters)}}}};
}

// {"function": {"arguments": "{...}"}} to the object that the text holds.
void open_arguments(OrderedJson& call) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) return;
  OrderedJson& function = call["function"];
  if (!function.contains("arguments") || !function["arguments"].is_string()) return;
  auto arguments = parse_ordered_json(function["arguments"].get_ref<const std::string&>(), "The arguments");
  if (arguments && arguments->is_object()) function["arguments"] = std::move(*arguments);
}

}  // namespace

Result<OrderedJson> conversation_of(std::span<const Message> messages, const ChatOptions& options) {
  OrderedJson conversation = OrderedJson::object();
  if (!options.variables.empty()) {
    DOPPLER_ASSIGN(conversation, read_object(options.variables, "The text of the template's variables"));
  }
  conversation["messages"] = OrderedJson::array();
  for (const Message& message : messages) {
    DOPPLER_ASSIGN(OrderedJson object, json_of(message));
    conversation["messages"].push_back(std::move(object));
  }
  if (!options.tools.empty()) conversation["tools"] = OrderedJson::array();
  for (const Tool& tool : options.tools) {
    DOPPLER_ASSIGN(OrderedJson object, json_of(tool));
    conversation["tools"].push_back(std::move(object));
  }
  conversation["add_generation_prompt"] = options.add_generation_prompt;
  return conversation;
}

Result<OrderedJson> read_conversation(std::string_view json) {
  auto given = parse_ordered_json(json, "The conversation");
  if (!given) return fail(ErrorCode::kUsage, "{}", given.error().message);
  OrderedJson conversation = std::move(*given);
  if (conversation.is_array()) conversation = OrderedJson{{"messages", std::move(conversation)}};
  if (!conversation.is_object() || !conversation.contains("messages") ||
      !conversation["messages"].is_array()) {
    return fail(ErrorCode::kUsage,
                "The text holds no conversation. Write {{\"messages\": [{{\"role\": \"user\", \"content\": "
                "\"…\"}}]}}.");
  }
  for (OrderedJson& message : conversation["messages"]) {
    if (!message.is_object() || !message.contains("tool_calls")) continue;
    if (message["tool_calls"].is_array())
      for (OrderedJson& call : message["tool_calls"]) open_arguments(call);
  }
  if (!conversation.contains("add_generation_prompt")) conversation["add_generation_prompt"] = true;
  return conversation;
}

Result<std::string> render_conversation(const Loaded& loaded, const OrderedJson& conversation) {
  if (!loaded.chat) {
    return fail(
        ErrorCode::kNotFound,
        "The model in {} has no chat template. Use a model made for chat, or continue plain text with "
        "run --raw.",
        loaded.model->files.folder.string());
  }
  DOPPLER_ASSIGN(OrderedJson variables, template_variables(loaded.model->files, loaded.tokenizer));
  for (const auto& [key, value] : conversation.items()) variables[key] = value;
  if (!conversation.contains("tools") || conversation["tools"].empty()) return loaded.chat->render(variables);
  DOPPLER_ASSIGN(const ChatTemplate chat,
                 load_chat_template(loaded.model->files, {.name = "", .with_tools = true}));
  return chat.render(variables);
}

Result<std::string> render_messages(const Loaded& loaded, std::span<const Message> messages,
                                    const ChatOptions& options) {
  DOPPLER_ASSIGN(const OrderedJson conversation, conversation_of(messages, options));
  return render_conversation(loaded, conversation);
}

Result<std::vector<TokenId>> tokenize_messages(const Loaded& loaded, std::span<const Message> messages,
                                               const ChatOptions& options) {
  DOPPLER_ASSIGN(const std::string text, render_messages(loaded, messages, options));
  DOPPLER_TRY(need_tokenizer(loaded));
  return loaded.tokenizer->encode(text, {.add_special = false});
}

}  // namespace doppler
