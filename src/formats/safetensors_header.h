// The JSON header of a safetensors file as a list of entries, before its offsets and sizes are checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/tensor.h"

namespace doppler {

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header
  };
  std::vector<Entry> entries;  // in the header's order
  std::map<std::string, std::string> metadata;
};

// Reads the header's JSON without building a document: memory stays a small multiple of the text, nesting is
// refused where the format has none, and duplicate keys are seen. `what` names the file in messages. Errors:
// kCorrupt for everything the format forbids inside the header, kUnsupported for an unknown dtype. Offsets
// and sizes are not checked here.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::string_view what);

// The header's JSON for the writer, keys in the given order, without padding.
// Errors: kUsage for names that are not UTF-8, reserved or repeated, and for sizes that overflow.
Result<std::string> format_safetensors_header(const SafetensorsHeader& header);

}  // namespace doppler
