// Metadata to be written into a GGUF file: keys with values of the types that model files use.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "formats/gguf_writer.h"

namespace doppler::convert {

struct MetadataEntry {
  std::string key;
  std::variant<std::string, std::uint32_t, float, bool, std::vector<std::string>, std::vector<float>,
               std::vector<std::int32_t>, std::vector<std::uint8_t>, std::vector<bool>>
      value;
};

// Errors: those of GgufWriter::add.
Status add_entry(GgufWriter& writer, const MetadataEntry& entry);

}  // namespace doppler::convert
