// tokenizer_config.json and special_tokens_map.json: their additions to a tokenizer's own file.
#pragma once

#include <filesystem>

#include "base/json_fwd.h"
#include "base/result.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// Applies both files of `folder`, where there are any, to `spec`: the texts and ids of bos, eos, unk and pad
// (marked special where the tokenizer's file does not say so), tokens of added_tokens_decoder that the file
// lacks, add_bos_token and add_eos_token. tokenizer.json: its post-processor decides about BOS and EOS; only
// where it has none, add_bos_token does. tokenizer.model: add_bos_token decides, and is true where nothing
// says otherwise, as for Llama and Gemma. Errors: kCorrupt (not JSON, members of wrong types, ids that
// contradict the vocabulary).
Status refine_with_config(const std::filesystem::path& folder, TokenizerSpec& spec);

// The same from parsed files; either may be null.
Status refine_with_config(const Json& config, const Json& special_tokens_map, TokenizerSpec& spec);

}  // namespace doppler::tokenizer
