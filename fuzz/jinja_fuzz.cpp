// Any bytes as a chat template, rendered on a small conversation: an error or a text, never a crash or a
// hang.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto variables = doppler::chat::parse_ordered_json(
      R"({"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": [{"type": "text", "text": "hé"}]},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}],
          "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}}], "add_generation_prompt": true,
          "bos_token": "<s>"})",
      "variables");
  const auto compiled =
      doppler::chat::ChatTemplate::compile(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!compiled || !variables) return 0;
  doppler::chat::RenderOptions options;
  options.max_steps = 100'000;
  options.max_output_bytes = std::size_t{1} << 20;
  (void)compiled->render(*variables, options);
  return 0;
}
