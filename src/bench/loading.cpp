#include "bench/loading.h"

#include <algorithm>
#include <chrono>

#include "base/json.h"
#include "base/text.h"
#include "bench/report.h"
#include "engine/fallbacks.h"
#include "system/file_cache.h"
#include "system/memory.h"
#include "system/processor.h"
#include "system/threads.h"

namespace doppler::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Of a cold file so much may be in memory: the pages that were read to look at its head.
constexpr double kMostCached = 0.05;

double elapsed(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Loads {
 public:
  Loads(const std::filesystem::path& path, const LoadOptions& load) : path_(path), load_(load) {}

  struct Times {
    std::vector<double> ready, first_token;
    LoadTimes summary() const { return {summarise(ready), summarise(first_token)}; }
  };

  Status once(Times* times) {
    const auto start = Clock::now();
    DOPPLER_ASSIGN(Loaded loaded, load_all(path_, load_, 1));
    const double ready = elapsed(start);
    DOPPLER_TRY(feed_bench_tokens(*loaded.backend, 0, 1));
    if (times != nullptr) {
      times->ready.push_back(ready);
      times->first_token.push_back(elapsed(start));
    }
    if (files_.empty()) describe(loaded);
    return {};
  }

  // Nothing if the files are out of memory now, else why not.
  std::string forget(LoadingResult& result) const {
    for (const std::filesystem::path& file : files_) {
      if (const std::error_code error = system::forget_cached(file); error)
        return fmt::format("the system does not forget {}: {}", printable_path(file), error.message());
      const std::optional<double> cached = system::cached_share(file);
      if (!cached) return "the system does not say what it holds in memory";
      result.cached = std::max(result.cached, *cached);
      if (*cached > kMostCached)
        return fmt::format("the system keeps {:.0f}% of {} in memory", 100 * *cached, printable_path(file));
    }
    return {};
  }

  LoadingResult described() const { return described_; }

 private:
  void describe(Loaded& loaded) {
    LoadingResult& r = described_;
    r.model = path_.string();
    r.backend = loaded.backend->name();
    if (const DeviceView* device = loaded.backend->device(); device != nullptr) r.device = device->info();
    r.choice = loaded.choice;
    r.fallbacks = loaded.backend->fallbacks();
    r.cpu = system::processor_name();
    r.threads = load_.threads != 0 ? load_.threads : system::processor_share().count;
    r.date = utc_date();
    r.memory = loaded.backend->memory();
    r.peak_bytes = system::peak_resident_bytes();
    for (const MappedFile& file : loaded.model->files.tensors.files()) {
      r.file_bytes += file.bytes().size();
      files_.push_back(file.path());
    }
  }

  const std::filesystem::path path_;
  const LoadOptions load_;
  std::vector<std::filesystem::path> files_;
  LoadingResult described_;
};

void tell_times(std::string& out, std::string_view kind, const LoadTimes& times) {
  const auto line = [&](std::string_view what, const Summary& s) {
    out += fmt::format("{:<34}{:10.3f}  {:.3f}..{:.3f}\n", fmt::format("{} {}, s", kind, what), s.median,
                       s.low, s.high);
  };
  line("load", times.ready_seconds);
  line("load and one token", times.first_token_seconds);
}

Json to_json(const LoadTimes& times) {
  return {{"ready_seconds", to_json(times.ready_seconds)},
          {"first_token_seconds", to_json(times.first_token_seconds)}};
}

}  // namespace

Result<LoadingResult> measure_loading(const std::filesystem::path& model, const LoadOptions& load,
                                      std::size_t loads, const BenchProgress& progress) {
  Loads all(model, load);
  DOPPLER_TRY(all.once(nullptr));
  LoadingResult result = all.described();
  Loads::Times cold, warm;
  for (std::size_t i = 0; i < loads; ++i) {
    if (progress) progress(static_cast<double>(i) / static_cast<double>(loads), "loading");
    if (result.why_no_cold.empty()) result.why_no_cold = all.forget(result);
    if (result.why_no_cold.empty()) DOPPLER_TRY(all.once(&cold));
    DOPPLER_TRY(all.once(&warm));
  }
  if (result.why_no_cold.empty()) result.cold = cold.summary();
  result.warm = warm.summary();
  return result;
}

Json to_json(const LoadingResult& r) {
  return {{"schema", kReportSchema},
          {"suite", "loading"},
          {"model", r.model},
          {"date", r.date},
          {"cpu", r.cpu},
          {"backend", r.backend},
          {"backend_choice", r.choice},
          {"fallbacks", fallbacks_json(r.fallbacks)},
          {"device", r.device ? to_json(*r.device) : Json(nullptr)},
          {"threads", r.threads},
          {"cold", r.cold ? to_json(*r.cold) : Json(nullptr)},
          {"why_no_cold", r.why_no_cold},
          {"warm", to_json(r.warm)},
          {"memory", memory_json(r.peak_bytes, r.file_bytes, r.memory)}};
}

std::string to_text(const LoadingResult& r) {
  std::string out =
      fmt::format("{}\n{}, backend {}, {} threads, {}\n", r.model, r.cpu, r.backend, r.threads, r.date);
  if (r.device) out += fmt::format("{} adapter {}\n", r.device->kind, r.device->describe());
  out += fmt::format("{:<34}{:>10}  95% interval of {}\n", "", "median", r.warm.ready_seconds.count);
  if (r.cold) tell_times(out, "cold", *r.cold);
  tell_times(out, "warm", r.warm);
  if (!r.cold) out += "not measured from the disk: " + r.why_no_cold + "\n";
  return out + fmt::format("{:<34}{:10.3f}  GB, the files {:.3f}\n", "peak memory",
                           static_cast<double>(r.peak_bytes) / 1e9, static_cast<double>(r.file_bytes) / 1e9);
}

}  // namespace doppler::bench
