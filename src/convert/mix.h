// Mixes: which tensor of a GGUF gets which type. A mix named Q4_K_M is mostly Q4_K, but some tensors need
// more bits and others have rows that are no multiple of 256; the tables here say which and why. Source of
// the rules: the choices of llama.cpp's quantiser without an importance matrix, so that a file of a given
// name is as large and as accurate as users expect.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/spec.h"
#include "quant/dtype.h"
#include "quant/tensor.h"

namespace doppler::convert {

// The role of a tensor in the model, as far as the mixes distinguish it.
enum class TensorRole {
  kHead,
  kEmbedding,
  kQuery,
  kKey,
  kValue,
  kQkv,
  kAttentionOut,
  kExpert,
  kDown,
  kOther
};

// The layers or models for which a rule holds.
enum class MixWhen {
  kAlways,
  kFirstTwo,         // layers 0 and 1
  kFirstFour,        // layers 0 to 3
  kFirstSixteenth,   // the first layers / 16
  kFirstEighth,      // the first layers / 8
  kMoreBits,         // the first and the last eighth, and every third layer between
  kSharedFourTimes,  // at least four query heads share a key and value head
  kEightExperts,
};

struct MixRule {
  TensorRole role;
  MixWhen when;
  DType type;
  std::string_view reason;
};

struct Mix {
  std::string_view name;           // "Q4_K_M"
  std::uint32_t file_type;         // the value of general.file_type
  DType base;                      // the type of a tensor that no rule names
  std::span<const MixRule> rules;  // the first that applies decides
};

// The properties of a model that the rules depend on.
struct MixModel {
  std::uint64_t layers = 0;
  std::uint64_t heads_per_kv_head = 1;
  std::uint64_t experts = 0;
  bool tied_head = false;  // the embedding is the head, too
};

MixModel mix_model(const ModelSpec& spec);

struct MixChoice {
  DType type;
  std::string_view reason;
};

std::span<const Mix> all_mixes();
std::string_view role_name(TensorRole role);

// By name, in upper or lower case; Q3_K, Q4_K and Q5_K mean their _M mix. Errors: kUsage, naming the nearest
// or listing all.
Result<const Mix*> find_mix(std::string_view name);

// The type of the tensor of that GGUF name and shape. Vectors, norms, biases and routers are always F32; rows
// that hold no whole number of blocks get the nearest type that fits them.
MixChoice choose_type(const Mix& mix, const MixModel& model, std::string_view name, const Shape& shape);

}  // namespace doppler::convert
