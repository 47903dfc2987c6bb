// Text faults: a tokenizer, a chat template or a list of stop tokens that is not the model's.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/unicode.h"
#include "diagnosis/compare/text_truth.h"
#include "diagnosis/faults/faults_table.h"
#include "engine/messages.h"
#include "tokenizer/gguf_pre_tokenizers.h"

namespace doppler::diagnosis::faults {
namespace {

using chat::OrderedJson;
using tokenizer::TokenizerSpec;
using Put = std::function<void(Site&)>;
using EditSpec = std::function<void(TokenizerSpec&)>;
using EditText =
    std::function<std::string(const Subject& subject, const OrderedJson& conversation, std::string text)>;
using EditConversation = std::function<void(OrderedJson&)>;

bool has_text(const Subject& s) {
  return s.tokenizer != nullptr && s.prompt_ids != nullptr;
}

// Conversations go through the subject's own template and tokenizer.
void tie_conversations(Subject& s) {
  if (!s.text.render) {
    s.chat = nullptr;
    return;
  }
  s.chat_ids = [render = s.text.render,
                tokenizer = s.tokenizer](std::span<const Message> messages) -> Result<std::vector<TokenId>> {
    DOPPLER_ASSIGN(const OrderedJson conversation, conversation_of(messages, {}));
    DOPPLER_ASSIGN(const std::string text, render(conversation, {}));
    return tokenizer->encode(text, {.add_special = false});
  };
}

Put tokenizer_edit(EditSpec edit) {
  return [edit = std::move(edit)](Site& site) {
    Subject& s = site.subject();
    TokenizerSpec spec = s.tokenizer->spec();
    edit(spec);
    auto made = tokenizer::Tokenizer::from_spec(std::move(spec));
    if (!made) return;
    const auto tokenizer = std::make_shared<const tokenizer::Tokenizer>(std::move(*made));
    s.tokenizer = s.text.tokenizer = tokenizer.get();
    s.prompt_ids = [tokenizer](std::string_view prompt) { return tokenizer->encode(prompt); };
    s.text.prompt_ids = s.prompt_ids;
    tie_conversations(s);
  };
}

// Changes what the template is given, or what it gives: what an edit of its text comes to.
Put template_edit(EditConversation before, EditText after) {
  return [before = std::move(before), after = std::move(after)](Site& site) {
    Subject& s = site.subject();
    if (!s.text.render) return;
    const auto healthy = std::make_shared<const Subject>(s);
    s.text.chat_template += "{# edited #}";
    s.text.render = [before, after, healthy](const OrderedJson& conversation,
                                             const chat::RenderOptions& options) -> Result<std::string> {
      OrderedJson changed = conversation;
      if (before) before(changed);
      DOPPLER_ASSIGN(std::string text, healthy->text.render(changed, options));
      return after ? after(*healthy, conversation, std::move(text)) : std::move(text);
    };
    tie_conversations(s);
  };
}

// The fault applies where some text, conversation or stop token comes out otherwise.
bool changes_texts(const Put& put, const Subject& subject) {
  if (!has_text(subject)) return false;
  const auto truth_of = [](const Subject& s) -> std::string {
    TextSide side = s.text;
    side.tokenizer = s.tokenizer;
    side.prompt_ids = s.prompt_ids;
    side.stop_ids.assign(s.spec.eos_ids.begin(), s.spec.eos_ids.end());
    side.pad_id = s.spec.pad_id;
    side.chat_template.clear();  // another text of the same template is no fault
    auto truth = text_truth_of(side);
    if (!truth) return truth.error().message;
    truth->now.reset();
    truth->sampling = side.sampling;
    return text_truth_json(*truth);
  };
  Subject changed = subject;
  Site site(changed);
  put(site);
  return truth_of(subject) != truth_of(changed);
}

FaultRow row(std::string_view name, std::string_view cause, std::string_view meaning, Put put,
             bool in_ids = true) {
  return {{name, FaultKind::kText, cause, "models whose texts it changes", meaning},
          [put](const Subject& s) { return changes_texts(put, s); },
          at(in_ids ? Stage::kEmbedOut : Stage::kNone, -1, FaultPlace::When::kText),
          put};
}

// ---- the tokenizer

template <class Step, class Steps>
bool has(const Steps& steps) {
  return std::ranges::any_of(steps, [](const auto& step) { return std::holds_alternative<Step>(step); });
}

void use_gpt2_pattern(TokenizerSpec& spec) {
  if (!has<tokenizer::pre_tokenizers::ByteLevel>(spec.pre_tokenizer)) return;
  spec.pre_tokenizer = {tokenizer::pre_tokenizers::ByteLevel{.add_prefix_space = false, .use_regex = true}};
}

void drop_splits(TokenizerSpec& spec) {
  std::erase_if(spec.pre_tokenizer, [](const auto& step) {
    return std::holds_alternative<tokenizer::pre_tokenizers::Split>(step);
  });
}

void put_prefix_space(TokenizerSpec& spec) {
  for (auto& step : spec.pre_tokenizer) {
    if (auto* bytes = std::get_if<tokenizer::pre_tokenizers::ByteLevel>(&step)) {
      bytes->add_prefix_space = !bytes->add_prefix_space;
      return;
    }
  }
  spec.sentencepiece.add_dummy_prefix = !spec.sentencepiece.add_dummy_prefix;
  spec.normalizer.insert(spec.normalizer.begin(),
                         tokenizer::normalizers::Prepend{std::string(tokenizer::kSpaceMark)});
}

void set_form(TokenizerSpec& spec, UnicodeForm form) {
  std::erase_if(spec.normalizer,
                [](const auto& step) { return std::holds_alternative<tokenizer::normalizers::Form>(step); });
  spec.normalizer.insert(spec.normalizer.begin(), tokenizer::normalizers::Form{form});
}

// Pieces get the ids that `id_of` gives for theirs; merges keep their pieces.
void renumber(TokenizerSpec& spec, const std::function<TokenId(TokenId)>& id_of) {
  tokenizer::Vocabulary vocabulary;
  for (std::size_t id = 0; id < spec.vocabulary.size(); ++id) {
    if (const auto piece = spec.vocabulary.piece(static_cast<TokenId>(id)))
      vocabulary.add(*piece, id_of(static_cast<TokenId>(id)));
  }
  for (tokenizer::Merge& merge : spec.merges)
    merge = {id_of(merge.left), id_of(merge.right), id_of(merge.result)};
  spec.vocabulary = std::move(vocabulary);
}

// Two words that most texts hold: neither is special, both are made by merges.
void exchange_two_ids(TokenizerSpec& spec) {
  if (spec.merges.size() < 16) return;
  const TokenId a = spec.merges[spec.merges.size() / 8].result,
                b = spec.merges[spec.merges.size() / 4].result;
  renumber(spec, [a, b](TokenId id) { return id == a ? b : id == b ? a : id; });
}

// From the first third on, every piece has its neighbour's id.
void shift_ids(TokenizerSpec& spec) {
  const auto size = static_cast<TokenId>(spec.vocabulary.size()), first = size / 3;
  for (const tokenizer::AddedToken& token : spec.added) {
    if (token.id >= first && token.id < size) return;
  }
  renumber(spec,
           [first, size](TokenId id) { return id < first ? id : first + (id - first + 1) % (size - first); });
}

// The special token that ends a turn, or else the last one.
tokenizer::AddedToken* end_token(TokenizerSpec& spec) {
  tokenizer::AddedToken* last = nullptr;
  for (tokenizer::AddedToken& token : spec.added) {
    if (!token.special || token.content.size() < 4) continue;
    last = &token;
    if (token.content.find("end") != std::string::npos || token.content.find("eot") != std::string::npos)
      break;
  }
  return last;
}

void rename_end_token(TokenizerSpec& spec) {
  tokenizer::AddedToken* token = end_token(spec);
  if (token == nullptr) return;
  const std::string old = token->content, renamed = old.substr(0, old.size() - 1) + "_x" + old.back();
  for (tokenizer::Vocabulary* part : {&spec.vocabulary, &spec.extra}) {
    tokenizer::Vocabulary changed;
    for (std::size_t id = 0; id < part->size(); ++id) {
      if (const auto piece = part->piece(static_cast<TokenId>(id)))
        changed.add(*piece == old ? renamed : std::string(*piece), static_cast<TokenId>(id));
    }
    *part = std::move(changed);
  }
  token->content = renamed;
}

void forget_end_token(TokenizerSpec& spec) {
  if (const tokenizer::AddedToken* token = end_token(spec))
    std::erase_if(spec.added, [id = token->id](const auto& added) { return added.id == id; });
}

void wrap(TokenizerSpec& spec, bool bos, bool eos) {
  tokenizer::PostProcessorStep step;
  if (bos && spec.bos.id) step.push_back(*spec.bos.id);
  step.push_back(std::nullopt);
  if (eos && spec.eos.id) step.push_back(*spec.eos.id);
  spec.post_processor = {step};
}

void use_other_decoder(TokenizerSpec& spec) {
  const bool bytes = spec.decoder && has<tokenizer::decoders::ByteLevel>(*spec.decoder);
  spec.decoder = bytes ? std::vector<tokenizer::DecoderStep>{tokenizer::decoders::Metaspace{}}
                       : std::vector<tokenizer::DecoderStep>{tokenizer::decoders::ByteLevel{}};
}

void strip_decoded(TokenizerSpec& spec) {
  if (!spec.decoder) return;
  const auto strips = [](const auto& step) {
    return std::holds_alternative<tokenizer::decoders::Strip>(step);
  };
  if (std::erase_if(*spec.decoder, strips) == 0)
    spec.decoder->push_back(tokenizer::decoders::Strip{U' ', 1, 0});
}

std::vector<FaultRow> tokenizer_faults() {
  using namespace tokenizer::normalizers;
  const auto spec = [](EditSpec edit) { return tokenizer_edit(std::move(edit)); };
  return {
      row("normalizer_dropped", "normalizer", "the tokenizer's normaliser is left out",
          spec([](TokenizerSpec& s) { s.normalizer.clear(); })),
      row("normalizer_nfkc", "normalizer", "text is put into NFKC, not what the tokenizer says",
          spec([](TokenizerSpec& s) { set_form(s, UnicodeForm::kNfkc); })),
      row("normalizer_nfd", "normalizer", "text is put into NFD, not what the tokenizer says",
          spec([](TokenizerSpec& s) { set_form(s, UnicodeForm::kNfd); })),
      row("normalizer_lowercase", "normalizer", "text is put into small letters",
          spec([](TokenizerSpec& s) { s.normalizer.insert(s.normalizer.begin(), Lowercase{}); })),
      row("prefix_space", "pre_tokenizer", "a space is put before a text where there should be none",
          spec([](TokenizerSpec& s) {
            if (has<tokenizer::pre_tokenizers::ByteLevel>(s.pre_tokenizer)) put_prefix_space(s);
          })),
      row("dummy_prefix", "normalizer", "U+2581 is put before a text where there should be none",
          spec([](TokenizerSpec& s) {
            if (!has<tokenizer::pre_tokenizers::ByteLevel>(s.pre_tokenizer)) put_prefix_space(s);
          })),
      row("digits_split", "pre_tokenizer", "numbers are cut into digits", spec([](TokenizerSpec& s) {
            s.pre_tokenizer.insert(s.pre_tokenizer.begin(), tokenizer::pre_tokenizers::Digits{true});
          })),
      row("pre_tokenizer_gpt2", "pre_tokenizer", "text is cut by GPT-2's pattern", spec(use_gpt2_pattern)),
      row("pre_tokenizer_dropped", "pre_tokenizer", "the patterns that cut text are left out",
          spec(drop_splits)),
      row("punctuation_split", "pre_tokenizer", "every punctuation mark is cut off",
          spec([](TokenizerSpec& s) {
            s.pre_tokenizer.insert(s.pre_tokenizer.begin(), tokenizer::pre_tokenizers::Punctuation{});
          })),
      row("merges_dropped", "merges_dropped",
          "the tokenizer's merges are dropped, as a reader does that knows them "
          "as texts only",
          spec([](TokenizerSpec& s) { s.merges.clear(); })),
      row("merges_halved", "merges_dropped", "the second half of the merges is dropped",
          spec([](TokenizerSpec& s) { s.merges.resize(s.merges.size() / 2); })),
      row("merges_reversed", "merges_order", "the merges are read from behind",
          spec([](TokenizerSpec& s) { std::ranges::reverse(s.merges); })),
      row("merges_sorted", "merges_order", "the merges are sorted by their results",
          spec([](TokenizerSpec& s) { std::ranges::sort(s.merges, {}, &tokenizer::Merge::left); })),
      row("byte_fallback_off", "unknown_text",
          "characters that the vocabulary lacks become the unknown token",
          spec([](TokenizerSpec& s) { s.byte_fallback = false; })),
      row("ids_exchanged", "token_ids", "two tokens have each other's id", spec(exchange_two_ids)),
      row("ids_shifted", "token_ids", "two thirds of the tokens have their neighbour's id", spec(shift_ids)),
      row("special_text_wrong", "special_tokens", "the token that ends a turn has another text",
          spec(rename_end_token)),
      row("special_as_text", "special_tokens", "the token that ends a turn is read as plain text",
          spec(forget_end_token)),
      row("special_flags_lost", "special_tokens", "special tokens are printed with the answer",
          spec([](TokenizerSpec& s) {
            for (auto& token : s.added) token.special = false;
          })),
      row("special_strips", "special_tokens", "special tokens swallow the white space behind them",
          spec([](TokenizerSpec& s) {
            for (auto& token : s.added) token.rstrip = !token.rstrip && token.id == s.eos.id;
          })),
      row("bos_off", "bos_missing", "add_bos_token is off", spec([](TokenizerSpec& s) {
            if (!s.post_processor.empty()) wrap(s, false, false);
          })),
      row("bos_on", "bos_extra", "add_bos_token is on where it should be off", spec([](TokenizerSpec& s) {
            if (!s.bos.id) s.bos = s.eos;
            if (s.post_processor.empty()) wrap(s, true, false);
          })),
      row("eos_on", "eos_extra", "add_eos_token is on where it should be off",
          spec([](TokenizerSpec& s) { wrap(s, !s.post_processor.empty(), true); })),
      row("decoder_of_another_kind", "decoder",
          "pieces become text by the rules of another kind of tokenizer", spec(use_other_decoder), false),
      row("decoder_strips", "decoder",
          "the first space of decoded text is dropped, or kept, against the tokenizer", spec(strip_decoded),
          false),
  };
}

// ---- the template

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// What a template writes behind an answer: "<end_of_turn>".
std::string end_of_turn(const Subject& subject) {
  const std::string said = "Purple.";
  const OrderedJson conversation = {
      {"messages", {{{"role", "user"}, {"content", "Name."}}, {{"role", "assistant"}, {"content", said}}}}};
  const std::string text = subject.text.render(conversation, {}).value_or("");
  const std::size_t found = text.rfind(said);
  if (found == std::string::npos) return {};
  std::string end = text.substr(found + said.size());
  const std::size_t first = end.find_first_not_of(" \n"), last = end.find_last_not_of(" \n");
  return first == std::string::npos ? std::string() : end.substr(first, last - first + 1);
}

void drop_system(OrderedJson& conversation) {
  OrderedJson kept = OrderedJson::array();
  for (const OrderedJson& message : conversation["messages"]) {
    if (message.value("role", "") != "system") kept.push_back(message);
  }
  conversation["messages"] = kept;
}

std::string without_default_system(const Subject&, const OrderedJson& conversation, std::string text) {
  const OrderedJson& first = conversation["messages"][0];
  if (first.value("role", "") != "user") return text;
  const std::size_t content = text.find(first.value("content", ""));
  // The turn of the user begins with the marker that the whole text begins with, behind BOS.
  const std::size_t system = text.find("system");
  if (content == std::string::npos || system == std::string::npos || system > content) return text;
  const std::size_t marker = text.rfind('<', system);
  if (marker == std::string::npos) return text;
  const std::string opening = text.substr(marker, system - marker);
  const std::size_t turn = text.rfind(opening, content);
  return turn == std::string::npos || turn <= marker ? text : text.substr(0, marker) + text.substr(turn);
}

std::vector<FaultRow> template_faults() {
  const auto edit = [](EditText after) { return template_edit(nullptr, std::move(after)); };
  return {
      row("template_role", "chat_role", "the answer's role has another name",
          edit([](const auto&, const auto&, std::string text) {
            const bool model = text.find(">model\n") != std::string::npos;
            return model ? replaced(text, ">model\n", ">assistant\n") : replaced(text, "assistant", "model");
          })),
      row("template_no_generation_prompt", "generation_prompt", "nothing begins the answer",
          template_edit([](OrderedJson& c) { c["add_generation_prompt"] = false; }, nullptr)),
      row("template_no_end_of_turn", "end_of_turn", "turns do not end",
          edit([](const Subject& s, const auto&, std::string text) {
            return replaced(text, end_of_turn(s), "");
          })),
      row("template_line_end_lost", "chat_white_space", "line ends of the template are trimmed",
          edit([](const auto&, const auto&, std::string text) {
            std::string out = replaced(text, ">\n", ">");
            return out == text ? replaced(text, "\n\n", "\n") : out;
          })),
      row("template_space_added", "chat_white_space", "a space comes before what is said",
          edit([](const auto&, const OrderedJson& c, std::string text) {
            for (const OrderedJson& message : c["messages"]) {
              const std::string said = message.value("content", "");
              if (!said.empty()) text = replaced(text, said, " " + said);
            }
            return text;
          })),
      row("template_default_system_dropped", "system_prompt",
          "the system text that stands for none is left out", edit(without_default_system)),
      row("template_system_dropped", "system_prompt", "the system text is left out",
          template_edit(drop_system, nullptr)),
      row("template_tools_ignored", "chat_tools", "tools are left out",
          template_edit([](OrderedJson& c) { c.erase("tools"); }, nullptr)),
      row("template_turn_lost", "chat_template", "what the assistant said is left out",
          template_edit(
              [](OrderedJson& c) {
                for (OrderedJson& message : c["messages"]) {
                  if (message.value("role", "") == "assistant") message["content"] = "";
                }
              },
              nullptr)),
      row("template_no_bos", "bos_missing", "the template does not write BOS",
          edit([](const Subject& s, const auto&, std::string text) {
            const std::string& bos = s.tokenizer->bos().text;
            return !bos.empty() && text.starts_with(bos) ? text.substr(bos.size()) : text;
          })),
      row("template_missing", "chat_template", "there is no chat template",
          [](Site& site) {
            site.subject().text.render = nullptr;
            tie_conversations(site.subject());
          }),
  };
}

// ---- prompts that come from elsewhere than the tokenizer

bool has_bos(const Subject& s) {
  if (s.tokenizer == nullptr || !s.prompt_ids) return false;
  const auto ids = s.prompt_ids("a");
  const TokenId bos = s.tokenizer->bos().id.value_or(s.spec.bos_id);
  return ids && !ids->empty() && bos >= 0 && ids->front() == bos;
}

// Changes the ids of prompts and conversations.
std::function<void(Site&)> prompts(std::function<void(std::vector<TokenId>&)> change) {
  return [change = std::move(change)](Site& site) {
    Subject& s = site.subject();
    s.prompt_ids = [change, encode = s.prompt_ids](std::string_view text) -> Result<std::vector<TokenId>> {
      DOPPLER_ASSIGN(std::vector<TokenId> ids, encode(text));
      change(ids);
      return ids;
    };
    if (!s.chat_ids) return;
    s.chat_ids = [change,
                  encode = s.chat_ids](std::span<const Message> messages) -> Result<std::vector<TokenId>> {
      DOPPLER_ASSIGN(std::vector<TokenId> ids, encode(messages));
      change(ids);
      return ids;
    };
  };
}

std::vector<FaultRow> prompt_faults() {
  const auto text = at(Stage::kEmbedOut, -1, FaultPlace::When::kText);  // where ids become vectors
  return {
      {{"double_bos", FaultKind::kText, "double_bos", "models whose tokenizer writes BOS",
        "prompts begin with two BOS"},
       has_bos,
       text,
       prompts([](std::vector<TokenId>& ids) {
         if (!ids.empty()) ids.insert(ids.begin(), ids.front());
       })},
      {{"bos_missing", FaultKind::kText, "bos_missing", "models whose tokenizer writes BOS",
        "prompts begin without BOS"},
       has_bos,
       text,
       prompts([](std::vector<TokenId>& ids) {
         if (!ids.empty()) ids.erase(ids.begin());
       })},
  };
}

// ---- what ends an answer

std::vector<FaultRow> generation_faults() {
  return {
      row(
          "stop_token_missing", "stop_tokens", "the token that ends a turn does not end the answer",
          [](Site& site) {
            auto& ids = site.spec().eos_ids;
            if (ids.size() > 1)
              ids.pop_back();
            else if (!ids.empty())
              ids[0] = site.subject().tokenizer->bos().id.value_or(ids[0]);
          },
          false),
      row(
          "stop_at_a_word", "stop_tokens", "a word ends the answer",
          [](Site& site) {
            site.spec().eos_ids.push_back(static_cast<TokenId>(site.subject().tokenizer->vocab_size() / 2));
          },
          false),
      row(
          "pad_is_a_word", "pad_token", "the padding token, which is never chosen, is a word",
          [](Site& site) {
            site.spec().pad_id = static_cast<TokenId>(site.subject().tokenizer->vocab_size() / 2);
          },
          false),
      row(
          "temperature_wild", "generation_defaults", "the default temperature is 100",
          [](Site& site) { site.subject().text.sampling["temperature"] = 100; }, false),
  };
}

}  // namespace

std::vector<FaultRow> text_faults() {
  std::vector<FaultRow> rows;
  for (const auto& part : {tokenizer_faults(), prompt_faults(), template_faults(), generation_faults()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
