// What a model makes of text, before and behind all weights: ids of texts, texts of ids, rendered
// conversations, and the tokens that end an answer. Part of a recording, or made of a model's own files.
#pragma once

#include <array>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace doppler::diagnosis {

// What generation_config.json may say of choosing tokens.
inline constexpr std::array<const char*, 6> kSamplingKeys = {
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"};

// One text and what becomes of it. What is not known is nothing, and is not compared.
struct TextCase {
  std::string text;
  std::vector<TokenId> ids;                          // without the tokens that are put around a text
  std::optional<std::vector<TokenId>> with_special;  // with them
  std::optional<std::string> decoded;                // `ids` as text again
  std::optional<std::string> without_special;        // `with_special` as text, special tokens left out
};

struct ConversationCase {
  std::string name;                     // "two turns"
  std::string conversation;             // JSON: {"messages", "tools", "add_generation_prompt"}
  std::optional<std::string> rendered;  // nothing: the template refuses it
};

struct TextTruth {
  std::vector<TextCase> texts;
  std::vector<ConversationCase> conversations;
  std::map<TokenId, std::string> pieces;  // of the vocabulary, all or many
  std::vector<TokenId> special;           // left out by decoding without special tokens
  std::map<std::string, tokenizer::SpecialToken, std::less<>> roles;  // by "bos", "eos", "unk", "pad"
  std::optional<std::vector<TokenId>> stop_ids;                       // that end an answer
  std::optional<TokenId> pad_id;                                      // of the model's configuration
  // "temperature": what the files say of choosing tokens; nothing: not known.
  std::optional<std::map<std::string, double, std::less<>>> sampling;
  std::string chat_template;   // its source; empty: not known, or there is none
  std::optional<std::tm> now;  // when the conversations were rendered
};

// A model as far as texts go. Whatever it points to outlives it.
struct TextSide {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null: there is none
  // A prompt's ids as a run feeds them, with the tokens around it; empty: the tokenizer's.
  std::function<Result<std::vector<TokenId>>(std::string_view text)> prompt_ids;
  std::string chat_template;  // its source; empty: there is none
  // Renders a conversation with that template, and all that the model hands to it; empty: there is none.
  std::function<Result<std::string>(const chat::OrderedJson& conversation,
                                    const chat::RenderOptions& options)>
      render;
  std::vector<TokenId> stop_ids;
  TokenId pad_id = -1;                                  // -1: none
  std::map<std::string, double, std::less<>> sampling;  // as in TextTruth; GGUF files say nothing
  bool gguf = false;                                    // its keys are those of GGUF metadata
};

// The texts and conversations of tools/text_probes.json, and `prompt` before them, where it is not empty.
// Errors: those of the tokenizer for a text; a conversation that the template refuses is none.
Result<TextTruth> text_truth_of(const TextSide& side, std::string_view prompt = {});

// As this entry of a recording's header. Reading is for hostile input. Errors: kCorrupt (no JSON,
// members of wrong types), kLimit (more texts, longer ones or larger ids than any recording has).
inline constexpr const char* kTextEntry = "text";
std::string text_truth_json(const TextTruth& truth);
Result<TextTruth> read_text_truth(std::string_view json);

}  // namespace doppler::diagnosis
