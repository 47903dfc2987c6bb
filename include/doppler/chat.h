// Conversations as values: messages with their parts, tool calls and tool results, and the tools themselves.
// The model's own chat template turns them into text.
#pragma once

#include <string>
#include <vector>

namespace doppler {

// A piece of a message's content. Doppler's models read text: any other type is refused (kUnsupported).
struct ContentPart {
  std::string type = "text";
  std::string text = {};
};

// A call of a tool that an assistant's message asks for.
struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = "{}";  // a JSON object as text
};

struct Message {
  std::string role = {};  // "system", "user", "assistant", "tool"
  std::string content = {};
  // Instead of `content`, for templates that read a list of parts; they reach the template as a list.
  std::vector<ContentPart> parts = {};
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool's result: the call that it answers
  std::string name = {};                  // of the tool, or of the speaker
};

// A function that the model may call.
struct Tool {
  std::string name = {};
  std::string description = {};
  std::string parameters = "{}";  // their JSON Schema as text
};

struct ChatOptions {
  std::vector<Tool> tools = {};
  bool add_generation_prompt = true;  // ends the text where the assistant's answer begins
  // Further variables of the template as text of one JSON object: {"enable_thinking": false}.
  std::string variables = {};
};

}  // namespace doppler
