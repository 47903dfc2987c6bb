// What the configuration's subtree runtime.shared.debug asks of this room.
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
  // Layers to print checkpoints of: nothing given: none; an empty list: all.
  std::optional<std::vector<int>> debug_layers;
};

// `debug` is that subtree, or null. Keys of other rooms are let pass. Errors: kUsage, naming the key and what
// belongs there.
Result<DebugConfig> read_debug_config(const Json& debug);

}  // namespace doppler::diagnosis
