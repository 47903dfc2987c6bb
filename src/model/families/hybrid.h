// What families with recurrent layers have in common to say about a spec.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec_builder.h"

namespace doppler {

// A kind of layer by the names that configs give it.
struct LayerKind {
  std::string_view name;
  bool attention = false, recurrent = false, ffn = true;
};

// The kinds of all layers: from the list `key` if it is there, else as kind_of(layer) says. A layer is set to
// have what its kind has; one without feed-forward or without a mixer has no norm for it. Errors: kCorrupt
// for a list of another length than the layers; kUnsupported for a name that `kinds` lacks.
Status read_layer_kinds(SpecBuilder& builder, std::string_view key, std::span<const LayerKind> kinds,
                        const std::function<std::string_view(std::size_t layer)>& kind_of, std::string rule);

// Gives every layer of a recurrent kind this recurrent half, and notes its sizes. Errors: kCorrupt for widths
// that contradict each other or are too large to be true.
Status set_recurrent(SpecBuilder& builder, const RecurrentSpec& recurrent);

// Reads the limits of the time step (time_step_limit), of which the upper one may be infinite.
Status read_step_limits(SpecBuilder& builder, RecurrentSpec& recurrent);

// Whether two names of a file say one thing, as new and old ones do.
std::string_view known_key(const ConfigReader& config, std::string_view now, std::string_view before);

}  // namespace doppler
