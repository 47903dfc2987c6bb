// Where a model folder keeps its chat templates.
#include <algorithm>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "chat/chat_template.h"
#include "system/files.h"

namespace doppler::chat {
namespace {

namespace fs = std::filesystem;

// Tokenizer configs list their added tokens and reach a few megabytes.
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;
constexpr std::string_view kGgufKey = "tokenizer.chat_template";

struct NamedTemplate {
  std::string source;
  std::string origin;  // the file, for messages
};
using Templates = std::map<std::string, NamedTemplate>;

Status read_jinja(const fs::path& path, const std::string& name, const std::string& origin,
                  Templates& templates) {
  DOPPLER_ASSIGN(std::string source, read_text_file(path, kMaxTemplateBytes));
  templates[name] = {std::move(source), origin};
  return {};
}

Status read_additional(const fs::path& folder, Templates& templates) {
  auto files = sorted_entries(folder / "additional_chat_templates");
  std::erase_if(files,
                [](const fs::path& path) { return path.extension() != ".jinja" || !system::is_file(path); });
  for (const fs::path& file : files) {
    DOPPLER_TRY(read_jinja(file, file.stem().string(),
                           "additional_chat_templates/" + file.filename().string(), templates));
  }
  return {};
}

const std::string* string_member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() ? found->get_ptr<const std::string*>() : nullptr;
}

// The value of chat_template: a text, or a list of {"name", "template"}.
Status read_value(const Json& value, const std::string& origin, Templates& templates) {
  if (const auto* text = value.get_ptr<const std::string*>()) {
    templates["default"] = {*text, origin};
    return {};
  }
  if (!value.is_array()) {
    return fail(ErrorCode::kCorrupt,
                "The key chat_template of {} is neither a text nor a list. Download it again.", origin);
  }
  for (const Json& entry : value) {
    const std::string* name = string_member(entry, "name");
    const std::string* text = string_member(entry, "template");
    if (name == nullptr || text == nullptr) {
      return fail(
          ErrorCode::kCorrupt,
          "The list chat_template of {} has an entry without a name or a template. Download it again.",
          origin);
    }
    templates[*name] = {*text, origin};
  }
  return {};
}

// The object in a file; an empty one if there is no such file.
Result<Json> read_object(const fs::path& path) {
  if (!system::is_file(path)) return Json::object();
  DOPPLER_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  DOPPLER_ASSIGN(Json object, parse_json(text, "The file " + path.string()));
  return object.is_object() ? std::move(object) : Json::object();
}

Status read_config(const fs::path& path, Templates& templates) {
  const std::string origin = path.filename().string();
  DOPPLER_ASSIGN(const Json config, read_object(path));
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  return read_value(*found, origin, templates);
}

Result<Templates> read_templates(const fs::path& folder) {
  Templates templates;
  if (system::is_file(folder / "chat_template.jinja")) {
    DOPPLER_TRY(read_jinja(folder / "chat_template.jinja", "default", "chat_template.jinja", templates));
  }
  DOPPLER_TRY(read_additional(folder, templates));
  for (const char* config : {"chat_template.json", "tokenizer_config.json"}) {
    if (templates.empty()) DOPPLER_TRY(read_config(folder / config, templates));
  }
  return templates;
}

// tokenizer.chat_template is the default, tokenizer.chat_template.NAME the others; tokenizer.chat_templates
// lists the names once more, and is not needed.
Result<Templates> read_templates(const GgufMetadata& metadata) {
  Templates templates;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    std::string_view name = entry.key;
    if (!name.starts_with(kGgufKey)) continue;
    name.remove_prefix(kGgufKey.size());
    if (name.empty())
      name = "default";
    else if (name.starts_with('.') && name != ".default")
      name.remove_prefix(1);
    else
      continue;
    DOPPLER_ASSIGN(const auto source, metadata.get_string(entry.key));
    if (source) templates[std::string(name)] = {std::string(*source), printable(entry.key)};
  }
  return templates;
}

Result<ChatTemplate> choose(const Templates& templates, const TemplateChoice& choice,
                            std::string_view place) {
  std::string name = choice.name;
  if (name.empty()) name = choice.with_tools && templates.contains("tool_use") ? "tool_use" : "default";
  const auto found = templates.find(name);
  if (found == templates.end()) {
    std::vector<std::string> names;
    for (const auto& [known, ignored] : templates) names.push_back(printable(known));
    return fail(ErrorCode::kNotFound, "{} has no chat template \"{}\". Choose one of: {}.", place,
                printable(name), join(names, ", "));
  }
  const std::string& origin = found->second.origin;
  const bool plain = name == "default" || origin.ends_with("." + printable(name));
  return ChatTemplate::compile(found->second.source,
                               plain ? origin : fmt::format("{} ({})", origin, printable(name)));
}

// "bos_token": "<s>" or {"content": "<s>", …}; other members that end in _token are flags.
void take_special_tokens(const Json& object, OrderedJson& tokens) {
  for (const auto& [key, value] : object.items()) {
    const std::string* text = value.get_ptr<const std::string*>();
    if (text == nullptr) text = string_member(value, "content");
    if (text != nullptr && key.ends_with("_token")) tokens[key] = *text;
  }
}

}  // namespace

Result<OrderedJson> read_special_tokens(const fs::path& folder) {
  OrderedJson tokens = OrderedJson::object();
  // The config is read last, because it is what transformers believes.
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    DOPPLER_ASSIGN(const Json object, read_object(folder / file));
    take_special_tokens(object, tokens);
    const auto extra = object.find("extra_special_tokens");
    if (extra != object.end() && extra->is_object()) take_special_tokens(*extra, tokens);
  }
  return tokens;
}

Result<std::map<std::string, std::string>> read_chat_templates(const fs::path& folder) {
  DOPPLER_ASSIGN(Templates templates, read_templates(folder));
  std::map<std::string, std::string> texts;
  for (auto& [name, found] : templates) texts[name] = std::move(found.source);
  return texts;
}

Result<ChatTemplate> load_chat_template(const fs::path& folder, const TemplateChoice& choice) {
  DOPPLER_ASSIGN(const Templates templates, read_templates(folder));
  if (templates.empty()) {
    return fail(
        ErrorCode::kNotFound,
        "The folder {} has no chat template (chat_template.jinja, chat_template.json, or chat_template in "
        "tokenizer_config.json). Use a chat model, or give the prompt as plain text.",
        printable(folder.string(), 200));
  }
  return choose(templates, choice, fmt::format("The folder {}", printable(folder.string(), 200)));
}

Result<ChatTemplate> load_chat_template(const GgufMetadata& metadata, const TemplateChoice& choice) {
  DOPPLER_ASSIGN(const Templates templates, read_templates(metadata));
  if (templates.empty()) {
    return fail(ErrorCode::kNotFound,
                "The GGUF file has no chat template (tokenizer.chat_template). Use a chat model, or give the "
                "prompt as plain text.");
  }
  return choose(templates, choice, "The GGUF file");
}

}  // namespace doppler::chat
