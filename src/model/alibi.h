// ALiBi's numbers, for every backend that adds them: Press et al. 2021, "Train Short, Test Long".
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace doppler {

// One for each head, as the layer's scores take it: rounded where the spec says so.
std::vector<double> alibi_slopes(const AlibiSpec& alibi, std::uint32_t heads);

// What a head with that slope adds to the score of the key at `key`, seen from `position`. Without rounding
// the distance counts, with it the key's place: a softmax takes what all scores share out again, and only the
// rounding knows the difference.
double alibi_bias(const AlibiSpec& alibi, double slope, std::uint64_t key, std::uint64_t position);

}  // namespace doppler
