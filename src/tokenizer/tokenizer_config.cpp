#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "base/files.h"
#include "system/files.h"
#include "tokenizer/json_fields.h"

namespace doppler::tokenizer {
namespace {

// The largest published one, with six thousand added tokens, has 1.2 MB.
constexpr std::uint64_t kMaxConfigBytes = 32u << 20;

Result<Json> read_optional(const std::filesystem::path& path) {
  if (!system::exists(path)) return Json();
  DOPPLER_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  return parse_json(text, fmt::format("The file {}", path.string()));
}

bool is_sentencepiece(const TokenizerSpec& spec) {
  return spec.kind == ModelKind::kSentencePieceBpe || spec.kind == ModelKind::kSentencePieceUnigram;
}

std::optional<TokenId> find_token(const TokenizerSpec& spec, std::string_view text) {
  const auto own = spec.vocabulary.find(text);
  return own ? own : spec.extra.find(text);
}

bool is_added(const TokenizerSpec& spec, TokenId id) {
  return std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& t) { return t.id == id; });
}

// The text of a role: "<s>", or an object with content. Nothing if the file does not name it.
Result<std::optional<std::string>> role_text(const JsonFields& fields, const char* key) {
  const Json* value = fields.find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional(value->get<std::string>());
  if (!value->is_object()) return fields.wrong(key, "a string or an object with content");
  DOPPLER_ASSIGN(std::string text, JsonFields(*value, fields.what()).required_text("content"));
  return std::optional(std::move(text));
}

Status read_role(const JsonFields& fields, const char* key, SpecialToken& role, TokenizerSpec& spec) {
  DOPPLER_ASSIGN(const std::optional<std::string> text, role_text(fields, key));
  if (!text || text->empty()) return {};
  role.text = *text;
  role.id = find_token(spec, *text);
  if (role.id && !is_added(spec, *role.id)) {
    AddedToken token;
    token.id = *role.id;
    token.content = *text;
    token.special = true;
    spec.added.push_back(std::move(token));
  }
  return {};
}

// added_tokens_decoder: {"32000": {"content": "<|im_start|>", ...}}. Those that the tokenizer has already
// stay.
Status add_decoder_token(const std::string& key, const Json& value, TokenizerSpec& spec) {
  const JsonFields fields(value, fmt::format("The added token {} of tokenizer_config.json", printable(key)));
  AddedToken token;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
  if (error != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id > kMaxTokenId) {
    return fields.wrong("its key", fmt::format("a token id from 0 to {}", kMaxTokenId));
  }
  DOPPLER_ASSIGN(token.content, fields.required_text("content"));
  DOPPLER_ASSIGN(token.single_word, fields.boolean("single_word", false));
  DOPPLER_ASSIGN(token.lstrip, fields.boolean("lstrip", false));
  DOPPLER_ASSIGN(token.rstrip, fields.boolean("rstrip", false));
  DOPPLER_ASSIGN(token.normalized, fields.boolean("normalized", false));
  DOPPLER_ASSIGN(token.special, fields.boolean("special", false));
  if (token.content.empty()) return {};
  if (const auto known = find_token(spec, token.content)) {
    if (!is_sentencepiece(spec) || is_added(spec, *known)) return {};
    token.id = *known;
  } else if (spec.vocabulary.piece(token.id) || spec.extra.piece(token.id)) {
    const auto taken =
        spec.vocabulary.piece(token.id) ? spec.vocabulary.piece(token.id) : spec.extra.piece(token.id);
    return fail(
        ErrorCode::kCorrupt,
        "The file tokenizer_config.json gives the id {} to {} but the tokenizer gives it to {}. Correct one.",
        token.id, printable(token.content), printable(*taken));
  } else {
    spec.extra.add(token.content, token.id);
  }
  return spec.added.push_back(std::move(token)), Status();
}

// BOS and EOS around a text, for tokenizers that have no post-processor of their own.
Status add_bos_and_eos(const JsonFields& config, TokenizerSpec& spec) {
  if (!spec.post_processor.empty()) return {};
  const bool by_default = is_sentencepiece(spec);
  DOPPLER_ASSIGN(const std::string name, config.text("tokenizer_class", ""));
  const bool t5 =
      by_default && name.starts_with("T5");  // the one family that ends texts instead of starting them
  DOPPLER_ASSIGN(const bool add_bos, config.boolean("add_bos_token", by_default && !t5));
  DOPPLER_ASSIGN(const bool add_eos, config.boolean("add_eos_token", t5));
  PostProcessorStep step;
  if (add_bos && spec.bos.id) step.push_back(*spec.bos.id);
  step.push_back(std::nullopt);
  if (add_eos && spec.eos.id) step.push_back(*spec.eos.id);
  if (step.size() > 1) spec.post_processor.push_back(std::move(step));
  return {};
}

}  // namespace

Status refine_with_config(const Json& config, const Json& special_tokens_map, TokenizerSpec& spec) {
  const JsonFields map_fields(special_tokens_map, "The file special_tokens_map.json");
  const JsonFields config_fields(config, "The file tokenizer_config.json");
  if (const Json* tokens = config_fields.find("added_tokens_decoder")) {
    if (!tokens->is_object()) return config_fields.wrong("added_tokens_decoder", "an object");
    for (const auto& [key, value] : tokens->items()) DOPPLER_TRY(add_decoder_token(key, value, spec));
  }
  // The config is read last, because it is what transformers believes.
  for (const JsonFields* fields : {&map_fields, &config_fields}) {
    DOPPLER_TRY(read_role(*fields, "bos_token", spec.bos, spec));
    DOPPLER_TRY(read_role(*fields, "eos_token", spec.eos, spec));
    DOPPLER_TRY(read_role(*fields, "unk_token", spec.unk, spec));
    DOPPLER_TRY(read_role(*fields, "pad_token", spec.pad, spec));
  }
  if (is_sentencepiece(spec)) {
    DOPPLER_ASSIGN(spec.sentencepiece.prefix_after_special, config_fields.boolean("legacy", true));
  }
  return add_bos_and_eos(config_fields, spec);
}

Status refine_with_config(const std::filesystem::path& folder, TokenizerSpec& spec) {
  DOPPLER_ASSIGN(const Json config, read_optional(folder / "tokenizer_config.json"));
  DOPPLER_ASSIGN(const Json map, read_optional(folder / "special_tokens_map.json"));
  return refine_with_config(config, map, spec);
}

}  // namespace doppler::tokenizer
