// The generation loop: prompt in, tokens out, until one of the stop rules holds.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/session.h"
#include "model/spec.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// A generation token by token, for callers that do something else between two: begin(), which computes the
// prompt, next() until it is false, end(). The arguments must outlive it, and nothing else may use the
// session meanwhile. Left without end(), it is as if it had been cancelled.
class Generating {
 public:
  static Result<Generating> begin(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const Callbacks& callbacks);
  Generating(Generating&&) noexcept;
  Generating& operator=(Generating&&) = delete;
  ~Generating();

  // Generates one more token, if none of the stop rules holds; false: the generation has ended.
  Result<bool> next();
  // The whole of it. Once.
  Result<Generation> end();

 private:
  struct Inner;
  explicit Generating(std::unique_ptr<Inner> inner);
  std::unique_ptr<Inner> inner_;
};

// All of it at once. `tokenizer` may be null: then no text is made, and stop strings are refused (kUsage). Of
// the callbacks all but the watches are called: those run in the session (Session::look).
Result<Generation> run_generation(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const Callbacks& callbacks);
Result<Generation> run_generation(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const OnText& on_text,
                                  const CancelToken* cancel);

}  // namespace doppler
