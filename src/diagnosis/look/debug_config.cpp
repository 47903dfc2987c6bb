#include "diagnosis/look/debug_config.h"

#include "base/json.h"
#include "base/text.h"

namespace doppler::diagnosis {

Result<DebugConfig> read_debug_config(const Json& debug) {
  DebugConfig config;
  if (debug.is_null()) return config;
  if (!debug.is_object()) return fail(ErrorCode::kUsage, "runtime.shared.debug is no JSON object.");
  if (const auto probes = debug.find("probes"); probes != debug.end() && !probes->is_null()) {
    if (!probes->is_array())
      return fail(ErrorCode::kUsage,
                  "runtime.shared.debug.probes is no list. Write [{{\"stage\": ..., \"dims\": [..]}}].");
    for (std::size_t i = 0; i < probes->size(); ++i) {
      DOPPLER_ASSIGN(Probe probe,
                     read_probe((*probes)[i], fmt::format("The probe runtime.shared.debug.probes[{}]", i)));
      config.probes.push_back(std::move(probe));
    }
  }
  if (const auto layers = debug.find("debugLayers"); layers != debug.end() && !layers->is_null()) {
    config.debug_layers.emplace();
    const bool good =
        layers->is_array() && std::all_of(layers->begin(), layers->end(), [](const Json& layer) {
          return layer.is_number_integer() && layer.get<std::int64_t>() >= 0 &&
                 layer.get<std::int64_t>() < INT32_MAX;
        });
    if (!good) {
      return fail(ErrorCode::kUsage,
                  "runtime.shared.debug.debugLayers is {}, but it must be a list of layers or null.",
                  printable(layers->dump(), 60));
    }
    for (const Json& layer : *layers) config.debug_layers->push_back(layer.get<int>());
  }
  return config;
}

}  // namespace doppler::diagnosis
