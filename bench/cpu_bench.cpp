// cpu_bench MODEL [THREADS]: how close decoding comes to the memory's bandwidth, how fast prompts are read,
// how long loading takes and how much memory it needs.
//
// The yardstick is a plain loop over a buffer larger than any cache, on the same threads, in the same run.
// Passes of the loop and groups of decode steps take turns, so that whatever else the machine does slows both
// alike.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "model/family.h"

namespace {

using namespace doppler;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPromptTokens = 512;
constexpr std::uint64_t kBufferBytes = std::uint64_t{3} << 29;  // 1.6 GB: far beyond any L3
constexpr int kRounds = 25;                                     // of one pass and one decode step

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Seconds to read the whole buffer once.
double read_pass(ThreadPool& pool, std::span<const float> buffer, std::uint64_t& sink) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.data());
  const std::size_t count = buffer.size() / 2;
  std::vector<std::uint64_t> sums(pool.size() * 8);
  const auto start = Clock::now();
  pool.run([&](std::size_t thread) {
    const std::size_t begin = count * thread / pool.size() / 8 * 8,
                      end = count * (thread + 1) / pool.size() / 8 * 8;
    std::uint64_t sum[8] = {};
    for (std::size_t i = begin; i < end; i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    for (const std::uint64_t s : sum) sums[thread * 8] += s;
  });
  const double seconds = seconds_since(start);
  for (const std::uint64_t s : sums) sink += s;
  return seconds;
}

// What one token makes the matmuls read.
std::uint64_t weight_bytes(const Plan& plan, const Weights& weights) {
  std::uint64_t bytes = 0;
  for (const Op& op : plan.ops) {
    for (const WeightId id : op.weights) bytes += op.kind == OpKind::kEmbed ? 0 : weights[id].data.size();
  }
  return bytes;
}

// Keys and values that a token at `position` reads, all layers together: float32, the window's or all before
// it.
std::uint64_t cache_bytes(const Plan& plan, std::uint64_t position) {
  std::uint64_t bytes = 0;
  for (const KvLayer& layer : plan.kv_layers) {
    const std::uint64_t tokens =
        layer.window == 0 ? position + 1 : std::min<std::uint64_t>(layer.window, position + 1);
    bytes += 2 * tokens * layer.kv_heads * layer.head_dim * sizeof(float);
  }
  return bytes;
}

// Tokens [position, position + count) of an arbitrary text.
StepInput tokens_at(std::size_t position, std::size_t count, std::uint32_t vocab) {
  StepInput input;
  for (std::size_t i = position; i < position + count; ++i) {
    input.ids.push_back(static_cast<std::int32_t>((i * 7919 + 13) % vocab));
    input.positions.push_back(static_cast<std::int32_t>(i));
    input.slots.push_back(0);
    input.wants_logits.push_back(i + 1 == position + count);
  }
  return input;
}

Status measure(const std::filesystem::path& path, std::size_t threads) {
  const auto start = Clock::now();
  DOPPLER_ASSIGN(const Model model, load_model(path));
  DOPPLER_ASSIGN(const auto backend,
                 make_backend("cpu", model.spec, model.weights, {.threads = threads, .context = 2048}));
  fmt::print("load to ready        {:8.3f} s\n", seconds_since(start));

  const std::uint32_t vocab = model.spec.vocab_size;
  std::size_t position = 0;
  const auto run = [&](std::size_t count) -> Result<double> {
    const StepInput input = tokens_at(position, count, vocab);
    const auto begin = Clock::now();
    DOPPLER_TRY(backend->step(input, nullptr));
    position += count;
    return seconds_since(begin);
  };
  // The first pass maps the file's pages; the second is the measurement.
  double prompt_seconds = 0;
  for (int pass = 0; pass < 2; ++pass) {
    backend->clear(0);
    position = 0;
    prompt_seconds = 0;
    while (position < kPromptTokens) {
      DOPPLER_ASSIGN(const double seconds, run(std::min<std::size_t>(backend->options().max_step_tokens,
                                                                     kPromptTokens - position)));
      prompt_seconds += seconds;
    }
  }
  fmt::print("prefill              {:8.1f} tokens/s ({} tokens)\n", kPromptTokens / prompt_seconds,
             kPromptTokens);
  DOPPLER_TRY(run(1));

  std::uint64_t file_bytes = 0;
  for (const MappedFile& file : model.files.tensors.files()) file_bytes += file.bytes().size();
  const double peak = static_cast<double>(peak_resident_bytes());
  fmt::print("peak resident        {:8.3f} GB = {:.3f} x the weight files of {:.3f} GB\n", peak / 1e9,
             peak / static_cast<double>(file_bytes), static_cast<double>(file_bytes) / 1e9);

  ThreadPool pool(threads);
  DOPPLER_ASSIGN(LazyFloats buffer, LazyFloats::allocate(kBufferBytes / sizeof(float)));
  pool.parallel_for(buffer.size(), 1 << 20, [&](std::size_t begin, std::size_t end) {
    std::fill(buffer.data() + begin, buffer.data() + end, 1.0f);
  });
  std::vector<double> passes, steps;
  std::uint64_t sink = 0;
  for (int round = 0; round < kRounds; ++round) {
    passes.push_back(read_pass(pool, {buffer.data(), buffer.size()}, sink));
    DOPPLER_ASSIGN(const double seconds, run(1));
    steps.push_back(seconds);
  }
  const double weights = static_cast<double>(weight_bytes(backend->plan(), model.weights));
  const double cache = static_cast<double>(cache_bytes(backend->plan(), position));
  const double bytes = weights + cache;
  fmt::print(
      "a token reads        {:8.3f} GB of weights, {:.3f} GB of KV cache (checksum of the plain loop {})\n",
      weights / 1e9, cache / 1e9, sink % 1000);
  fmt::print("{} threads, {} rounds, {} tokens of context     median     best\n", pool.size(), kRounds,
             position);
  const auto line = [](const char* what, double at_median, double at_best) {
    fmt::print("{:<44}{:>8.2f} {:>8.2f}\n", what, at_median, at_best);
  };
  const auto best = [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  };
  line("plain read loop, GB/s", kBufferBytes / median(passes) / 1e9, kBufferBytes / best(passes) / 1e9);
  line("decode, tokens/s", 1 / median(steps), 1 / best(steps));
  line("decode reads, GB/s", bytes / median(steps) / 1e9, bytes / best(steps) / 1e9);
  line("decode / plain loop", bytes / median(steps) / (kBufferBytes / median(passes)),
       bytes / best(steps) / (kBufferBytes / best(passes)));
  fmt::print("KV and activations   {:8.3f} GB allocated\n",
             static_cast<double>(backend->memory_bytes()) / 1e9);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t threads = 0;
  const std::string_view wanted = argc == 3 ? argv[2] : "0";
  if (argc < 2 || argc > 3 || std::from_chars(wanted.begin(), wanted.end(), threads).ptr != wanted.end()) {
    fmt::print(stderr, "Usage: cpu_bench MODEL [THREADS]\n");
    return 2;
  }
  const Status done = measure(argv[1], threads);
  if (!done) fmt::print(stderr, "{}\n", done.error().message);
  return done ? 0 : 3;
}
