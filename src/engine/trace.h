// A run's messages in the log and in the trace categories that belong to no stage: loader, kernels, buffers,
// sample and perf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "doppler/doppler.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

struct Loaded;

struct LoadSeconds {
  double weights = 0, texts = 0, backend = 0;  // texts: tokenizer and template
  double total() const { return weights + texts + backend; }
};
// After everything is loaded: files and tensors, the kernel of each op and its reason, and the memory that is
// taken.
void trace_loaded(const Loaded& loaded, const LoadSeconds& seconds);

// A token and the logits it was chosen from (empty: the backend did not show them). `step` is 0 for the
// prompt. Ask trace_wanted() first.
struct Sampled {
  TokenId id = -1;
  std::span<const float> logits;
  std::int64_t step = 0;
};
void trace_sample(const Sampled& sampled, const GenerateOptions& options,
                  const tokenizer::Tokenizer* tokenizer);

// A generation's times and its device's counters.
class PerfTrace {
 public:
  explicit PerfTrace(const Backend& backend);
  // A token has come, `ms` milliseconds after the one before.
  void token(double ms) {
    if (wanted_) token_ms_.push_back(ms);
  }
  void end(const Timings& timings) const;

 private:
  const Backend& backend_;
  const bool wanted_;
  const std::optional<DeviceCounters> before_;
  std::vector<double> token_ms_;
};

}  // namespace doppler
