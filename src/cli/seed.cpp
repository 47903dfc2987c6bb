#include "cli/seed.h"

#include <random>

namespace doppler::cli {

void choose_seed(const Settings& settings, GenerateOptions& options) {
  if (settings.given("runtime.inference.sampling.seed")) return;
  options.seed = std::random_device()();  // 32 bits: short enough to be typed again
}

}  // namespace doppler::cli
