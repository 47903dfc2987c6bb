#include "backend/gpu/tune.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "backend/gpu/bandwidth.h"
#include "backend/gpu/timing.h"

namespace doppler::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The shape in use and those that look best besides. How many workgroups a head has stays: two for each of a
// large GPU's processors, which four were never better than by more than half a percent (H100, 64 shapes of
// four models' heads).
std::vector<TunedShape> candidates_of(const Device& device, const GemvSite& site, std::size_t most) {
  std::vector<TunedShape> candidates = {{site.shape, site.head_groups}};
  for (const GemvShape& shape : site.shapes(device, most)) {
    if (shape != site.shape) candidates.push_back({shape, site.head_groups});
  }
  return candidates;
}

// A step at position 0 begins anew; overwrites the cache there.
Status begin_step(Context& context) {
  const std::vector<std::uint32_t> words = context.first_step();
  return context.device->write(context.step, 0, std::as_bytes(std::span(words)));
}

Result<std::vector<float>> logits_of(Context& context, const DecodeProgram& program) {
  DOPPLER_TRY(begin_step(context));
  Recorder recorder(*context.device);
  program.record_logits(recorder, 0);
  DOPPLER_TRY(recorder.submit());
  DOPPLER_ASSIGN(const std::vector<std::byte> bytes, context.device->download(program.logits()));
  std::vector<float> logits(context.plan.vocab_size);
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

template <typename T>
Result<std::vector<T>> contents_of(Context& context, const Bound& bound) {
  DOPPLER_ASSIGN(const std::vector<std::byte> bytes, context.device->download(bound.buffer));
  const std::size_t size = bound.bytes != 0 ? bound.bytes : bytes.size() - bound.offset;
  std::vector<T> values(size / sizeof(T));
  std::memcpy(values.data(), bytes.data() + bound.offset, values.size() * sizeof(T));
  return values;
}

// What a site leaves in a step that ends with it, as floats. All before it is as it was, whatever its own
// shape, so an expert that a rounding would choose otherwise behind it does not matter.
Result<std::vector<float>> results_of(Context& context, const DecodeProgram& program, const GemvSite& site) {
  if (site.where != GemvSite::Where::kBody) return logits_of(context, program);
  DOPPLER_TRY(begin_step(context));
  Recorder recorder(*context.device);
  std::vector<std::size_t> steps = program.body_at(0);
  if (std::ranges::find(steps, site.index) == steps.end()) steps = program.body_at(UINT64_MAX);
  for (const std::size_t i : steps) {
    if (i <= site.index) recorder.dispatch(program.body()[i]);
  }
  DOPPLER_TRY(recorder.submit());
  const auto bound = [&](std::string_view name) {
    return std::ranges::find(site.buffers, name, &Bound::name);
  };
  if (bound("out") != site.buffers.end()) return contents_of<float>(context, *bound("out"));
  if (bound("out8") == site.buffers.end() || bound("outs") == site.buffers.end())
    return fail(ErrorCode::kInternal, "The product {} leaves nothing to compare.", site.key());
  constexpr std::size_t kBlock = 32;  // codes, with a scale and the sum of the codes times it
  DOPPLER_ASSIGN(const std::vector<std::int8_t> codes, contents_of<std::int8_t>(context, *bound("out8")));
  DOPPLER_ASSIGN(const std::vector<float> scales, contents_of<float>(context, *bound("outs")));
  std::vector<float> values(std::min(codes.size(), scales.size() / 2 * kBlock));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(codes[i]) * scales[i / kBlock * 2];
  return values;
}

// Shapes only order sums differently: results that differ by more than rounding come from a kernel that is
// wrong.
bool agree(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    // What no kernel writes may be anything, but stays.
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) {
      if (std::isfinite(a[i])) largest = std::max(largest, std::abs(static_cast<double>(a[i])));
      continue;
    }
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= 1e30)) return false;
    worst = std::max(worst, difference);
  }
  // An activation that falls on the other side of a step of its 8 bits moves a sum by about a hundredth.
  return worst <= 0.03 * std::max(largest, 1e-6);
}

// Seconds of measuring one candidate: some runs through all layers of a 1B model.
constexpr double kSecondsEach = 0.006;

}  // namespace

// A GPU at rest stays so for up to half a second of work (an H200 at 345 MHz of 1,980 for 0.4 s): works for
// that long, and on until it gets no faster.
Status wake(Context& context, std::span<const FixedDispatch> work) {
  Device& device = *context.device;
  if (device.adapter().software()) return {};
  constexpr double kMostSeconds = 0.8;
  constexpr double kPortion = 0.05, kAsleep = 0.5;
  constexpr double kRest = 0.45;  // in which the clock stays: it does so for 0.6 s at least (H100)
  if (seconds_since(context.awake_at) < kRest) return {};
  const auto start = Clock::now();
  double before = HUGE_VAL;
  while (seconds_since(start) < kMostSeconds) {
    const auto portion = Clock::now();
    double least = HUGE_VAL;
    while (seconds_since(portion) < kPortion) {
      DOPPLER_ASSIGN(const double seconds, time_each(device, work, kSecondsEach));
      least = std::min(least, seconds);
    }
    if (seconds_since(start) > kAsleep && least > before * 0.97) break;
    before = least;
  }
  context.awake_at = Clock::now();
  return {};
}

// Some work in between, so that it does not count as a rest.
static Status stay_awake(Context& context, std::span<const FixedDispatch> work) {
  if (context.device->adapter().software()) return {};
  DOPPLER_TRY(time_each(*context.device, work, kSecondsEach));
  context.awake_at = Clock::now();
  return {};
}

Status prepare_awake(Context& context, std::span<const KernelSource> sources,
                     std::span<const FixedDispatch> work) {
  Status woken;
  bool is_awake = false;
  const auto waking = [&] {
    if (woken) woken = is_awake ? stay_awake(context, work) : wake(context, work);
    is_awake = true;
  };
  DOPPLER_TRY(context.kernels.prepare(sources, context.pool, KernelCache::Use::kMeasure, waking));
  return woken;
}

// Every shape that tune() measures.
static std::vector<KernelSource> candidate_sources(const Context& context, const DecodeProgram& program,
                                                   std::size_t most) {
  std::vector<KernelSource> sources;
  for (const GemvSite& site : program.sites()) {
    for (const TunedShape& candidate : candidates_of(*context.device, site, most))
      sources.push_back(DecodeProgram::source_of(site, candidate.shape, candidate.head_groups));
  }
  return sources;
}

KernelCache::Others tune_ahead(Context& context, const DecodeProgram& program, std::size_t most_candidates) {
  constexpr std::uint64_t kBytes = 4 << 20;  // read again and again
  // None of the program's kernels is there yet, so the device gets work of its own. Where it cannot have
  // that, it is woken before it is measured, and what is wrong with it shows where it is used.
  const auto waking = [&context, tried = false, work = std::optional<FixedDispatch>()]() mutable {
    if (work) (void)stay_awake(context, {&*work, 1});
    if (std::exchange(tried, true)) return;
    const auto reading = ReadBandwidth::create(*context.device, kBytes);
    if (!reading) return;
    work = reading->dispatch();
    (void)wake(context, {&*work, 1});
  };
  return {.measured = candidate_sources(context, program, most_candidates), .beside = waking};
}

Result<std::vector<double>> time_awake(Context& context, std::span<const std::vector<FixedDispatch>> lists,
                                       double seconds) {
  DOPPLER_TRY(wake(context, lists.front()));
  auto measured = time_in_turns(*context.device, lists, seconds);
  context.awake_at = Clock::now();
  return measured;
}

namespace {

// The shapes of one kind of site, and which of them is to be taken.
struct MeasuredKind {
  std::span<const std::size_t> indices;  // of the sites
  std::vector<TuneRow> candidates;       // the shape in use first; none where the device takes no other
  std::size_t best = 0;
};

// Every candidate is made for all layers, and they take turns.
Result<MeasuredKind> measure_kind(Context& context, const DecodeProgram& program,
                                  std::span<const std::size_t> indices, std::size_t most_candidates) {
  MeasuredKind measured{.indices = indices, .candidates = {}};
  std::vector<TuneRow>& candidates = measured.candidates;
  std::vector<std::vector<FixedDispatch>> dispatches;
  const GemvSite& site = program.sites()[indices.front()];
  for (const TunedShape& candidate : candidates_of(*context.device, site, most_candidates)) {
    std::vector<FixedDispatch> layers;
    for (const std::size_t i : indices) {
      auto made =
          DecodeProgram::shaped(context, program.sites()[i], candidate.shape, candidate.head_groups, false);
      if (!made) break;  // a shape that this device does not take
      layers.push_back(std::move(*made));
    }
    if (layers.size() != indices.size()) continue;
    candidates.push_back({.key = site.key(),
                          .shape = candidate.shape,
                          .head_groups = candidate.head_groups,
                          .seconds = HUGE_VAL,
                          .bytes = site.bytes});
    dispatches.push_back(std::move(layers));
  }
  if (candidates.empty()) return measured;
  DOPPLER_ASSIGN(const std::vector<double> seconds, time_awake(context, dispatches, kSecondsEach));
  for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].seconds = seconds[i];
  // A gain below two percent is noise: the first is the one in use. One that seems faster must be so once
  // more, side by side: a clock that moves while many are measured favours whoever is at hand.
  constexpr double kGain = 0.98;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (candidates[i].seconds < candidates[measured.best].seconds * kGain) measured.best = i;
  }
  if (measured.best == 0) return measured;
  const std::vector<std::vector<FixedDispatch>> both = {dispatches.front(), dispatches[measured.best]};
  DOPPLER_ASSIGN(const std::vector<double> again, time_awake(context, both, kSecondsEach));
  if (again[1] >= again[0] * kGain) measured.best = 0;
  return measured;
}

// Puts the best into the program, if it computes what the one in use does.
Status take_best(Context& context, DecodeProgram& program, MeasuredKind& measured) {
  TuneRow& best = measured.candidates[measured.best];
  const auto take = [&](const GemvShape& shape, std::uint32_t groups) -> Status {
    for (const std::size_t i : measured.indices) DOPPLER_TRY(program.reshape(context, i, shape, groups));
    return {};
  };
  if (measured.best != 0) {
    const GemvSite site = program.sites()[measured.indices.front()];
    DOPPLER_ASSIGN(const std::vector<float> expected, results_of(context, program, site));
    const Status taken = take(best.shape, best.head_groups);
    if (!taken && taken.error().code != ErrorCode::kUnsupported) return taken;
    bool right = taken.has_value();  // else the self-check refuses the kernel
    if (right) {
      DOPPLER_ASSIGN(const std::vector<float> results, results_of(context, program, site));
      right = agree(expected, results);
    }
    if (!right) {
      best.wrong = true;
      return take(site.shape, site.head_groups);
    }
  }
  best.chosen = true;
  context.tuned[best.key] = {best.shape, best.head_groups};
  return {};
}

}  // namespace

Result<std::vector<TuneRow>> tune(Context& context, DecodeProgram& program, double budget,
                                  std::size_t most_candidates) {
  std::map<std::string, std::vector<std::size_t>> same;  // sites by key
  for (std::size_t i = 0; i < program.sites().size(); ++i) same[program.sites()[i].key()].push_back(i);
  // Everything is compiled before anything is measured, so that the GPU's clock, which rises meanwhile, does
  // not fall in between.
  const std::vector<KernelSource> sources = candidate_sources(context, program, most_candidates);
  DOPPLER_TRY(prepare_awake(context, sources, program.body()));
  double measuring = 0;  // seconds; of the budget all kinds need a share
  std::vector<MeasuredKind> measured;
  for (const auto& [key, indices] : same) {
    // Sites that are not measured stay as they are, and are measured at the next load.
    if (measuring > budget) break;
    const auto start = Clock::now();
    DOPPLER_ASSIGN(MeasuredKind one, measure_kind(context, program, indices, most_candidates));
    measuring += seconds_since(start);
    if (!one.candidates.empty()) measured.push_back(std::move(one));
  }
  std::vector<TuneRow> rows;
  for (MeasuredKind& one : measured) {
    DOPPLER_TRY(take_best(context, program, one));
    std::ranges::move(one.candidates, std::back_inserter(rows));
  }
  return rows;
}

}  // namespace doppler::gpu
