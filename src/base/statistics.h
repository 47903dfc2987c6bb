// Statistics of a span of activations, in the public type Statistics.
#pragma once

#include <span>

#include "doppler/statistics.h"

namespace doppler {

// Exact counts; sums in double, in one order, so that the same values give the same statistics everywhere.
Statistics measure(std::span<const float> values);

}  // namespace doppler
