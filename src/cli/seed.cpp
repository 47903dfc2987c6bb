#include "cli/seed.h"

#include <random>

#include "base/screen.h"
#include "base/text.h"

namespace doppler::cli {

void choose_seed(const Settings& settings, GenerateOptions& options) {
  if (settings.given("runtime.inference.sampling.seed")) return;
  options.seed = std::random_device()();  // 32 bits: short enough to be typed again
}

void tell_idle_sampling(const Settings& settings, const GenerateOptions& options) {
  if (options.temperature > 0) return;
  std::vector<std::string> idle;
  for (const char* const name : {"topK", "topP", "minP"}) {
    const config::ConfigValue* const value =
        settings.config.find(fmt::format("runtime.inference.sampling.{}", name));
    if (value != nullptr && value->given() &&
        value->value != parse_json(value->info->off, "").value_or(nullptr))
      idle.emplace_back(value->info->flag);
  }
  if (idle.empty()) return;
  say(Said::kWarning,
      "{} {} no effect: the temperature is 0, which takes the likeliest token each time. Give --temperature, "
      "too.",
      join(idle, " and "), idle.size() == 1 ? "has" : "have");
}

std::string guesses_text(const Timings& timings) {
  if (timings.guessed_tokens == 0) return "";
  return fmt::format(" ({} guessed, {} right)", timings.guessed_tokens, timings.guessed_right);
}

}  // namespace doppler::cli
