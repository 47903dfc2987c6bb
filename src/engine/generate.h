// The generation loop: prompt in, tokens out, until one of the stop rules holds.
#pragma once

#include <functional>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/session.h"
#include "model/spec.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// The padding token, which sampling leaves out; -1 if there is none, or if it also ends sequences: then it is
// a stop token and may win as such.
TokenId masked_pad(const ModelSpec& spec);

// `tokenizer` may be null: then no text is made, and stop strings are refused (kUsage). Of the callbacks all
// but the watches are called: those run in the session (Session::look).
Result<Generation> run_generation(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const Callbacks& callbacks);
Result<Generation> run_generation(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const OnText& on_text,
                                  const CancelToken* cancel);

}  // namespace doppler
