// Measures a loaded model: reading prompts, generating at several depths and with several sequences, against
// the machine's memory bandwidth.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/op_profile.h"
#include "bench/read_loop.h"
#include "bench/statistics.h"
#include "doppler/doppler.h"
#include "engine/loaded.h"

namespace doppler {

struct BenchOptions {
  std::size_t prefill = 512;                      // tokens of the prompt
  std::size_t decode = 32;                        // tokens generated in one repetition
  std::vector<std::uint64_t> depths = {0, 2000};  // tokens in the cache before
  std::vector<std::uint64_t> sequences = {1};     // that grow together, at depth 0
  std::size_t repetitions = 7, warm_up = 1, loads = 3;
  bool ops = true;  // time every op, too, in steps of their own
  std::uint64_t yardstick_bytes = ReadLoop::kBytes;
};

struct DecodeResult {
  std::uint64_t depth = 0, sequences = 1;
  Summary tokens_per_second;     // of all sequences together
  std::uint64_t step_bytes = 0;  // weights and cache that the middle step reads
  double bandwidth = 0;          // bytes per second at the median
  double share = 0;              // of the plain loop's, the median over repetitions
};

struct OpTable {
  std::string phase;  // "decode @0", "prefill 512"
  double seconds = 0;
  std::vector<OpRow> rows;
};

struct BenchResult {
  std::string model, backend, cpu, date, kv_type;
  std::size_t threads = 0;
  std::uint64_t file_bytes = 0, kv_and_activation_bytes = 0, peak_bytes = 0;
  Summary load_seconds;           // until the model is ready
  Summary first_token_seconds;    // of a prompt of `prefill` tokens, once loaded
  double cold_token_seconds = 0;  // loading and a prompt of one token, the first time in this process
  Summary read_bandwidth;         // of the plain loop, bytes per second
  std::size_t prefill = 0;
  Summary prefill_tokens_per_second;
  std::vector<DecodeResult> decode;
  std::vector<OpTable> ops;
};

using BenchProgress = std::function<void(double share, std::string_view what)>;

// Loads the model `loads` times and measures the last. Every repetition takes each measurement in turn, with
// a pass of the plain loop before, so that what slows the machine for a while slows all alike. Errors: those
// of loading; kLimit when a depth does not fit the memory; kUsage for options without a token.
Result<BenchResult> run_bench(const std::filesystem::path& model, const LoadOptions& load,
                              const BenchOptions& options, const BenchProgress& progress);

// The token at a position of the text that is measured with: spread over the vocabulary, the same in every
// run.
TokenId bench_token(std::uint64_t position, std::uint64_t vocab);

}  // namespace doppler
