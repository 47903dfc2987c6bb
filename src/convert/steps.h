// What conversions to all formats do.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "convert/convert.h"
#include "convert/mix.h"
#include "convert/source.h"
#include "formats/gguf_writer.h"

namespace doppler::convert {

// Refuses a full disk before the work, not after it. Disks that do not tell their space are tried.
Status check_space(const std::filesystem::path& output, std::uint64_t bytes);

// The type of each tensor, and what it will take; without a mix the source's. Errors: kUnsupported for a type
// that is read only, kMismatch for a tensor that does not fit its type.
Result<ConvertReport> plan_tensors(const ConversionSource& source, const Mix* mix);

// All keys of a GGUF file of the source.
Status write_metadata(const ConversionSource& source, const Mix* mix, GgufWriter& file);

}  // namespace doppler::convert
