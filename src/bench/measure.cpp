#include "bench/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <limits>

#include "system/clock.h"
#include "system/memory.h"
#include "system/processor.h"
#include "system/threads.h"

namespace doppler::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As many as a chart has room for.
constexpr std::size_t kMostTokenTimes = 512;

// The number of tokens decoded with every op timed, apart from the steps that are timed as a whole.
constexpr std::size_t kProfiledTokens = 8;

// Feeds tokens to the sequences of a backend.
class Feeder {
 public:
  explicit Feeder(Loaded& loaded, bool drawn = false)
      : sampling_(drawn ? GenerateOptions{.temperature = 1, .top_k = 40, .top_p = 0.95, .seed = 1}
                        : GenerateOptions{}),
        backend_(*loaded.backend),
        vocab_(loaded.model->spec.vocab_size) {}

  void clear(std::uint32_t slot) { backend_.clear(slot); }

  Status prompt(std::uint32_t slot, std::size_t count, OpProfile* profile = nullptr) {
    return feed_bench_tokens(backend_, slot, count, profile);
  }

  // `count` steps in which slots [first, first + sequences) grow by one token each.
  // `token_seconds`, if not null, is given what each step took.
  Status grow(std::uint32_t first, std::uint64_t sequences, std::size_t count,
              std::vector<double>* token_seconds, OpProfile* profile = nullptr) {
    if (sequences == 1 && profile == nullptr && continues()) return go_on(first, count, token_seconds);
    if (profile == nullptr && continues_together(sequences))
      return go_on_together(first, sequences, count, token_seconds);
    for (std::size_t i = 0; i < count; ++i) {
      const auto start = Clock::now();
      StepInput input;
      for (std::uint32_t s = first; s < first + sequences; ++s)
        input.add(bench_token(backend_.length(s) + s, vocab_), backend_.length(s), s, true);
      if (profile != nullptr) profile->begin_step(sequences, backend_.length(first));
      DOPPLER_TRY(backend_.step(input, nullptr));
      if (token_seconds != nullptr) token_seconds->push_back(seconds_since(start));
    }
    return {};
  }

  // Whether the backend generates single sequences by itself.
  bool continues() const { return backend_.can_continue(sampling_); }
  // Whether it generates so many together by itself.
  bool continues_together(std::uint64_t sequences) const {
    return sequences > 1 && continues() && sequences <= backend_.continuer()->most_together();
  }
  Backend& backend() { return backend_; }

 private:
  // Lets the backend generate `count` tokens by itself.
  Status go_on(std::uint32_t slot, std::size_t count, std::vector<double>* token_seconds) {
    const std::uint64_t before = backend_.length(slot);
    const std::vector<TokenId> history(static_cast<std::size_t>(before) + 1, bench_token(before, vocab_));
    Continuer& continuer = *backend_.continuer();
    DOPPLER_TRY(continuer.continue_sequence({.slot = slot,
                                             .id = history.back(),
                                             .most = count,
                                             .sampling = &sampling_,
                                             .history = history,
                                             .draw = 0,
                                             .pad_id = -1}));
    auto last = Clock::now();
    for (std::size_t done = 0; done < count;) {
      DOPPLER_ASSIGN(const auto tokens, continuer.next_tokens());
      const double took = seconds_since(last);
      last = Clock::now();
      if (tokens.empty() || tokens.back() < 0) return breaks_off(done, count);
      done += tokens.size();
      if (token_seconds != nullptr)
        token_seconds->insert(token_seconds->end(), tokens.size(), took / static_cast<double>(tokens.size()));
    }
    return continuer.stop_sequence(before + count);
  }

  // The same for slots [first, first + sequences); `token_seconds` is given what each step took.
  Status go_on_together(std::uint32_t first, std::uint64_t sequences, std::size_t count,
                        std::vector<double>* token_seconds) {
    Continuer& continuer = *backend_.continuer();
    std::vector<std::uint64_t> before;
    for (std::uint32_t s = first; s < first + sequences; ++s) {
      before.push_back(backend_.length(s));
      const std::vector<TokenId> history(static_cast<std::size_t>(before.back()) + 1,
                                         bench_token(before.back() + s, vocab_));
      DOPPLER_TRY(continuer.join({.slot = s,
                                  .id = history.back(),
                                  .most = count,
                                  .sampling = &sampling_,
                                  .history = history,
                                  .draw = 0,
                                  .pad_id = -1}));
    }
    auto last = Clock::now();
    for (std::size_t done = 0; done < count * sequences;) {
      DOPPLER_ASSIGN(const auto tokens, continuer.tokens_of_all());
      const double took = seconds_since(last);
      last = Clock::now();
      if (tokens.empty() || std::ranges::any_of(tokens, [](const SlotToken& token) { return token.id < 0; }))
        return breaks_off(done, count * sequences);
      done += tokens.size();
      const std::size_t steps = tokens.size() / sequences;
      if (token_seconds != nullptr)
        token_seconds->insert(token_seconds->end(), steps, took / static_cast<double>(steps));
    }
    for (std::uint32_t s = first; s < first + sequences; ++s)
      DOPPLER_TRY(continuer.leave(s, before[s - first] + count));
    return {};
  }

  Status breaks_off(std::size_t done, std::size_t wanted) const {
    return fail(ErrorCode::kMismatch,
                "The {} backend breaks off after {} of {} tokens. Run doppler compare with a recording to "
                "find the first wrong stage.",
                backend_.name(), done, wanted);
  }

  const GenerateOptions sampling_;
  Backend& backend_;
  const std::uint64_t vocab_;
};

// One line of the result, while it is measured.
struct Decode {
  std::uint64_t depth, sequences;
  std::uint32_t slot;  // the first of its own; depth 0 starts over each time
  std::vector<double> rates, shares, token_seconds;
  std::uint64_t bytes = 0;
  std::optional<DeviceCounters> counters;  // of the repetitions that count
};

DeviceCounters added(const DeviceCounters& sum, const DeviceCounters& after, const DeviceCounters& before) {
  return {.submits = sum.submits + after.submits - before.submits,
          .dispatches = sum.dispatches + after.dispatches - before.dispatches,
          .read_backs = sum.read_backs + after.read_backs - before.read_backs,
          .read_back_bytes = sum.read_back_bytes + after.read_back_bytes - before.read_back_bytes,
          .written_bytes = sum.written_bytes + after.written_bytes - before.written_bytes};
}

// How fast memory can be read where the backend computes: by the device itself, or by a plain loop here.
class Yardstick {
 public:
  static Result<Yardstick> create(Backend& backend, std::size_t threads, std::uint64_t bytes) {
    Yardstick made;
    made.bytes_ = bytes;
    if (backend.device() != nullptr) {
      made.device_ = backend.device();
      made.threads_ = threads != 0 ? threads : system::processor_share().count;
    } else {
      DOPPLER_ASSIGN(made.loop_, ReadLoop::create(threads, bytes));
      made.threads_ = made.loop_->threads();
    }
    return made;
  }
  // Threads of the host.
  std::size_t threads() const { return threads_; }
  // Bytes per second.
  Result<double> pass() {
    if (loop_) return loop_->pass();
    return device_->measure_read_bandwidth(bytes_);
  }

 private:
  DeviceView* device_ = nullptr;
  std::unique_ptr<ReadLoop> loop_;
  std::uint64_t bytes_ = 0;
  std::size_t threads_ = 0;
};

class Bench {
 public:
  Bench(const std::filesystem::path& path, const LoadOptions& load, const BenchOptions& options,
        const BenchProgress& progress)
      : path_(path), load_(load), options_(options), progress_(progress) {}

  Result<BenchResult> run() {
    DOPPLER_TRY(check());
    plan_slots();
    DOPPLER_TRY(load_model_often());
    describe();
    Feeder feeder(*loaded_, options_.drawn);
    if (options_.drawn) DOPPLER_TRY(check_drawn(feeder));
    DOPPLER_TRY(fill_depths(feeder));
    DOPPLER_ASSIGN(Yardstick yardstick,
                   Yardstick::create(*loaded_->backend, load_.threads, options_.yardstick_bytes));
    for (std::size_t i = 0; i < options_.warm_up + options_.repetitions; ++i) {
      tell(0.3 + 0.6 * static_cast<double>(i) / static_cast<double>(options_.warm_up + options_.repetitions),
           "measuring");
      DOPPLER_TRY(repeat(feeder, yardstick, i >= options_.warm_up));
    }
    result_.threads = yardstick.threads();
    DOPPLER_ASSIGN(result_.quality, measure_quality(*loaded_));
    summarise_all();
    tell(0.95, "timing ops");
    if (options_.ops) DOPPLER_TRY(profile(feeder));
    return std::move(result_);
  }

 private:
  void tell(double share, std::string_view what) {
    if (progress_) progress_(share, what);
  }

  Status check() const {
    const bool sane = options_.prefill > 0 && options_.decode > 0 && options_.repetitions > 0 &&
                      options_.loads > 0 && (!options_.depths.empty() || !options_.sequences.empty()) &&
                      std::ranges::none_of(options_.sequences, [](auto n) { return n == 0; });
    if (sane) return {};
    return fail(ErrorCode::kUsage,
                "A measurement needs at least one token, repetition and sequence. Ask for more.");
  }

  Status check_drawn(const Feeder& feeder) const {
    for (const Decode& d : decodes_) {
      if (by_itself(feeder, d)) continue;
      return fail(ErrorCode::kUsage,
                  "The {} backend does not generate by itself what {} measures, so that no token would be "
                  "drawn. Leave --drawn out.",
                  loaded_->backend->name(), decode_name(d.depth, d.sequences, false));
    }
    return {};
  }

  // Whether the backend generates its tokens, which are fed to it otherwise.
  static bool by_itself(const Feeder& feeder, const Decode& d) {
    return d.sequences == 1 ? feeder.continues() : feeder.continues_together(d.sequences);
  }

  // Slot 0 reads prompts; then each measurement has its own.
  void plan_slots() {
    std::uint32_t next = 1;
    for (const std::uint64_t depth : options_.depths)
      decodes_.push_back({depth, 1, next++, {}, {}, {}, 0, {}});
    for (const std::uint64_t n : options_.sequences) {
      const bool known = n == 1 && std::ranges::count(options_.depths, 0u) > 0;
      if (!known) decodes_.push_back({0, n, next, {}, {}, {}, 0, {}}), next += static_cast<std::uint32_t>(n);
    }
    slots_ = next;
    const std::uint64_t grown =
        (options_.warm_up + options_.repetitions + 1) * options_.decode + kProfiledTokens;
    std::uint64_t deepest = 0;
    for (const std::uint64_t depth : options_.depths) deepest = std::max(deepest, depth);
    load_.context = std::max({std::uint64_t{options_.prefill}, deepest + grown, kQualityContext}) + 1;
  }

  Status load_model_often() {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < options_.loads; ++i) {
      tell(0.2 * static_cast<double>(i) / static_cast<double>(options_.loads), "loading");
      loaded_.reset();
      const auto start = Clock::now();
      DOPPLER_ASSIGN(Loaded loaded, load_all(path_, load_, slots_));
      seconds.push_back(seconds_since(start));
      loaded_ = std::make_unique<Loaded>(std::move(loaded));
      if (i > 0) continue;
      Feeder feeder(*loaded_);
      DOPPLER_TRY(feeder.prompt(0, 1));
      result_.cold_token_seconds = seconds_since(start);
    }
    result_.load_seconds = summarise(seconds);
    return {};
  }

  void describe() {
    kv_type_ = loaded_->backend->options().kv_type.value_or(KvType::kF32);
    result_.model = path_.string();
    result_.backend = loaded_->backend->name();
    if (const DeviceView* device = loaded_->backend->device(); device != nullptr)
      result_.device = device->info();
    result_.choice = loaded_->choice;
    result_.kv_type = kv_type_name(kv_type_);
    result_.cpu = system::processor_name();
    result_.prefill = options_.prefill;
    result_.memory = loaded_->backend->memory();
    for (const MappedFile& file : loaded_->model->files.tensors.files())
      result_.file_bytes += file.bytes().size();
    result_.date = utc_date();
  }

  // The peak is what one conversation needs: untouched parts of the cache take no memory, and the other
  // sequences and the plain loop's buffer come later.
  Status fill_depths(Feeder& feeder) {
    feeder.clear(0);
    DOPPLER_TRY(feeder.prompt(0, options_.prefill));
    result_.peak_bytes = system::peak_resident_bytes();
    result_.fallbacks = loaded_->backend->fallbacks();
    for (const Decode& d : decodes_) {
      tell(0.2, "filling the cache");
      if (d.depth > 0) DOPPLER_TRY(feeder.prompt(d.slot, d.depth));
    }
    return {};
  }

  Status repeat(Feeder& feeder, Yardstick& yardstick, bool counts) {
    for (Decode& d : decodes_) {
      DOPPLER_ASSIGN(const double limit, yardstick.pass());
      if (d.depth == 0) DOPPLER_TRY(start_over(feeder, d));
      const std::uint64_t position = feeder.backend().length(d.slot) + options_.decode / 2;
      const DeviceView* device = feeder.backend().device();
      const DeviceCounters before = device != nullptr ? device->counters() : DeviceCounters();
      const auto start = Clock::now();
      DOPPLER_TRY(feeder.grow(d.slot, d.sequences, options_.decode, counts ? &d.token_seconds : nullptr));
      const double seconds = seconds_since(start);
      if (!counts) continue;
      if (device != nullptr)
        d.counters = added(d.counters.value_or(DeviceCounters{}), device->counters(), before);
      d.bytes = step_bytes(d, position);
      d.rates.push_back(static_cast<double>(options_.decode * d.sequences) / seconds);
      const double bandwidth = static_cast<double>(d.bytes) * static_cast<double>(options_.decode) / seconds;
      d.shares.push_back(bandwidth / limit);
      limits_.push_back(limit);
    }
    feeder.clear(0);
    const auto start = Clock::now();
    DOPPLER_TRY(feeder.prompt(0, options_.prefill));
    if (counts) prompt_seconds_.push_back(seconds_since(start));
    return {};
  }

  static Status start_over(Feeder& feeder, const Decode& d) {
    for (std::uint32_t s = d.slot; s < d.slot + d.sequences; ++s) {
      feeder.clear(s);
      DOPPLER_TRY(feeder.prompt(s, 1));
    }
    return {};
  }

  // Weights are read once a step, the cache once for each sequence.
  std::uint64_t step_bytes(const Decode& d, std::uint64_t position) const {
    const Plan& plan = loaded_->backend->plan();
    std::uint64_t cache = 0;
    for (const KvLayer& layer : plan.kv_layers) cache += cache_bytes(layer, kv_type_, position);
    return token_bytes(plan, loaded_->model->weights, kv_type_, position) + (d.sequences - 1) * cache;
  }

  void summarise_all() {
    result_.read_bandwidth = summarise(limits_);
    result_.first_token_seconds = summarise(prompt_seconds_);
    std::vector<double> rates;
    for (const double seconds : prompt_seconds_)
      rates.push_back(static_cast<double>(options_.prefill) / seconds);
    result_.prefill_tokens_per_second = summarise(rates);
    for (const Decode& d : decodes_) {
      DecodeResult line{.depth = d.depth,
                        .sequences = d.sequences,
                        .drawn = options_.drawn,
                        .tokens_per_second = summarise(d.rates)};
      line.step_bytes = d.bytes;
      line.bandwidth =
          static_cast<double>(d.bytes) * line.tokens_per_second.median / static_cast<double>(d.sequences);
      line.share = median(d.shares);
      line.token_seconds = percentiles(d.token_seconds);
      line.each_token_seconds = largest_of_groups(d.token_seconds, kMostTokenTimes);
      line.counters = d.counters;
      line.tokens = options_.repetitions * options_.decode * d.sequences;
      const Feeder feeder(*loaded_, options_.drawn);
      line.submit_tokens = by_itself(feeder, d) ? loaded_->backend->options().gpu.submit_tokens : 0;
      result_.decode.push_back(line);
    }
  }

  Status profile(Feeder& feeder) {
    Backend& backend = feeder.backend();
    const auto add = [&](std::string phase, const OpProfile& profile) {
      if (profile.seconds() > 0) result_.ops.push_back({std::move(phase), profile.seconds(), profile.rows()});
    };
    for (const Decode& d : decodes_) {
      OpProfile ops(backend.plan(), loaded_->model->weights, kv_type_);
      if (d.depth == 0) DOPPLER_TRY(start_over(feeder, d));
      backend.observe(&ops);
      const Status done = feeder.grow(d.slot, d.sequences, kProfiledTokens, nullptr, &ops);
      backend.observe(nullptr);
      DOPPLER_TRY(done);
      add(decode_name(d.depth, d.sequences, false), ops);
    }
    OpProfile ops(backend.plan(), loaded_->model->weights, kv_type_);
    feeder.clear(0);
    backend.observe(&ops);
    const Status done = feeder.prompt(0, options_.prefill, &ops);
    backend.observe(nullptr);
    DOPPLER_TRY(done);
    add(fmt::format("prefill {}", options_.prefill), ops);
    return {};
  }

  const std::filesystem::path path_;
  LoadOptions load_;
  const BenchOptions& options_;
  const BenchProgress& progress_;
  std::uint32_t slots_ = 1;
  std::unique_ptr<Loaded> loaded_;
  KvType kv_type_ = KvType::kF32;
  std::vector<Decode> decodes_;
  std::vector<double> limits_, prompt_seconds_;
  BenchResult result_;
};

}  // namespace

std::string utc_date() {
  std::array<char, 32> text{};
  const std::tm parts = system::utc_time();
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

TokenId bench_token(std::uint64_t position, std::uint64_t vocab) {
  // Two primes: neighbours lie far apart, and no short cycle repeats.
  return static_cast<TokenId>((position * 7919 + 13) % vocab);
}

Status feed_bench_tokens(Backend& backend, std::uint32_t slot, std::size_t count, OpProfile* profile) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t take = std::min<std::size_t>(step_tokens(backend.options()), count - done);
    const std::uint64_t first = backend.length(slot);
    StepInput input;
    for (std::size_t i = 0; i < take; ++i)
      input.add(bench_token(first + i, backend.plan().vocab_size), first + i, slot, done + i + 1 == count);
    if (profile != nullptr) profile->begin_step(take, first);
    DOPPLER_TRY(backend.step(input, nullptr));
    done += take;
  }
  return {};
}

std::string decode_name(std::uint64_t depth, std::uint64_t sequences, bool drawn) {
  const char* const how = drawn ? "drawn" : "decode";
  return sequences > 1 ? fmt::format("{} of {} sequences", how, sequences)
                       : fmt::format("{} @{}", how, depth);
}

Result<BenchResult> run_bench(const std::filesystem::path& model, const LoadOptions& load,
                              const BenchOptions& options, const BenchProgress& progress) {
  return Bench(model, load, options, progress).run();
}

}  // namespace doppler::bench
