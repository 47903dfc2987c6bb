// --reference auto: the recording that transformers makes of a model, where this machine has it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/loaded.h"

namespace doppler::cli {

// The program that records, embedded when Doppler is built.
struct ToolFile {
  std::string_view name;  // "hf_record.py"
  std::string_view text;
};
// The files of tools/, sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const ToolFile> tool_files();

// What transformers is to record: a text, with its own tokenizer, or if that is empty the ids.
struct RecordedPrompt {
  std::string text;
  std::vector<TokenId> ids;
  std::uint32_t steps = 8;  // greedy ones after it
};
// A usual sentence, or ids from all over the vocabulary for a model without a tokenizer.
RecordedPrompt usual_prompt(const Model& model, bool has_tokenizer);

// The file that --reference names. "auto" is a file in the user's cache folder: made when it is asked for
// first, by python3 with transformers (the variable DOPPLER_PYTHON names another), and kept by the model's
// fingerprint, its configuration and the prompt. Errors: kNotFound where there is no such python3, with how
// to make a recording; kUnsupported for a model that transformers does not read; kIo for a recording that
// failed.
Result<std::string> find_reference(const std::string& named, const std::string& model_path,
                                   const Model& model, const RecordedPrompt& prompt);

}  // namespace doppler::cli
