// Which token a row of a tap's event is.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/tap.h"

namespace doppler {

// The index in event.input of each of the event's rows. Stages up to the last layer have a row for each
// token; the ones after it have rows for the tokens whose logits are wanted, and a backend may show those in
// portions.
std::vector<std::size_t> row_tokens(const TapEvent& event);

// True for stages that have rows for wanted logits only.
bool only_wanted_rows(Stage stage);

}  // namespace doppler
