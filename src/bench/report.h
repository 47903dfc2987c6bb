// A measurement as JSON (docs/bench.schema.json says what it holds) and as a readable table.
#pragma once

#include <cstddef>
#include <string>

#include "base/json_fwd.h"
#include "bench/measure.h"

namespace doppler::bench {

// The version of the JSON's shape, a member of each; a change that a reader must know of raises it.
inline constexpr int kReportSchema = 1;

Json to_json(const BenchResult& result);
Json to_json(const Summary& summary);
Json memory_json(std::uint64_t peak_bytes, std::uint64_t file_bytes, const MemoryUse& memory);
Json to_json(const DeviceInfo& device);
// For a terminal of `width` columns.
std::string to_text(const BenchResult& result, std::size_t width);

}  // namespace doppler::bench
