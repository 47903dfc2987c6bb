// A config.json of an unknown family in the words of the known ones: synonyms get their usual names, and
// what no key says follows from the tensors' shapes. Every value keeps the key or tensor it comes from.
#pragma once

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/hf_config.h"
#include "model/guess/guessed_names.h"

namespace doppler {

struct GuessedConfig {
  JsonMember json;
  KeyOrigins origins;
};

// `config` is the object that describes the language model. Errors: kMismatch where tensors and keys do not
// give the sizes of attention.
Result<GuessedConfig> guess_config(const ConfigReader& config, const TensorPatterns& patterns,
                                   const GuessedNames& names);

}  // namespace doppler
