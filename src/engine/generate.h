// The generation loop: prompt in, tokens out, until one of the stop rules holds.
#pragma once

#include <functional>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/session.h"
#include "model/spec.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// `tokenizer` may be null: then no text is made, and stop strings are refused (kUsage).
Result<Generation> run_generation(Session& session, const ModelSpec& spec, const Tokenizer* tokenizer,
                                  std::span<const TokenId> prompt, const GenerateOptions& options,
                                  const OnText& on_text, const CancelToken* cancel);

}  // namespace doppler
