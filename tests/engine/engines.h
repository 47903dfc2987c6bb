// Engines and options as the tests of the public interface want them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "doppler/doppler.h"
#include "testing.h"

namespace doppler {

using Ids = std::vector<TokenId>;

inline Engine load_engine(const std::filesystem::path& model, LoadOptions options = {.backend = "cpu"}) {
  options.threads = 2;
  auto engine = Engine::load(model, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(*engine);
}

// So many tokens, whatever the model would stop at.
inline GenerateOptions just(std::uint32_t tokens) {
  return {.max_tokens = tokens, .ignore_eos = true};
}

}  // namespace doppler
