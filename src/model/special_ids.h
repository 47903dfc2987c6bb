// The ids of special tokens that a model's description names.
#pragma once

#include <span>

#include "base/result.h"
#include "formats/hf_config.h"
#include "model/spec.h"

namespace doppler {

// bos, eos and pad: the first of `readers` that knows one decides. Errors: kCorrupt for ids outside the
// vocabulary.
Status read_special_ids(std::span<const ConfigReader> readers, ModelSpec& spec);

}  // namespace doppler
