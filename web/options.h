// Options as JSON objects, read by tables; a key that no row names is an error, so that nothing is ignored in
// silence.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "doppler/doppler.h"

namespace doppler::web {

// Sets what `json` names. Errors: kUsage for unknown keys and values of another type.
Status read_options(const Json& json, LoadOptions& options);
Status read_options(const Json& json, GenerateOptions& options);
Status read_options(const Json& json, LookRequest& request);

// The values as JSON, by the same names.
Json options_json(const GenerateOptions& options);

}  // namespace doppler::web
