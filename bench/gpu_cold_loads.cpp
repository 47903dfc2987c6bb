// gpu_cold_loads MODEL [--loads N] [--checks N] [--tokens N] [--decodes N] [--keep]: loads a model N times on
// the GPU, each time with an empty cache folder (--keep: with the files of the load before), and prints for
// each load how long it took and with what, whether the program for single tokens is in use, which shapes
// were measured to be fastest, how fast it decodes (the median of --decodes times: the clocks of a GPU that
// waited are low at first), and whether the token that the device chooses is the likeliest of the logits that
// it computes for the same token, at several prompts, each tried twice: bits that differ between the two show
// a race.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "base/screen.h"
#include "model/family.h"

using namespace doppler;

namespace {

struct Arguments {
  std::string model;
  std::uint64_t loads = 60, checks = 16, tokens = 64, decodes = 16;
  bool keep = false;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The sums over several loads.
struct Totals {
  std::uint64_t in_use = 0, wrong = 0, varying = 0;
  double slowest = 0, fastest = 0;
  std::set<std::string> shapes, tokens;
};

StepInput prompt_of(std::uint64_t seed, std::uint64_t length, std::uint32_t vocab) {
  StepInput prompt;
  for (std::uint64_t i = 0; i < length; ++i)
    prompt.add(static_cast<TokenId>((i * 7919 + 13 + seed * 104729) % vocab), i, 0, false);  // any primes
  return prompt;
}

// One token after a prompt, by its logits and by itself.
struct Trial {
  std::vector<float> logits;
  TokenId chosen = -1;
};

Result<Trial> try_token(Backend& backend, std::uint64_t seed) {
  constexpr std::uint64_t kLength = 70;  // longer than a split of attention and than a chunk of positions
  const std::uint32_t vocab = backend.plan().vocab_size;
  const StepInput prompt = prompt_of(seed, kLength, vocab);
  StepInput token;
  token.add(prompt_of(seed, kLength + 1, vocab).ids.back(), kLength, 0, true);
  Trial trial;
  backend.clear(0);
  DOPPLER_TRY(backend.step(prompt, nullptr));
  DOPPLER_ASSIGN(const auto logits, backend.step(token, nullptr));
  trial.logits.assign(logits.begin(), logits.end());
  backend.clear(0);
  DOPPLER_TRY(backend.step(prompt, nullptr));
  const GenerateOptions greedy;
  const TokenId history[] = {token.ids[0]};
  DOPPLER_TRY(backend.continuer()->continue_sequence(
      {.slot = 0, .id = token.ids[0], .most = 1, .sampling = &greedy, .history = history}));
  DOPPLER_ASSIGN(const auto tokens, backend.continuer()->next_tokens());
  if (tokens.size() == 1) trial.chosen = tokens[0];
  DOPPLER_TRY(backend.continuer()->stop_sequence(kLength + 1));
  return trial;
}

// The logits of the token 0 alone: the computation by which kernels are measured.
Result<std::vector<float>> first_logits(Backend& backend) {
  StepInput token;
  token.add(0, 0, 0, true);
  backend.clear(0);
  DOPPLER_ASSIGN(const auto logits, backend.step(token, nullptr));
  return std::vector<float>(logits.begin(), logits.end());
}

Status check(Backend& backend, const Arguments& arguments, Totals& totals) {
  DOPPLER_ASSIGN(const std::vector<float> first, first_logits(backend));
  const float first_best = *std::ranges::max_element(first);
  bool wrong = false, varies = false;
  for (std::uint64_t seed = 0; seed < arguments.checks; ++seed) {
    DOPPLER_ASSIGN(const Trial once, try_token(backend, seed));
    DOPPLER_ASSIGN(const Trial again, try_token(backend, seed));
    const bool same = once.chosen == again.chosen &&
                      std::memcmp(once.logits.data(), again.logits.data(), once.logits.size() * 4) == 0;
    const auto best = static_cast<TokenId>(std::ranges::max_element(once.logits) - once.logits.begin());
    if (!same) {
      fmt::print("    prompt {}: the same token again gives other bits, and {} instead of {}\n", seed,
                 again.chosen, once.chosen);
      varies = true;
    }
    if (once.chosen == best) continue;
    wrong = true;
    if (once.chosen < 0 || once.chosen >= static_cast<TokenId>(first.size())) {
      fmt::print("    prompt {}: chooses {}\n", seed, once.chosen);
      continue;
    }
    const auto at = static_cast<std::size_t>(once.chosen);
    fmt::print(
        "    prompt {}: chooses {} whose logit is {}, instead of {} with {}: {} less; for the token 0 alone "
        "the one "
        "chosen has {}, and the best {}\n",
        seed, once.chosen, once.logits[at], best, once.logits[static_cast<std::size_t>(best)],
        once.logits[static_cast<std::size_t>(best)] - once.logits[at], first[at], first_best);
  }
  totals.wrong += wrong ? 1 : 0;
  totals.varying += varies ? 1 : 0;
  return {};
}

// Greedy tokens, by the device itself or step by step; tokens a second, and the ids as a text.
Result<double> decode(Backend& backend, const Arguments& arguments, std::string& ids) {
  const std::uint32_t vocab = backend.plan().vocab_size;
  const GenerateOptions greedy;
  backend.clear(0);
  DOPPLER_TRY(backend.step(prompt_of(1, 16, vocab), nullptr));
  TokenId id = 5;
  const TokenId history[] = {id};
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t made = 0;
  const auto take = [&](TokenId token) {
    ids += fmt::format(" {}", token);
    ++made;
  };
  if (backend.can_continue(greedy)) {
    DOPPLER_TRY(backend.continuer()->continue_sequence(
        {.slot = 0, .id = id, .most = arguments.tokens, .sampling = &greedy, .history = history}));
    for (;;) {
      DOPPLER_ASSIGN(const auto tokens, backend.continuer()->next_tokens());
      if (tokens.empty()) break;
      std::ranges::for_each(tokens, take);
    }
    const double seconds = seconds_since(start);
    DOPPLER_TRY(backend.continuer()->stop_sequence(16 + made));
    return static_cast<double>(made) / seconds;
  }
  for (std::uint64_t i = 0; i < arguments.tokens; ++i) {
    StepInput token;
    token.add(id, backend.length(0), 0, true);
    DOPPLER_ASSIGN(const auto logits, backend.step(token, nullptr));
    id = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    take(id);
  }
  return static_cast<double>(made) / seconds_since(start);
}

Status load_once(const Model& model, const Arguments& arguments, std::uint64_t number, Totals& totals) {
  const auto start = std::chrono::steady_clock::now();
  BackendOptions options;
  options.context = 1024;
  DOPPLER_ASSIGN(const std::unique_ptr<Backend> backend,
                 make_backend("gpu", model.spec, model.weights, options));
  const double seconds = seconds_since(start);
  const bool in_use = backend->can_continue(GenerateOptions());
  totals.in_use += in_use ? 1 : 0;
  std::string ids, speeds;
  std::vector<double> times;
  for (std::uint64_t i = 0; i < arguments.decodes; ++i) {
    ids.clear();
    DOPPLER_ASSIGN(times.emplace_back(), decode(*backend, arguments, ids));
    speeds += fmt::format(" {:.0f}", times.back());
  }
  std::ranges::sort(times);
  const double speed = times[times.size() / 2];
  totals.tokens.insert(ids);
  totals.slowest = totals.slowest == 0 ? speed : std::min(totals.slowest, speed);
  totals.fastest = std::max(totals.fastest, speed);
  fmt::print("load {:>3}: {:.2f} s, program for single tokens {}, {:.0f} tok/s (each time{}), tokens{}\n",
             number, seconds, in_use ? "in use" : "NOT in use", speed, speeds, ids.substr(0, 40));
  DOPPLER_ASSIGN(const std::vector<VariantRow> rows, backend->describe());
  std::string shapes;
  for (const VariantRow& row : rows) {
    if (row.what == "refused" || (row.what == "decode" && !in_use))
      fmt::print("    {}: {} {}\n", row.what, row.variant, row.why);
    if (!row.what.starts_with("decode: ")) continue;
    for (const std::string_view name : {" R=", " LANES=", " UNITS=", " GROUPS="}) {
      const std::size_t at = row.variant.find(name);
      if (at != std::string::npos) {
        const std::size_t value = at + name.size();
        shapes +=
            row.variant.substr(value, row.variant.find(' ', value) - value) + (name == " UNITS=" ? "" : " ");
      }
    }
    shapes += row.variant.find(" R=") != std::string::npos ? "| " : "";
  }
  totals.shapes.insert(shapes);
  fmt::print("    shapes (rows lanes units groups): {}\n", shapes);
  if (in_use) DOPPLER_TRY(check(*backend, arguments, totals));
  std::fflush(stdout);
  return {};
}

Status run(const Arguments& arguments) {
  LogOptions log;
  log.categories = category_bit(Category::kLoader);
  DOPPLER_TRY(configure_log(log));
  DOPPLER_ASSIGN(const Model model, load_model(arguments.model));
  std::error_code ignored;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("gpu-cold-loads-{}", getpid());
  Totals totals;
  for (std::uint64_t number = 1; number <= arguments.loads; ++number) {
    if (!arguments.keep || number == 1) {  // another folder each time: drivers still write to the one before
      const std::filesystem::path fresh = folder / std::to_string(number);
      std::filesystem::create_directories(fresh, ignored);
      setenv("XDG_CACHE_HOME", fresh.c_str(), 1);
    }
    DOPPLER_TRY(load_once(model, arguments, number, totals));
  }
  std::filesystem::remove_all(folder, ignored);
  fmt::print(
      "{} loads: {} with the program for single tokens, {} to {} tok/s; {} loads chose a token that was not "
      "the "
      "likeliest, {} gave varying bits; {} sets of shapes, {} different continuations\n",
      arguments.loads, totals.in_use, static_cast<int>(totals.slowest), static_cast<int>(totals.fastest),
      totals.wrong, totals.varying, totals.shapes.size(), totals.tokens.size());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string_view, std::uint64_t*> numbers = {{"--loads", &arguments.loads},
                                                              {"--checks", &arguments.checks},
                                                              {"--tokens", &arguments.tokens},
                                                              {"--decodes", &arguments.decodes}};
  bool good = argc >= 2;
  for (int i = 2; i < argc; ++i) {
    const auto number = numbers.find(argv[i]);
    if (std::strcmp(argv[i], "--keep") == 0) {
      arguments.keep = true;
    } else if (number != numbers.end() && i + 1 < argc) {
      *number->second = std::strtoull(argv[++i], nullptr, 10);
    } else {
      good = false;
    }
  }
  if (!good) {
    say(Said::kError, "gpu_cold_loads MODEL [--loads N] [--checks N] [--tokens N] [--decodes N] [--keep]");
    return 2;
  }
  arguments.model = argv[1];
  const Status status = run(arguments);
  if (!status) say(Said::kError, "gpu_cold_loads: {}", status.error().message);
  return status ? 0 : 3;
}
