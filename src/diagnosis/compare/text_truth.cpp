#include "diagnosis/compare/text_truth.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/unicode.h"
#include "diagnosis/compare/text_probes.h"
#include "system/clock.h"
#include "tokenizer/byte_level.h"

namespace doppler::diagnosis {
namespace {

using tokenizer::Tokenizer;

// Of larger vocabularies so many pieces are recorded, evenly spread: some 60 KB.
constexpr std::size_t kMostPieces = 4096;

// Some tokenizers have hundreds that nobody uses.
constexpr std::size_t kMostSpecialTexts = 64;

Result<TextCase> case_of(const TextSide& side, std::string text) {
  TextCase made;
  DOPPLER_ASSIGN(made.ids, side.tokenizer->encode(text, {.add_special = false}));
  if (side.prompt_ids) {
    DOPPLER_ASSIGN(made.with_special, side.prompt_ids(text));
  } else {
    DOPPLER_ASSIGN(made.with_special, side.tokenizer->encode(text));
  }
  DOPPLER_ASSIGN(made.decoded, side.tokenizer->decode(made.ids));
  DOPPLER_ASSIGN(made.without_special, side.tokenizer->decode(*made.with_special, true));
  made.text = std::move(text);
  return made;
}

void add_piece(const Tokenizer& tokenizer, TokenId id, TextTruth& truth) {
  const auto piece = tokenizer.piece(id);
  if (piece && is_valid_utf8(*piece)) truth.pieces[id] = *piece;
}

void add_vocabulary(const Tokenizer& tokenizer, TextTruth& truth) {
  const std::size_t size = tokenizer.vocab_size(), step = size / kMostPieces + 1;
  for (std::size_t id = 0; id < size; id += step) add_piece(tokenizer, static_cast<TokenId>(id), truth);
  for (const TextCase& text : truth.texts) {
    for (const TokenId id : text.with_special.value_or(text.ids)) add_piece(tokenizer, id, truth);
  }
  for (const tokenizer::AddedToken& added : tokenizer.spec().added) {
    if (!added.special || truth.special.size() >= kMostPieces) continue;
    truth.special.push_back(added.id);
    add_piece(tokenizer, added.id, truth);
  }
  const std::pair<const char*, const tokenizer::SpecialToken&> roles[] = {
      {"bos", tokenizer.bos()}, {"eos", tokenizer.eos()}, {"unk", tokenizer.unk()}, {"pad", tokenizer.pad()}};
  for (const auto& [name, role] : roles) {
    if (role.id) truth.roles[name] = role;
  }
}

// Special tokens inside of a text, with and without spaces around.
std::vector<std::string> texts_with_special(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (const tokenizer::SpecialToken* role : {&tokenizer.bos(), &tokenizer.eos(), &tokenizer.pad()}) {
    if (role->id && !role->text.empty())
      texts.push_back("one" + role->text + "two " + role->text + " three\n");
  }
  std::size_t count = 0;
  for (const tokenizer::AddedToken& added : tokenizer.spec().added) {
    if (!added.special || tokenizer::byte_of_piece(added.content) || count++ >= kMostSpecialTexts) continue;
    texts.push_back("one" + added.content + "two");
  }
  return texts;
}

}  // namespace

const chat::OrderedJson& text_probes() {
  static const chat::OrderedJson kProbes = [] {
    for (const ProbeFile& file : probe_files()) {
      if (auto json = chat::parse_ordered_json(file.text, file.name)) return std::move(*json);
    }
    return chat::OrderedJson::object();
  }();
  return kProbes;
}

Result<TextTruth> text_truth_of(const TextSide& side, std::string_view prompt) {
  TextTruth truth;
  truth.stop_ids = side.stop_ids;
  if (side.pad_id >= 0) truth.pad_id = side.pad_id;
  if (!side.gguf) truth.sampling = side.sampling;
  truth.chat_template = side.chat_template;
  truth.now = system::local_time();
  std::vector<std::string> texts;
  if (!prompt.empty()) texts.emplace_back(prompt);
  for (const auto& text : text_probes()["texts"]) texts.push_back(text.get<std::string>());
  for (const auto& probe : text_probes()["conversations"]) {
    if (!side.render) break;
    const chat::OrderedJson& conversation = probe["conversation"];
    ConversationCase made{probe["name"].get<std::string>(), conversation.dump(), std::nullopt};
    if (auto text = side.render(conversation, {.now = truth.now})) {
      made.rendered = std::move(*text);
      texts.push_back(*made.rendered);
    }
    truth.conversations.push_back(std::move(made));
  }
  if (side.tokenizer == nullptr) return truth;
  for (std::string& text : texts_with_special(*side.tokenizer)) texts.push_back(std::move(text));
  for (std::string& text : texts) {
    DOPPLER_ASSIGN(TextCase made, case_of(side, std::move(text)));
    truth.texts.push_back(std::move(made));
  }
  add_vocabulary(*side.tokenizer, truth);
  return truth;
}

}  // namespace doppler::diagnosis
