#include "diagnosis/compare/text_repairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "tokenizer/gguf_pre_tokenizers.h"

namespace doppler::diagnosis {
namespace {

using namespace tokenizer;

struct NamedForm {
  UnicodeForm form;
  const char* name;
};
constexpr auto kForms = std::to_array<NamedForm>({{UnicodeForm::kNfc, "NFC"},
                                                  {UnicodeForm::kNfkc, "NFKC"},
                                                  {UnicodeForm::kNfd, "NFD"},
                                                  {UnicodeForm::kNfkd, "NFKD"}});

template <class... Ts>
struct Cases : Ts... {
  using Ts::operator()...;
};

std::string name_of_step(const NormalizerStep& step) {
  return std::visit(Cases{[](const normalizers::Form& form) -> std::string {
                            return std::ranges::find(kForms, form.form, &NamedForm::form)->name;
                          },
                          [](const normalizers::Lowercase&) -> std::string { return "Lowercase"; },
                          [](const normalizers::StripAccents&) -> std::string { return "StripAccents"; },
                          [](const normalizers::Nmt&) -> std::string { return "Nmt"; },
                          [](const normalizers::ByteLevel&) -> std::string { return "ByteLevel"; },
                          [](const normalizers::Replace& replace) {
                            return fmt::format("Replace of {}", printable(replace.pattern.text, 20));
                          },
                          [](const normalizers::Prepend& prepend) {
                            return fmt::format("Prepend of {}", printable(prepend.content, 20));
                          },
                          [](const normalizers::Strip&) -> std::string { return "Strip"; },
                          [](const normalizers::Precompiled&) -> std::string { return "Precompiled"; },
                          [](const normalizers::Bert&) -> std::string { return "BertNormalizer"; }},
                    step);
}

std::string name_of_step(const PreTokenizerStep& step) {
  static constexpr auto kNames =
      std::to_array<const char*>({"Split", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit",
                                  "Digits", "Punctuation", "BertPreTokenizer", "CharDelimiterSplit"});
  static_assert(kNames.size() == std::variant_size_v<PreTokenizerStep>);
  return kNames[step.index()];
}

bool is_sentencepiece(const TokenizerSpec& spec) {
  return spec.kind == ModelKind::kSentencePieceBpe || spec.kind == ModelKind::kSentencePieceUnigram;
}

template <class Step>
Step* step_in(std::vector<PreTokenizerStep>& steps) {
  for (PreTokenizerStep& step : steps) {
    if (Step* found = std::get_if<Step>(&step)) return found;
  }
  return nullptr;
}
template <class Step>
bool has_step(const std::vector<PreTokenizerStep>& steps) {
  return std::ranges::any_of(steps,
                             [](const PreTokenizerStep& step) { return std::holds_alternative<Step>(step); });
}

// ---- before the text is cut

void add_sentencepiece_rules(const TokenizerSpec& spec, bool gguf, std::vector<TextRepair>& repairs) {
  struct Rule {
    bool SentencePieceRules::* flag;
    const char *what, *gguf_key;
  };
  static constexpr auto kRules = std::to_array<Rule>(
      {{&SentencePieceRules::add_dummy_prefix, "a space is put before the text",
        "tokenizer.ggml.add_space_prefix"},
       {&SentencePieceRules::remove_extra_whitespaces, "extra white space is removed",
        "tokenizer.ggml.remove_extra_whitespaces"},
       {&SentencePieceRules::escape_whitespaces, "spaces become U+2581", "tokenizer.model"}});
  for (const Rule& rule : kRules) {
    const bool on = spec.sentencepiece.*rule.flag;
    repairs.push_back(
        {"normalizer", "normaliser", fmt::format("{}{}", on ? "not: " : "", rule.what),
         fmt::format("Set {} to {}.", gguf ? rule.gguf_key : "the rule in tokenizer.model", !on),
         [flag = rule.flag](TokenizerSpec& s) { s.sentencepiece.*flag = !(s.sentencepiece.*flag); }});
  }
  repairs.push_back({"normalizer", "normaliser", "text behind a special token gets its own space, or none",
                     "Set legacy in tokenizer_config.json to the other value.", [](TokenizerSpec& s) {
                       s.sentencepiece.prefix_after_special = !s.sentencepiece.prefix_after_special;
                     }});
  if (!spec.sentencepiece.charsmap.empty()) {
    repairs.push_back({"normalizer", "normaliser", "no map of characters is applied",
                       "Take the precompiled_charsmap away, or the source's.",
                       [](TokenizerSpec& s) { s.sentencepiece.charsmap.clear(); }});
    return;
  }
  for (const NamedForm& form : kForms) {
    repairs.push_back({"normalizer", "normaliser", fmt::format("the text is put into {} first", form.name),
                       fmt::format("Take the precompiled_charsmap of the source{}: it is empty here.",
                                   gguf ? " (tokenizer.ggml.precompiled_charsmap)" : ""),
                       [](TokenizerSpec&) {}, form.form});
  }
}

void add_forms(const TokenizerSpec& spec, bool gguf, std::vector<TextRepair>& repairs) {
  const auto is_form = [](const NormalizerStep& step) {
    return std::holds_alternative<normalizers::Form>(step);
  };
  const auto old = std::ranges::find_if(spec.normalizer, is_form);
  for (const NamedForm& form : kForms) {
    if (old != spec.normalizer.end() && std::get<normalizers::Form>(*old).form == form.form) continue;
    repairs.push_back(
        {"normalizer", "normaliser",
         old == spec.normalizer.end()
             ? fmt::format("the text is put into {} first", form.name)
             : fmt::format("the text is put into {} instead of {}", form.name, name_of_step(*old)),
         gguf ? fmt::format("Set tokenizer.ggml.pre to the source's: its normaliser is {}.", form.name)
              : fmt::format("Set the normalizer of tokenizer.json to {}.", form.name),
         [form, is_form](TokenizerSpec& s) {
           const auto at = std::ranges::find_if(s.normalizer, is_form);
           if (at != s.normalizer.end())
             *at = normalizers::Form{form.form};
           else
             s.normalizer.insert(s.normalizer.begin(), normalizers::Form{form.form});
         }});
  }
}

// ---- cutting

std::string set_pre(bool gguf, std::string_view json) {
  return gguf ? "Set tokenizer.ggml.pre to the name of the source's pre-tokenizer." : fmt::format("{}", json);
}

template <class Step>
void add_toggle(const TokenizerSpec& spec, bool Step::* flag, std::string on, std::string off,
                std::string repair, std::vector<TextRepair>& repairs) {
  auto steps = spec.pre_tokenizer;
  const Step* step = step_in<Step>(steps);
  if (step == nullptr) return;
  repairs.push_back({"pre_tokenizer", "pre-tokenizer", step->*flag ? std::move(off) : std::move(on),
                     std::move(repair), [flag](TokenizerSpec& s) {
                       Step& found = *step_in<Step>(s.pre_tokenizer);
                       found.*flag = !(found.*flag);
                     }});
}

void add_prefix_schemes(const TokenizerSpec& spec, std::vector<TextRepair>& repairs) {
  static constexpr std::pair<PrependScheme, const char*> kSchemes[] = {
      {PrependScheme::kAlways, "always"}, {PrependScheme::kFirst, "first"}, {PrependScheme::kNever, "never"}};
  if (!has_step<pre_tokenizers::Metaspace>(spec.pre_tokenizer)) return;
  for (const auto& [scheme, name] : kSchemes) {
    repairs.push_back({"pre_tokenizer", "pre-tokenizer",
                       fmt::format("the prepend_scheme of Metaspace is {}", name),
                       fmt::format("Set prepend_scheme of the pre_tokenizer in tokenizer.json to {}.", name),
                       [scheme](TokenizerSpec& s) {
                         step_in<pre_tokenizers::Metaspace>(s.pre_tokenizer)->prepend = scheme;
                       }});
  }
}

void add_digits(const TokenizerSpec& spec, bool gguf, std::vector<TextRepair>& repairs) {
  for (const bool individual : {true, false}) {
    const std::string when =
        individual ? "digits are cut one by one" : "digits are cut from what is no digit";
    if (has_step<pre_tokenizers::Digits>(spec.pre_tokenizer)) {
      repairs.push_back(
          {"pre_tokenizer", "pre-tokenizer", when,
           set_pre(gguf, fmt::format("Set individual_digits in tokenizer.json to {}.", individual)),
           [individual](TokenizerSpec& s) {
             step_in<pre_tokenizers::Digits>(s.pre_tokenizer)->individual = individual;
           }});
    } else {
      repairs.push_back({"pre_tokenizer", "pre-tokenizer", when,
                         set_pre(gguf, "Add the step Digits to the pre_tokenizer of tokenizer.json."),
                         [individual](TokenizerSpec& s) {
                           s.pre_tokenizer.insert(s.pre_tokenizer.begin(),
                                                  pre_tokenizers::Digits{individual});
                         }});
    }
  }
}

// Each pattern that published byte-level tokenizers have, in the place of the present ones.
void add_catalogue(const TokenizerSpec& spec, bool gguf, std::vector<TextRepair>& repairs) {
  if (!has_step<pre_tokenizers::ByteLevel>(spec.pre_tokenizer)) return;
  std::vector<std::array<std::string_view, 6>> seen;
  for (const GgufPreTokenizer& row : gguf_pre_tokenizers()) {
    if (std::ranges::find(seen, row.patterns) != seen.end()) continue;
    seen.push_back(row.patterns);
    repairs.push_back(
        {"pre_tokenizer", "pre-tokenizer", fmt::format("it is cut as tokenizers of the kind {} do", row.name),
         gguf ? fmt::format("Set tokenizer.ggml.pre to {}.", row.name)
              : fmt::format("Take the pre_tokenizer of tokenizer.json from the source again: its pattern is "
                            "that of {}.",
                            row.name),
         [patterns = row.patterns](TokenizerSpec& s) {
           std::vector<PreTokenizerStep> steps;
           for (const std::string_view pattern : patterns) {
             if (!pattern.empty()) steps.emplace_back(pre_tokenizers::Split{{std::string(pattern), true}});
           }
           pre_tokenizers::ByteLevel bytes = *step_in<pre_tokenizers::ByteLevel>(s.pre_tokenizer);
           bytes.use_regex = false;
           steps.emplace_back(bytes);
           s.pre_tokenizer = std::move(steps);
         }});
  }
}

}  // namespace

std::vector<TextRepair> normalizer_repairs(const TokenizerSpec& spec, bool gguf) {
  std::vector<TextRepair> repairs;
  if (is_sentencepiece(spec)) {
    add_sentencepiece_rules(spec, gguf, repairs);
    return repairs;
  }
  add_forms(spec, gguf, repairs);
  for (std::size_t i = 0; i < spec.normalizer.size(); ++i) {
    const std::string name = name_of_step(spec.normalizer[i]);
    repairs.push_back({"normalizer", "normaliser", fmt::format("its step {} is left out", name),
                       fmt::format("Take {} out of the normalizer.", name), [i](TokenizerSpec& s) {
                         s.normalizer.erase(s.normalizer.begin() + static_cast<std::ptrdiff_t>(i));
                       }});
  }
  const std::pair<const char*, NormalizerStep> steps[] = {
      {"Lowercase", normalizers::Lowercase{}},
      {"StripAccents", normalizers::StripAccents{}},
      {"Prepend of U+2581", normalizers::Prepend{std::string(kSpaceMark)}},
      {"Replace of spaces by U+2581", normalizers::Replace{{" "}, std::string(kSpaceMark)}},
      {"Strip", normalizers::Strip{}}};
  for (const auto& [name, step] : steps) {
    repairs.push_back({"normalizer", "normaliser", fmt::format("the step {} comes first", name),
                       gguf ? "Convert the tokenizer again: GGUF cannot say this."
                            : fmt::format("Add {} to the normalizer of tokenizer.json.", name),
                       [step](TokenizerSpec& s) { s.normalizer.insert(s.normalizer.begin(), step); }});
  }
  add_toggle(spec, &pre_tokenizers::ByteLevel::add_prefix_space, "a space is put before the text",
             "no space is put before the text", "Set add_prefix_space to the other value.", repairs);
  add_prefix_schemes(spec, repairs);
  return repairs;
}

std::vector<TextRepair> pre_tokenizer_repairs(const TokenizerSpec& spec, bool gguf, bool catalogue) {
  std::vector<TextRepair> repairs;
  if (is_sentencepiece(spec)) return repairs;
  add_digits(spec, gguf, repairs);
  for (std::size_t i = 0; i < spec.pre_tokenizer.size(); ++i) {
    if (std::holds_alternative<pre_tokenizers::ByteLevel>(spec.pre_tokenizer[i])) continue;
    const std::string name = name_of_step(spec.pre_tokenizer[i]);
    repairs.push_back({"pre_tokenizer", "pre-tokenizer", fmt::format("its step {} is left out", name),
                       set_pre(gguf, fmt::format("Take {} out of the pre_tokenizer.", name)),
                       [i](TokenizerSpec& s) {
                         s.pre_tokenizer.erase(s.pre_tokenizer.begin() + static_cast<std::ptrdiff_t>(i));
                       }});
  }
  add_toggle(spec, &pre_tokenizers::ByteLevel::use_regex, "GPT-2's pattern cuts it, too",
             "GPT-2's pattern does not cut it",
             set_pre(gguf, "Set use_regex of ByteLevel to the other value."), repairs);
  add_toggle(spec, &pre_tokenizers::Metaspace::split, "words are cut at spaces",
             "words are not cut at spaces", "Set split of Metaspace to the other value.", repairs);
  if (catalogue) add_catalogue(spec, gguf, repairs);
  return repairs;
}

std::vector<TextRepair> model_repairs(const TokenizerSpec& spec) {
  struct Flag {
    bool TokenizerSpec::* flag;
    const char *cause, *name, *when;
  };
  static constexpr auto kFlags = std::to_array<Flag>(
      {{&TokenizerSpec::ignore_merges, "merges_order", "ignore_merges",
        "words that are pieces are taken whole"},
       {&TokenizerSpec::byte_fallback, "unknown_text", "byte_fallback",
        "text that the vocabulary lacks becomes bytes"},
       {&TokenizerSpec::fuse_unknown, "unknown_text", "fuse_unk", "a run of unknown text is one token"}});
  std::vector<TextRepair> repairs;
  for (const Flag& flag : kFlags) {
    const bool on = spec.*flag.flag;
    repairs.push_back({flag.cause, "model", fmt::format("{}{}", on ? "not: " : "", flag.when),
                       fmt::format("Set {} of the tokenizer to {}.", flag.name, !on),
                       [which = flag.flag](TokenizerSpec& s) { s.*which = !(s.*which); }});
  }
  return repairs;
}

std::vector<TextRepair> decoder_repairs(const TokenizerSpec& spec) {
  using Steps = std::vector<DecoderStep>;
  const DecoderStep marks = decoders::Replace{{std::string(kSpaceMark)}, " "};
  const std::pair<const char*, Steps> usual[] = {
      {"ByteLevel", {decoders::ByteLevel{}}},
      {"Replace U+2581, ByteFallback, Fuse", {marks, decoders::ByteFallback{}, decoders::Fuse{}}},
      {"Replace U+2581, ByteFallback, Fuse, Strip",
       {marks, decoders::ByteFallback{}, decoders::Fuse{}, decoders::Strip{U' ', 1, 0}}},
      {"Metaspace", {decoders::Metaspace{}}},
      {"Metaspace without Strip", {decoders::Metaspace{std::string(kSpaceMark), false}}},
      {"WordPiece", {decoders::WordPiece{}}},
      {"BPEDecoder", {decoders::Bpe{}}},
      {"Fuse", {decoders::Fuse{}}}};
  std::vector<TextRepair> repairs;
  for (const auto& [name, steps] : usual) {
    repairs.push_back({"decoder", "decoder", fmt::format("the decoder is {}", name),
                       fmt::format("Set the decoder of the tokenizer to {}.", name),
                       [steps](TokenizerSpec& s) { s.decoder = steps; }});
  }
  if (is_sentencepiece(spec)) {
    for (TextRepair& repair : normalizer_repairs(spec, false)) {
      repair.cause = repair.step = "decoder";
      repairs.push_back(std::move(repair));
    }
  }
  return repairs;
}

std::vector<TextRepair> flag_repairs(const TokenizerSpec& spec, TokenId id) {
  struct Flag {
    bool AddedToken::* flag;
    const char* name;
  };
  static constexpr auto kFlags = std::to_array<Flag>({{&AddedToken::lstrip, "lstrip"},
                                                      {&AddedToken::rstrip, "rstrip"},
                                                      {&AddedToken::normalized, "normalized"},
                                                      {&AddedToken::single_word, "single_word"},
                                                      {&AddedToken::special, "special"}});
  std::vector<TextRepair> repairs;
  const auto token = std::ranges::find(spec.added, id, &AddedToken::id);
  if (token == spec.added.end()) return repairs;
  for (const Flag& flag : kFlags) {
    const bool on = (*token).*flag.flag;
    const std::string what = fmt::format("{} of {} is {}", flag.name, printable(token->content), !on);
    repairs.push_back({"special_tokens", "special tokens", what,
                       fmt::format("Set {} of {} to {}.", flag.name, printable(token->content), !on),
                       [id, which = flag.flag](TokenizerSpec& s) {
                         AddedToken& found = *std::ranges::find(s.added, id, &AddedToken::id);
                         found.*which = !(found.*which);
                       }});
  }
  return repairs;
}

}  // namespace doppler::diagnosis
