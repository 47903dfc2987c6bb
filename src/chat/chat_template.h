// Chat templates: the Jinja text a model ships with, rendered as Hugging Face transformers renders it.
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "formats/gguf_metadata.h"

namespace doppler::chat {

namespace jinja {
struct Ast;
}

// JSON whose objects keep the order of their keys: loops and tojson show it.
using OrderedJson = nlohmann::ordered_json;

// Parses UTF-8 JSON and keeps the key order. `what` names the source in messages ("The file messages.json").
// Errors: kCorrupt (not JSON, nested deeper than kMaxJsonDepth).
Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view what);

struct RenderOptions {
  // The local time strftime_now shows; the current time if left out.
  std::optional<std::tm> now;
  // About 10 to 100 nanoseconds each; a conversation of thousands of messages needs a few millions.
  std::uint64_t max_steps = 50'000'000;
  std::size_t max_output_bytes = std::size_t{64} << 20;
};

// One compiled template; cheap to copy, safe to render from several threads.
class ChatTemplate {
 public:
  // `name` says in messages which template it is ("tokenizer_config.json").
  // Errors, with the line: kCorrupt (syntax), kUnsupported (unknown statements, filters, tests), kLimit.
  static Result<ChatTemplate> compile(std::string source, std::string name);

  // `variables` is an object: messages, tools, documents, add_generation_prompt, bos_token and so on; keys
  // that transformers leaves undefined must be left out, none is null. Errors, with the line: kMismatch (the
  // template raises, or an operation does not fit its values), kUnsupported, kLimit (steps, memory, output,
  // nesting).
  Result<std::string> render(const OrderedJson& variables, const RenderOptions& options = {}) const;

  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::shared_ptr<const jinja::Ast> ast, std::string source, std::string name)
      : ast_(std::move(ast)), source_(std::move(source)), name_(std::move(name)) {}
  std::shared_ptr<const jinja::Ast> ast_;
  std::string source_, name_;
};

// Which of a model's templates to load.
struct TemplateChoice {
  std::string name;  // "" takes tool_use if there are tools and it exists, else default
  bool with_tools = false;
};

// The template of a Hugging Face folder: chat_template.jinja (and additional_chat_templates/*.jinja), else
// chat_template.json, else the key chat_template of tokenizer_config.json.
// Errors: kNotFound (no template, or none of that name; lists what there is), and those of compile.
Result<ChatTemplate> load_chat_template(const std::filesystem::path& folder,
                                        const TemplateChoice& choice = {});

// The template of a GGUF file: tokenizer.chat_template, or by name tokenizer.chat_template.NAME.
// Errors: those of the folder's, and kCorrupt for values that are no texts.
Result<ChatTemplate> load_chat_template(const GgufMetadata& metadata, const TemplateChoice& choice = {});

// The texts of all templates of a Hugging Face folder by name ("default" is the main one), not compiled;
// empty if it has none. Errors: kIo, kCorrupt (files that hold them but are no JSON).
Result<std::map<std::string, std::string>> read_chat_templates(const std::filesystem::path& folder);

// The texts of the special tokens that a folder's tokenizer_config.json and special_tokens_map.json name, as
// templates are handed them: {"bos_token": "<s>", …}. Empty if there is neither. Errors: kCorrupt (not JSON),
// kIo.
Result<OrderedJson> read_special_tokens(const std::filesystem::path& folder);

}  // namespace doppler::chat
