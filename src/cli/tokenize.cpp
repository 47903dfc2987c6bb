// doppler tokenize: a text as the model would see it, and back; a conversation through the chat template.
#include <fmt/core.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/models.h"
#include "engine/messages.h"
#include "formats/gguf.h"
#include "system/files.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

struct TokenizeArguments {
  std::string model, text, messages;
  Option text_option;
  bool no_special = false, decode = false;
};

// A conversation of a million bytes is far beyond any context; the bound is for files given by mistake.
constexpr std::uint64_t kMaxMessages = 64 << 20;

// Opens the files that hold the tokenizer and the template. Weights are not needed: a folder without any will
// do, and so will a GGUF file that holds only a vocabulary.
Result<ModelFiles> open_texts(const std::filesystem::path& model) {
  ModelFiles files;
  if (system::is_folder(model)) {
    auto whole = open_model_files(model);
    if (whole && whole->gguf) return whole;
    files.folder = model;
    return files;
  }
  files.folder = model.has_parent_path() ? model.parent_path() : ".";
  if (model.extension() == ".gguf") {
    DOPPLER_ASSIGN(GgufFile gguf, open_gguf(model));
    files.gguf = std::move(gguf.metadata);
  }
  return files;
}

// A folder, a GGUF file, a tokenizer file, or a model file with its tokenizer beside it.
Result<std::optional<tokenizer::Tokenizer>> open_tokenizer(const std::filesystem::path& model,
                                                           const ModelFiles& files) {
  const std::string extension = model.extension().string();
  if (extension == ".jinja") return std::nullopt;
  const bool file = system::is_file(model);
  if (file && extension != ".safetensors" && extension != ".gguf") {
    DOPPLER_ASSIGN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::load(model));
    return std::optional(std::move(tokenizer));
  }
  return load_tokenizer_if_any(files);
}

std::string table(const tokenizer::Tokenizer& tokenizer, std::span<const TokenId> ids) {
  // A piece is shown as it is, spaces included, so it is no text to wrap; a long one ends in "…".
  const std::size_t room = std::max<std::size_t>(table_columns(), 24) - 11;
  std::string text;
  for (const TokenId id : ids)
    text += fmt::format("{:8}  {}\n", id, printable(tokenizer.piece(id).value_or("?"), room));
  return text;
}

Json pieces_of(const tokenizer::Tokenizer& tokenizer, std::span<const TokenId> ids) {
  Json pieces = Json::array();
  for (const TokenId id : ids) pieces.push_back(utf8_lossy(tokenizer.piece(id).value_or("")));
  return pieces;
}

// The template: from a .jinja file, or from the model.
Result<chat::ChatTemplate> open_template(const std::filesystem::path& model, const ModelFiles& files,
                                         bool with_tools) {
  if (model.extension() != ".jinja") return load_chat_template(files, {.name = "", .with_tools = with_tools});
  constexpr std::uint64_t kMaxTemplate = 4 << 20;
  DOPPLER_ASSIGN(std::string source, read_text_file(model, kMaxTemplate));
  return chat::ChatTemplate::compile(std::move(source), model.filename().string());
}

// The conversation as run and chat would send it: ready for the answer, unless it says otherwise itself.
Result<chat::OrderedJson> open_conversation(const std::string& file) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMaxMessages));
  auto conversation = read_conversation(text);
  if (!conversation) {
    return fail(conversation.error().code, "The file {} cannot be used. {}", printable(file, 200),
                conversation.error().message);
  }
  return conversation;
}

Result<int> render(const TokenizeArguments& arguments, bool json, const ModelFiles& files,
                   const std::optional<tokenizer::Tokenizer>& tokenizer) {
  DOPPLER_ASSIGN(const chat::OrderedJson conversation, open_conversation(arguments.messages));
  const bool with_tools = conversation.contains("tools") && !conversation["tools"].empty();
  DOPPLER_ASSIGN(const chat::ChatTemplate chat, open_template(arguments.model, files, with_tools));
  DOPPLER_ASSIGN(chat::OrderedJson variables, template_variables(files, tokenizer));
  for (const auto& [key, value] : conversation.items()) variables[key] = value;
  DOPPLER_ASSIGN(const std::string text, chat.render(variables));
  std::vector<TokenId> ids;
  if (tokenizer) {
    DOPPLER_ASSIGN(ids, tokenizer->encode(text, {.add_special = false}));
  }
  if (json) {
    Json object = {{"text", text}};
    if (tokenizer) object["ids"] = ids;
    DOPPLER_TRY(print_json(object));
    return kDone;
  }
  DOPPLER_TRY(print(text + "\n"));
  if (tokenizer) DOPPLER_TRY(print("\n" + table(*tokenizer, ids)));
  return kDone;
}

Result<int> tokenize(const TokenizeArguments& arguments, const SettingFlags& given) {
  if (!system::exists(arguments.model)) {
    return fail(ErrorCode::kNotFound, "There is no file or folder {}. Check the path.", arguments.model);
  }
  DOPPLER_ASSIGN(const ModelFiles files, open_texts(arguments.model));
  DOPPLER_ASSIGN(const std::optional<tokenizer::Tokenizer> tokenizer, open_tokenizer(arguments.model, files));
  if (!arguments.messages.empty()) return render(arguments, given.json, files, tokenizer);
  std::string text = arguments.text;
  if (!arguments.text_option.given() && !system::is_terminal(system::Stream::kInput)) {
    DOPPLER_ASSIGN(text, read_input());
  } else if (!arguments.text_option.given()) {
    return fail(ErrorCode::kUsage, "There is no text. Give it after the model, or --messages FILE.");
  }
  if (!tokenizer) return std::unexpected(no_tokenizer(files));
  if (arguments.decode) {
    DOPPLER_ASSIGN(const std::vector<TokenId> ids, parse_ids(text));
    DOPPLER_ASSIGN(const std::string decoded, tokenizer->decode(ids, arguments.no_special));
    if (given.json)
      DOPPLER_TRY(print_json({{"text", decoded}, {"ids", ids}, {"pieces", pieces_of(*tokenizer, ids)}}));
    else
      DOPPLER_TRY(print(decoded + "\n"));
    return kDone;
  }
  DOPPLER_ASSIGN(const std::vector<TokenId> ids,
                 tokenizer->encode(text, {.add_special = !arguments.no_special}));
  if (given.json)
    DOPPLER_TRY(print_json({{"text", text}, {"ids", ids}, {"pieces", pieces_of(*tokenizer, ids)}}));
  else
    DOPPLER_TRY(print(table(*tokenizer, ids)));
  return kDone;
}

}  // namespace

Run add_tokenize(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<TokenizeArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file, or a tokenizer's alone")
      .required();
  arguments->text_option = command.add_option("TEXT", arguments->text,
                                              "the text, or with --decode the ids; left out, standard input");
  Option no_special = command.add_flag("--no-special", arguments->no_special,
                                       "without BOS and EOS; with --decode: special tokens leave no text");
  Option decode = command.add_flag("--decode", arguments->decode, "TEXT is ids (2,5,9): show their text");
  command
      .add_option("--messages", arguments->messages,
                  "a conversation as JSON: render it through the chat template, as run would send it")
      .not_with({arguments->text_option, no_special, decode});
  add_few_setting_flags(command, given);
  return [arguments, &given] { return tokenize(*arguments, given); };
}

}  // namespace doppler::cli
