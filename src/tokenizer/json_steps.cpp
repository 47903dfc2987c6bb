#include "tokenizer/json_steps.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "tokenizer/base64.h"
#include "tokenizer/json_fields.h"

namespace doppler::tokenizer {
namespace {

template <typename Step>
struct StepReader {
  std::string_view type;
  Status (*read)(const JsonFields&, std::vector<Step>&);
};

// Walks Sequences (their members are under `list`) and hands every other object to the reader of its type.
// parse_json and the SAX reader bound the nesting, and with it this recursion.
template <typename Step>
Status read_steps(const Json& value, std::string_view part, const char* list, std::string_view what,
                  std::span<const StepReader<Step>> readers, std::vector<Step>& out) {
  if (value.is_null()) return {};
  const JsonFields part_fields(value, fmt::format("The {} of {}", part, inside_sentence(what)));
  DOPPLER_ASSIGN(const std::string type, part_fields.required_text("type"));
  const JsonFields fields(value,
                          fmt::format("The {} {} of {}", part, printable(type), inside_sentence(what)));
  if (type == "Sequence") {
    DOPPLER_ASSIGN(const Json* members, fields.array(list));
    if (members == nullptr) return fields.wrong(list, "a list");
    for (const Json& member : *members) {
      if (member.is_null()) return fields.wrong(list, "a list of objects");
      DOPPLER_TRY(read_steps(member, part, list, what, readers, out));
    }
    return {};
  }
  const auto reader =
      std::find_if(readers.begin(), readers.end(), [&](const auto& r) { return r.type == type; });
  if (reader != readers.end()) return reader->read(fields, out);
  std::string known = "Sequence";
  for (const StepReader<Step>& r : readers) known += ", " + std::string(r.type);
  return fail(ErrorCode::kUnsupported, "The {} {} of {} is not supported. Doppler knows {}.", part,
              printable(type), inside_sentence(what), known);
}

// {"String": "..."} or {"Regex": "..."}; a plain string is a string.
Result<Pattern> read_pattern(const JsonFields& fields) {
  const Json* value = fields.find("pattern");
  if (value != nullptr && value->is_string()) return Pattern{value->get<std::string>(), false};
  if (value != nullptr && value->is_object()) {
    const JsonFields pattern(*value, fields.what());
    for (const bool regex : {false, true}) {
      if (pattern.find(regex ? "Regex" : "String") == nullptr) continue;
      DOPPLER_ASSIGN(std::string text, pattern.required_text(regex ? "Regex" : "String"));
      return Pattern{std::move(text), regex};
    }
  }
  return fields.wrong("pattern", "an object with String or Regex");
}

Result<char32_t> read_character(const JsonFields& fields, const char* key, std::string_view fallback) {
  DOPPLER_ASSIGN(const std::string text, fields.text(key, fallback));
  if (text.empty() || first_code_point(text).length != text.size()) return fields.wrong(key, "one character");
  return first_code_point(text).value;
}

Result<SplitBehavior> read_behavior(const JsonFields& fields) {
  static constexpr auto kNames = std::to_array<std::pair<std::string_view, SplitBehavior>>({
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  });
  DOPPLER_ASSIGN(const std::string text, fields.text("behavior", "Isolated"));
  for (const auto& [name, behavior] : kNames) {
    if (text == name) return behavior;
  }
  return fields.wrong("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Result<PrependScheme> read_prepend_scheme(const JsonFields& fields) {
  DOPPLER_ASSIGN(const std::string text, fields.text("prepend_scheme", "always"));
  DOPPLER_ASSIGN(const bool add, fields.boolean("add_prefix_space", true));  // how older files say it
  if (!add || text == "never") return PrependScheme::kNever;
  if (text == "always") return PrependScheme::kAlways;
  if (text == "first") return PrependScheme::kFirst;
  return fields.wrong("prepend_scheme", "always, first or never");
}

// The character that Metaspace puts in place of a space.
Result<std::string> read_mark(const JsonFields& fields) {
  DOPPLER_ASSIGN(const char32_t mark, read_character(fields, "replacement", "\xe2\x96\x81"));
  std::string text;
  append_utf8(text, mark);
  return text;
}

// ---- Readers of several parts: `Variant` is the part's step, `Step` one of its alternatives

template <typename Step, typename Variant>
Status add_plain(const JsonFields&, std::vector<Variant>& out) {
  return out.emplace_back(Step{}), Status();
}
template <typename Step, typename Variant>
Status add_replace(const JsonFields& fields, std::vector<Variant>& out) {
  Step step;
  DOPPLER_ASSIGN(step.pattern, read_pattern(fields));
  DOPPLER_ASSIGN(step.content, fields.required_text("content"));
  return out.emplace_back(std::move(step)), Status();
}

// ---- Normalizers

using NormalizerSteps = std::vector<NormalizerStep>;

template <UnicodeForm kForm>
Status add_form(const JsonFields&, NormalizerSteps& out) {
  return out.emplace_back(normalizers::Form{kForm}), Status();
}
Status add_prepend(const JsonFields& fields, NormalizerSteps& out) {
  DOPPLER_ASSIGN(std::string content, fields.required_text("prepend"));
  return out.emplace_back(normalizers::Prepend{std::move(content)}), Status();
}
Status add_strip(const JsonFields& fields, NormalizerSteps& out) {
  normalizers::Strip step;
  DOPPLER_ASSIGN(step.left, fields.boolean("strip_left", true));
  DOPPLER_ASSIGN(step.right, fields.boolean("strip_right", true));
  return out.emplace_back(step), Status();
}
Status add_precompiled(const JsonFields& fields, NormalizerSteps& out) {
  DOPPLER_ASSIGN(const std::string text, fields.text("precompiled_charsmap", ""));
  const auto bytes = decode_base64(text);
  if (!bytes) return fields.wrong("precompiled_charsmap", "base64");
  return out.emplace_back(normalizers::Precompiled{*bytes}), Status();
}
Status add_bert_normalizer(const JsonFields& fields, NormalizerSteps& out) {
  normalizers::Bert step;
  DOPPLER_ASSIGN(step.clean_text, fields.boolean("clean_text", true));
  DOPPLER_ASSIGN(step.chinese_chars, fields.boolean("handle_chinese_chars", true));
  DOPPLER_ASSIGN(step.lowercase, fields.boolean("lowercase", true));
  DOPPLER_ASSIGN(step.strip_accents, fields.boolean("strip_accents", step.lowercase));
  return out.emplace_back(step), Status();
}

constexpr auto kNormalizers = std::to_array<StepReader<NormalizerStep>>({
    {"NFC", add_form<UnicodeForm::kNfc>},
    {"NFD", add_form<UnicodeForm::kNfd>},
    {"NFKC", add_form<UnicodeForm::kNfkc>},
    {"NFKD", add_form<UnicodeForm::kNfkd>},
    {"Lowercase", add_plain<normalizers::Lowercase>},
    {"StripAccents", add_plain<normalizers::StripAccents>},
    {"Nmt", add_plain<normalizers::Nmt>},
    {"ByteLevel", add_plain<normalizers::ByteLevel>},
    {"Replace", add_replace<normalizers::Replace>},
    {"Prepend", add_prepend},
    {"Strip", add_strip},
    {"Precompiled", add_precompiled},
    {"BertNormalizer", add_bert_normalizer},
});

// ---- Pre-tokenizers

using PreTokenizerSteps = std::vector<PreTokenizerStep>;

Status add_split(const JsonFields& fields, PreTokenizerSteps& out) {
  pre_tokenizers::Split step;
  DOPPLER_ASSIGN(step.pattern, read_pattern(fields));
  DOPPLER_ASSIGN(step.behavior, read_behavior(fields));
  DOPPLER_ASSIGN(step.invert, fields.boolean("invert", false));
  return out.emplace_back(std::move(step)), Status();
}
Status add_byte_level(const JsonFields& fields, PreTokenizerSteps& out) {
  pre_tokenizers::ByteLevel step;
  DOPPLER_ASSIGN(step.add_prefix_space, fields.boolean("add_prefix_space", true));
  DOPPLER_ASSIGN(step.use_regex, fields.boolean("use_regex", true));
  return out.emplace_back(step), Status();
}
Status add_metaspace(const JsonFields& fields, PreTokenizerSteps& out) {
  pre_tokenizers::Metaspace step;
  DOPPLER_ASSIGN(step.replacement, read_mark(fields));
  DOPPLER_ASSIGN(step.prepend, read_prepend_scheme(fields));
  DOPPLER_ASSIGN(step.split, fields.boolean("split", true));
  return out.emplace_back(std::move(step)), Status();
}
Status add_digits(const JsonFields& fields, PreTokenizerSteps& out) {
  pre_tokenizers::Digits step;
  DOPPLER_ASSIGN(step.individual, fields.boolean("individual_digits", false));
  return out.emplace_back(step), Status();
}
Status add_punctuation(const JsonFields& fields, PreTokenizerSteps& out) {
  pre_tokenizers::Punctuation step;
  DOPPLER_ASSIGN(step.behavior, read_behavior(fields));
  return out.emplace_back(step), Status();
}
Status add_delimiter(const JsonFields& fields, PreTokenizerSteps& out) {
  pre_tokenizers::CharDelimiter step;
  DOPPLER_ASSIGN(step.delimiter, read_character(fields, "delimiter", ""));
  return out.emplace_back(step), Status();
}

constexpr auto kPreTokenizers = std::to_array<StepReader<PreTokenizerStep>>({
    {"Split", add_split},
    {"ByteLevel", add_byte_level},
    {"Metaspace", add_metaspace},
    {"Whitespace", add_plain<pre_tokenizers::Whitespace>},
    {"WhitespaceSplit", add_plain<pre_tokenizers::WhitespaceSplit>},
    {"Digits", add_digits},
    {"Punctuation", add_punctuation},
    {"BertPreTokenizer", add_plain<pre_tokenizers::Bert>},
    {"CharDelimiterSplit", add_delimiter},
});

// ---- Post-processors

using PostProcessorSteps = std::vector<PostProcessorStep>;

Result<TokenId> read_id(const Json& value, const JsonFields& fields, std::string_view key) {
  if (value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
      value.get<std::int64_t>() <= kMaxTokenId) {
    return value.get<TokenId>();
  }
  return fields.wrong(key, fmt::format("a token id from 0 to {}", kMaxTokenId));
}

// The ids of the special token `name` in a TemplateProcessing.
Status append_special(const JsonFields& fields, const std::string& name, PostProcessorStep& step) {
  const Json* known = fields.find("special_tokens");
  const auto it = known != nullptr && known->is_object() ? known->find(name) : Json::const_iterator();
  if (known == nullptr || !known->is_object() || it == known->end()) {
    return fields.wrong("special_tokens", fmt::format("an object with {}", printable(name)));
  }
  const JsonFields special(*it, fields.what());
  DOPPLER_ASSIGN(const Json* ids, special.array("ids"));
  if (ids == nullptr) return fields.wrong("special_tokens", "objects with ids");
  for (const Json& id : *ids) {
    DOPPLER_ASSIGN(const TokenId value, read_id(id, fields, "ids"));
    step.push_back(value);
  }
  return {};
}

Status add_template(const JsonFields& fields, PostProcessorSteps& out) {
  DOPPLER_ASSIGN(const Json* items, fields.array("single"));
  if (items == nullptr) return fields.wrong("single", "a list");
  PostProcessorStep step;
  std::size_t sequences = 0;
  for (const Json& item : *items) {
    const JsonFields item_fields(item, fields.what());
    if (const Json* special = item_fields.find("SpecialToken")) {
      DOPPLER_ASSIGN(const std::string name, JsonFields(*special, fields.what()).required_text("id"));
      DOPPLER_TRY(append_special(fields, name, step));
    } else if (item_fields.find("Sequence") != nullptr) {
      step.push_back(std::nullopt);
      ++sequences;
    } else {
      return fields.wrong("single", "a list of SpecialToken and Sequence");
    }
  }
  // More than one would let a chain of templates double a text each time.
  if (sequences != 1) return fields.wrong("single", "a list with one Sequence");
  return out.emplace_back(std::move(step)), Status();
}

// BertProcessing and RobertaProcessing: cls, the sequence, sep.
Status add_cls_sep(const JsonFields& fields, PostProcessorSteps& out) {
  TokenId ids[2];
  for (int i = 0; i < 2; ++i) {
    const char* key = i == 0 ? "cls" : "sep";
    DOPPLER_ASSIGN(const Json* pair, fields.array(key));
    if (pair == nullptr || pair->size() != 2) return fields.wrong(key, "a pair of token and id");
    DOPPLER_ASSIGN(ids[i], read_id((*pair)[1], fields, key));
  }
  return out.push_back({ids[0], std::nullopt, ids[1]}), Status();
}

constexpr auto kPostProcessors = std::to_array<StepReader<PostProcessorStep>>({
    {"TemplateProcessing", add_template},
    {"BertProcessing", add_cls_sep},
    {"RobertaProcessing", add_cls_sep},
    {"ByteLevel", [](const JsonFields&, PostProcessorSteps&) -> Status { return {}; }},  // about offsets only
});

// ---- Decoders

using DecoderSteps = std::vector<DecoderStep>;

Status add_strip_decoder(const JsonFields& fields, DecoderSteps& out) {
  decoders::Strip step;
  DOPPLER_ASSIGN(step.content, read_character(fields, "content", " "));
  DOPPLER_ASSIGN(const std::int64_t start, fields.number("start", 0, INT32_MAX));
  DOPPLER_ASSIGN(const std::int64_t stop, fields.number("stop", 0, INT32_MAX));
  step.start = static_cast<std::size_t>(start);
  step.stop = static_cast<std::size_t>(stop);
  return out.emplace_back(step), Status();
}
Status add_metaspace_decoder(const JsonFields& fields, DecoderSteps& out) {
  decoders::Metaspace step;
  DOPPLER_ASSIGN(step.replacement, read_mark(fields));
  DOPPLER_ASSIGN(const PrependScheme scheme, read_prepend_scheme(fields));
  step.strip_first = scheme != PrependScheme::kNever;
  return out.emplace_back(std::move(step)), Status();
}
Status add_word_piece(const JsonFields& fields, DecoderSteps& out) {
  decoders::WordPiece step;
  DOPPLER_ASSIGN(step.prefix, fields.text("prefix", "##"));
  DOPPLER_ASSIGN(step.cleanup, fields.boolean("cleanup", true));
  return out.emplace_back(std::move(step)), Status();
}
Status add_bpe_decoder(const JsonFields& fields, DecoderSteps& out) {
  decoders::Bpe step;
  DOPPLER_ASSIGN(step.suffix, fields.text("suffix", "</w>"));
  return out.emplace_back(std::move(step)), Status();
}

constexpr auto kDecoders = std::to_array<StepReader<DecoderStep>>({
    {"ByteLevel", add_plain<decoders::ByteLevel>},
    {"ByteFallback", add_plain<decoders::ByteFallback>},
    {"Fuse", add_plain<decoders::Fuse>},
    {"Replace", add_replace<decoders::Replace>},
    {"Strip", add_strip_decoder},
    {"Metaspace", add_metaspace_decoder},
    {"WordPiece", add_word_piece},
    {"BPEDecoder", add_bpe_decoder},
});

// Chains longer than this are no tokenizer's; each step costs a pass over every text.
constexpr std::size_t kMostSteps = 64;

template <typename Step>
Result<std::vector<Step>> read_chain(const Json& value, std::string_view part, const char* list,
                                     std::string_view what, std::span<const StepReader<Step>> readers) {
  std::vector<Step> steps;
  DOPPLER_TRY(read_steps<Step>(value, part, list, what, readers, steps));
  if (steps.size() > kMostSteps) {
    return fail(ErrorCode::kLimit, "The {} of {} has {} steps, more than the {} allowed. Check the file.",
                part, inside_sentence(what), steps.size(), kMostSteps);
  }
  return steps;
}

}  // namespace

Result<std::vector<NormalizerStep>> read_normalizer(const Json& value, std::string_view what) {
  return read_chain<NormalizerStep>(value, "normalizer", "normalizers", what, kNormalizers);
}

Result<std::vector<PreTokenizerStep>> read_pre_tokenizer(const Json& value, std::string_view what) {
  return read_chain<PreTokenizerStep>(value, "pre_tokenizer", "pretokenizers", what, kPreTokenizers);
}

Result<std::vector<PostProcessorStep>> read_post_processor(const Json& value, std::string_view what) {
  return read_chain<PostProcessorStep>(value, "post_processor", "processors", what, kPostProcessors);
}

Result<std::optional<std::vector<DecoderStep>>> read_decoder(const Json& value, std::string_view what) {
  if (value.is_null()) return std::optional<std::vector<DecoderStep>>();
  DOPPLER_ASSIGN(auto steps, read_chain<DecoderStep>(value, "decoder", "decoders", what, kDecoders));
  return std::optional(std::move(steps));
}

}  // namespace doppler::tokenizer
