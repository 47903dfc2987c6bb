// The parts of tokenizer.json that are chains of steps.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// Each reads one member of tokenizer.json (null: no steps); Sequences are flattened. `what` names the file.
// Errors: kUnsupported for an unknown type, naming it and those that are known; kCorrupt for members of a
// wrong type.
Result<std::vector<NormalizerStep>> read_normalizer(const Json& value, std::string_view what);
Result<std::vector<PreTokenizerStep>> read_pre_tokenizer(const Json& value, std::string_view what);
Result<std::vector<PostProcessorStep>> read_post_processor(const Json& value, std::string_view what);
Result<std::optional<std::vector<DecoderStep>>> read_decoder(const Json& value, std::string_view what);

}  // namespace doppler::tokenizer
