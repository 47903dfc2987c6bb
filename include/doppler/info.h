// A model's description: every value with its source, and the memory that running it takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace doppler {

// One value of the model's description.
struct Fact {
  std::string name;     // "layers[0..4].attention.window"
  std::string value;    // "512"
  std::string because;  // "config.json: sliding_window", "gguf: llama.block_count", "derived: ..."
};

struct TensorTypeTotal {
  std::string type;  // "Q4_0"
  std::uint64_t tensors = 0, bytes = 0;
};

// Bytes, at the context and for the number of sequences that were asked for.
struct MemoryPlan {
  std::uint64_t context = 0;      // tokens
  std::uint32_t sequences = 1;    // how many the cache has room for
  std::uint64_t weights = 0;      // as the files hold them
  std::uint64_t cache = 0;        // keys and values of all sequences; touched only as positions are written
  std::uint64_t activations = 0;  // of the largest step
  std::string kv_type;            // "f16"
};

struct ModelInfo {
  std::string family;
  std::uint32_t layers = 0, hidden = 0, vocab_size = 0;
  std::uint64_t context_length = 0;    // in tokens, that the model was trained for
  std::vector<Fact> facts;             // everything that distinguishes this model from another
  std::vector<TensorTypeTotal> types;  // one for each tensor type in the files
  MemoryPlan memory;
};

}  // namespace doppler
