// How long a model takes from its file to its first token: with the file in memory, and from the disk.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "bench/measure.h"
#include "bench/statistics.h"

namespace doppler::bench {

struct LoadTimes {
  Summary ready_seconds;        // until the model can be asked
  Summary first_token_seconds;  // until the logits of a prompt of one token are there, loading included
};

struct LoadingResult {
  std::string model, backend, cpu, date, choice;
  std::optional<DeviceInfo> device;
  std::vector<Fallback> fallbacks;
  std::size_t threads = 0;
  std::uint64_t file_bytes = 0, peak_bytes = 0;
  MemoryUse memory;
  std::optional<LoadTimes>
      cold;           // the files were forgotten before each; nothing where the system does not do that
  double cached = 0;  // the share of the files that the system kept in spite of that, at its largest
  LoadTimes warm;
  std::string why_no_cold;
};

// Loads the model `loads` times cold and `loads` times warm, in turns, after one load that does not count: it
// compiles kernels and measures shapes that later loads find stored. Errors: those of loading.
Result<LoadingResult> measure_loading(const std::filesystem::path& model, const LoadOptions& load,
                                      std::size_t loads, const BenchProgress& progress);

Json to_json(const LoadingResult& result);
std::string to_text(const LoadingResult& result);

}  // namespace doppler::bench
