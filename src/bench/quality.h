// Whether a model that is measured still says what it should: the loss on a short fixed text, and the ids it
// goes on with, which must be those that the same text read as a prompt would choose. A fast wrong answer is
// no result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "doppler/types.h"
#include "engine/loaded.h"

namespace doppler::bench {

struct Quality {
  std::uint64_t tokens = 0;  // predicted ones; 0: not measured
  double loss = 0;           // their mean, in nats
  double chance = 0;         // the loss of a model that knows nothing: the logarithm of the vocabulary's size
  std::vector<TokenId> ids;  // the likeliest continuation of the text
  std::string why;           // what is wrong, or why nothing was measured; empty if the model is well

  bool measured() const { return tokens > 0; }
  bool ok() const { return measured() && why.empty(); }
};

// Reads a plain English text into slot 0 and goes on with it. Without a tokenizer nothing is measured.
// Errors: those of Backend::step.
Result<Quality> measure_quality(Loaded& loaded);

// Tokens of context that measure_quality needs at most.
inline constexpr std::uint64_t kQualityContext = 256;

Json to_json(const Quality& quality);
std::string to_text(const Quality& quality);  // one line

}  // namespace doppler::bench
