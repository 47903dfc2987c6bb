// Hugging Face folders whose weights are packed by another program.
#pragma once

#include "base/json_fwd.h"
#include "base/result.h"

namespace doppler {

// What config.json says of how the folder's weights are quantised. Errors: kUnsupported for a packing that
// Doppler does not read, named for what it is; kCorrupt for a quantization_config that says nothing.
Status check_quantization(const Json& config);

}  // namespace doppler
