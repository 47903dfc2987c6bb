// Loaded: a model with its tokenizer, chat template and backend, opened together.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "chat/chat_template.h"
#include "doppler/doppler.h"
#include "model/family.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

struct Loaded {
  std::shared_ptr<Model> model;                   // never moves: backends read its weights in place
  std::optional<tokenizer::Tokenizer> tokenizer;  // nothing if the model has none
  std::optional<chat::ChatTemplate> chat;
  std::unique_ptr<Backend> backend;
  std::string choice;                     // why this backend: see make_backend
  std::shared_ptr<SharedWeights> shared;  // shared with other backends of the same model
};

// `asked`, or for 0 the default context: the model's own, but no more than 4096, because beyond it the cache
// costs more memory than most conversations need, and no more than longrope's original context, because
// beyond it all rotations are others.
std::uint64_t choose_context(std::uint64_t asked, const ModelSpec& spec);

// generation_config.json's sampling values if it says do_sample, as transformers has it; else greedy.
Result<GenerateOptions> default_options(const ModelFiles& files);

// The backend's options that follow from the user's. Errors: kUsage for an unknown kv_type, or submit_tokens
// out of range.
Result<BackendOptions> backend_options(const LoadOptions& options, const ModelSpec& spec,
                                       std::uint32_t slots);

// Errors: those of any part; a tokenizer or template that is there but broken is an error, not an absence.
Result<Loaded> load_all(const std::filesystem::path& path, const LoadOptions& options,
                        std::uint32_t slots = 1);
// The same of files that are open already.
Result<Loaded> load_files(ModelFiles files, const LoadOptions& options, std::uint32_t slots = 1);
// The same model once more with a backend of its own.
Result<Loaded> load_another(const Loaded& loaded, const LoadOptions& options, std::uint32_t slots);

// These read a GGUF file's metadata first, and what it lacks from the folder. Nothing, or kNotFound, if
// neither has it.
Result<std::optional<tokenizer::Tokenizer>> load_tokenizer_if_any(const ModelFiles& files);
Result<chat::ChatTemplate> load_chat_template(const ModelFiles& files,
                                              const chat::TemplateChoice& choice = {});
Result<std::optional<chat::ChatTemplate>> load_chat_template_if_any(const ModelFiles& files);

// A GGUF file that names no end of text may lie beside a tokenizer that does: then the spec takes that token
// and names the tokenizer as its source. Does nothing for any other model.
void add_tokenizer_eos(const std::optional<tokenizer::Tokenizer>& tokenizer, Model& model);

// A model for describing, not for running: its end of text is completed as load_all does it, but a tokenizer
// that is broken is an error only of the calls that need it.
Result<Model> load_model_for_description(const std::filesystem::path& path, std::string_view family);

// kNotFound, naming the files that were looked for and what to add.
Error no_tokenizer(const ModelFiles& files);
// That error, if there is no tokenizer.
Status need_tokenizer(const Loaded& loaded);
// A prompt's tokens, with the special ones the tokenizer adds: what transformers makes of the text, so a BOS
// written in the text is a second one.
Result<std::vector<TokenId>> tokenize_prompt(const Loaded& loaded, std::string_view text);
// The variables that transformers passes to every template besides the messages: no tools, no documents, no
// generation prompt, and the special tokens' texts.
Result<chat::OrderedJson> template_variables(const ModelFiles& files,
                                             const std::optional<tokenizer::Tokenizer>& tokenizer);

}  // namespace doppler
