// The whole interface in thirty lines: load a model, stream an answer, stop when told to.
//   doppler_example MODEL "PROMPT"
#include <cstdio>
#include <string>
#include <string_view>

#include "doppler/doppler.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  auto engine = doppler::Engine::load(argv[1]);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 3;
  }
  doppler::GenerateOptions options = engine->default_options();
  options.max_tokens = 32;
  const auto print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return true;  // false would end the generation here
  };
  const auto result = engine->generate(std::string_view(argv[2]), options, print);
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    return 3;
  }
  std::printf("\n[%zu tokens, stopped by %s]\n", result->ids.size(),
              std::string(doppler::stop_reason_name(result->stop_reason)).c_str());
}
