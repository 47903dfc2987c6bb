// How long the choice of one token takes: a vocabulary of Gemma's size, rows of logits of several shapes, the
// usual settings. Prints the median and the minimum of the milliseconds per token: on a shared machine the
// minimum is nearest to the work itself. Usage: sampler_bench [VOCABULARY_SIZE]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/screen.h"
#include "engine/sampler.h"

namespace {

using doppler::GenerateOptions;
using doppler::Said;
using doppler::Sampler;
using doppler::say;
using doppler::TokenId;

struct Shape {
  const char* name;
  double mean, deviation;
  int peaks;  // this many logits are 8 to 16 above the others, as after a clear prompt
};

std::vector<float> make_logits(const Shape& shape, std::size_t size) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal(shape.mean, shape.deviation);
  std::vector<float> logits(size);
  for (float& x : logits) x = static_cast<float>(normal(generator));
  for (int i = 0; i < shape.peaks; ++i)
    logits[generator() % size] = static_cast<float>(8 + generator() % 1000 * 0.008);
  return logits;
}

std::vector<double> sorted_ms(const GenerateOptions& options, const std::vector<float>& logits,
                              const std::vector<TokenId>& history) {
  Sampler sampler(options, 0);
  std::vector<double> times;
  for (std::uint64_t draw = 0; draw < 60; ++draw) {
    const auto start = std::chrono::steady_clock::now();
    const auto id = sampler.sample(logits, history, draw);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    if (!id) fmt::print("{}\n", id.error().message);
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 262144;
  if (size < 1000) {
    say(Said::kError, "The vocabulary size must be 1000 or more.");
    return 2;
  }
  const Shape shapes[] = {
      {"peaked", -8, 3, 40}, {"random", 0, 3, 0}, {"flat", 0, 0.01, 0}, {"tied", 0, 0, 0}};
  struct Setting {
    const char* name;
    GenerateOptions options;
  };
  const Setting settings[] = {
      {"greedy", {}},
      {"greedy, penalties over 2000 tokens", {.repeat_penalty = 1.1, .presence_penalty = 0.2}},
      {"top-k 64, top-p 0.95, min-p 0.05 at 0.8",
       {.temperature = 0.8, .top_k = 64, .top_p = 0.95, .min_p = 0.05}},
      {"the same with penalties",
       {.temperature = 0.8, .top_k = 64, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1.1}},
      {"top-k 2000", {.temperature = 0.8, .top_k = 2000}},
      {"min-p 0.05", {.temperature = 0.8, .min_p = 0.05}},
      {"top-p 0.9", {.temperature = 1, .top_p = 0.9}},
      {"top-p 0.9, min-p 0.05", {.temperature = 1, .top_p = 0.9, .min_p = 0.05}},
      {"temperature 1 alone", {.temperature = 1}},
      {"temperature 1 with penalties", {.temperature = 1, .repeat_penalty = 1.1}},
  };
  std::mt19937 generator(3);
  std::vector<TokenId> history(2000);
  for (TokenId& id : history) id = static_cast<TokenId>(generator() % size);
  fmt::print("milliseconds per token (median least), {} logits\n{:42}", size, "");
  for (const Shape& shape : shapes) fmt::print("{:>17}", shape.name);
  fmt::print("\n");
  for (const Setting& setting : settings) {
    fmt::print("{:42}", setting.name);
    for (const Shape& shape : shapes) {
      const std::vector<double> times = sorted_ms(setting.options, make_logits(shape, size), history);
      fmt::print("{:9.3f}{:8.3f}", times[times.size() / 2], times[0]);
    }
    fmt::print("\n");
  }
}
