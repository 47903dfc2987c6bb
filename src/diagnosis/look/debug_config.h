// Reads the probes and layers to show from the configuration's subtree runtime.shared.debug.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "diagnosis/look/probe.h"

namespace doppler::diagnosis {

struct DebugConfig {
  std::vector<Probe> probes;
  // The layers to print checkpoints of. Nothing: none; an empty list: all.
  std::optional<std::vector<int>> debug_layers;
};

// `debug` is that subtree, or null. Keys that others read are ignored. Errors: kUsage, naming the key and the
// expected value.
Result<DebugConfig> read_debug_config(const Json& debug);

}  // namespace doppler::diagnosis
