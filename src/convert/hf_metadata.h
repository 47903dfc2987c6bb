// A model's description as GGUF metadata, as llama.cpp's converter writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/metadata.h"
#include "model/spec.h"

namespace doppler::convert {

struct HfFacts {
  std::string name;               // of the model, for people
  std::string_view architecture;  // GGUF's name of the family
  std::uint64_t parameters = 0;
  bool says_head_dim = false;  // config.json has the key head_dim
};

// Everything but the tokenizer, the file type and the version of the block layouts.
std::vector<MetadataEntry> hf_metadata(const ModelSpec& spec, const HfFacts& facts);

// "199K", "1.3M", "8B": as general.size_label has it.
std::string size_label(std::uint64_t parameters);

// The contents of rope_freqs.weight: the divisor of each rotary pair's frequency, for llama3 scaling and for
// pairs that stand still.
std::vector<float> rope_divisors(const RopeSpec& rope);

}  // namespace doppler::convert
