// Conversations on their way to a chat template: public messages as the JSON that templates read, and the
// rendered text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chat_template.h"
#include "doppler/chat.h"
#include "engine/loaded.h"

namespace doppler {

// {"messages": [...], "tools": [...], ...}: content as a text or a list of parts, tool calls and tools as
// functions. Errors: kUsage for a message without a role, and for arguments, parameters or variables that are
// no JSON objects; kUnsupported for parts that are not text.
Result<chat::OrderedJson> conversation_of(std::span<const Message> messages, const ChatOptions& options);

// The conversation of a JSON text: see Engine::render_chat_json. Arguments of tool calls that are texts, as
// services send them, become the objects that templates read. Errors: kUsage.
Result<chat::OrderedJson> read_conversation(std::string_view json);

// Renders with the model's template, which writes its own special tokens; with the template for tools if
// there are tools and the model has such a template. Errors: kNotFound without a template; those of the
// template.
Result<std::string> render_conversation(const Loaded& loaded, const chat::OrderedJson& conversation,
                                        const chat::RenderOptions& options = {});

Result<std::string> render_messages(const Loaded& loaded, std::span<const Message> messages,
                                    const ChatOptions& options = {});
Result<std::vector<TokenId>> tokenize_messages(const Loaded& loaded, std::span<const Message> messages,
                                               const ChatOptions& options = {});

}  // namespace doppler
