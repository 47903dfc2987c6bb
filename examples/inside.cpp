// Looking inside a model, in one program: the values of a stage, the probability of each token, and two
// continuations of one prompt.
//   doppler_inside MODEL "PROMPT"
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "doppler/doppler.h"

namespace {

// The residual stream after each layer, at the prompt's last token.
doppler::Status show_layers(doppler::Engine& engine, const std::vector<doppler::TokenId>& prompt) {
  const auto seen =
      engine.look(prompt, {.stages = {"layer_out"}, .tokens = {-1}, .values = false, .statistics = true});
  if (!seen) return std::unexpected(seen.error());
  for (const doppler::StageValues& values : *seen) {
    std::printf("layer %2d: %zu values, rms %.3f, largest %.3f\n", values.layer, values.statistics.count,
                values.statistics.rms, static_cast<double>(values.statistics.max_abs));
  }
  return {};
}

// Each token with its probability, as it comes.
doppler::Status show_tokens(doppler::Engine& engine, const std::vector<doppler::TokenId>& prompt) {
  doppler::GenerateOptions options = engine.default_options();
  options.max_tokens = 8;
  options.logprobs = 0;
  doppler::Callbacks callbacks;
  callbacks.on_token = [&](doppler::TokenId id, const doppler::TokenLogprobs* logprobs) {
    const std::string text = engine.detokenize(std::vector{id}).value_or("?");
    std::printf("%-10s %5.1f%%\n", text.c_str(), 100 * std::exp(static_cast<double>(logprobs->logprob)));
    return true;
  };
  const auto result = engine.generate(prompt, options, callbacks);
  return result ? doppler::Status() : std::unexpected(result.error());
}

// The prompt is computed once; each fork goes on from it with a seed of its own.
doppler::Status show_forks(doppler::Engine& engine, const std::vector<doppler::TokenId>& prompt) {
  auto trunk = engine.new_sequence();
  if (!trunk) return std::unexpected(trunk.error());
  if (const auto added = trunk->append(prompt); !added) return added;
  doppler::GenerateOptions options = engine.default_options();
  options.max_tokens = 12;
  options.temperature = 1;
  for (options.seed = 1; options.seed <= 2; ++options.seed) {
    auto fork = trunk->fork();
    if (!fork) return std::unexpected(fork.error());
    const auto result = fork->resume(options);
    if (!result) return std::unexpected(result.error());
    std::printf("seed %d:%s\n", static_cast<int>(options.seed), result->text.c_str());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  const auto run = [&]() -> doppler::Status {
    auto engine = doppler::Engine::load(argv[1], {.sequences = 2});
    if (!engine) return std::unexpected(engine.error());
    const auto prompt = engine->tokenize(argv[2]);
    if (!prompt) return std::unexpected(prompt.error());
    for (const auto show : {show_layers, show_tokens, show_forks})
      if (const auto shown = show(*engine, *prompt); !shown) return shown;
    return {};
  };
  const doppler::Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 3;
}
