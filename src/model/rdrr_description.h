// What an RDRR manifest says of a model, made of its spec, and compared with what another manifest says.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/rdrr_manifest.h"
#include "formats/tensor_store.h"
#include "model/spec.h"

namespace doppler {

// The keys architecture, inference, moeConfig and eos_token_id. What a spec has no words for there is left to
// the manifest's config.
Json rdrr_description(const ModelSpec& spec, const TensorStore& tensors);

// One sentence for each value of the manifest's inference that the spec contradicts, in which config and
// tensors have the last word. Errors: kMismatch for a size of its architecture that is another.
Result<std::vector<std::string>> compare_rdrr_description(const RdrrManifest& manifest, const ModelSpec& spec,
                                                          const TensorStore& tensors);

}  // namespace doppler
