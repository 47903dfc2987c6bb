// A measurement as JSON, as a readable table, and as a comparison with an older one.
#pragma once

#include <cstddef>
#include <string>

#include "base/json_fwd.h"
#include "bench/measure.h"

namespace doppler::bench {

Json to_json(const BenchResult& result);
Json to_json(const DeviceInfo& device);
// For a terminal of `width` columns.
std::string to_text(const BenchResult& result, std::size_t width);

// Each figure of `now` over the same one of `old`, both from to_json, as lines: "decode @0  1.32x
// (1.28..1.36)". The bounds are low / high and high / low of the two intervals. Figures that only one of them
// has are left out. Errors: kCorrupt for an `old` that to_json did not write.
Result<std::string> compare_text(const Json& old, const Json& now, std::size_t width);

}  // namespace doppler::bench
