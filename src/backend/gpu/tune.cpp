#include "backend/gpu/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "backend/gpu/timing.h"

namespace doppler::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The shape in use and those that look best besides. A head's workgroups: one or two for each of a large
// GPU's processors, and four.
std::vector<TunedShape> candidates_of(const Device& device, const GemvSite& site, std::size_t most) {
  std::vector<TunedShape> candidates = {{site.shape, site.head_groups}};
  const auto add = [&](const TunedShape& candidate) {
    if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end())
      candidates.push_back(candidate);
  };
  for (const GemvShape& shape : site.shapes(device, most)) {
    if (site.head_groups == 0) {
      add({shape, 0});
    } else {
      for (const std::uint32_t groups : {264u, 528u}) add({shape, groups});
    }
  }
  return candidates;
}

// Logits of a step at position 0 by the kernels of early positions, and then by those of late ones, if these
// are others; overwrites the cache there.
Result<std::vector<float>> logits_of(Context& context, const DecodeProgram& program) {
  const std::size_t vocab = context.plan.vocab_size;
  std::vector<float> logits;
  for (const std::uint64_t kernels_of : {std::uint64_t{0}, UINT64_MAX}) {
    if (kernels_of != 0 && !program.varies_by_position()) break;
    const std::vector<std::uint32_t> words = context.first_step();
    DOPPLER_TRY(context.device->write(context.step, 0, std::as_bytes(std::span(words))));
    Recorder recorder(*context.device);
    program.record_logits(recorder, kernels_of);
    DOPPLER_TRY(recorder.submit());
    DOPPLER_ASSIGN(const std::vector<std::byte> bytes, context.device->download(program.logits()));
    logits.resize(logits.size() + vocab);
    std::memcpy(logits.data() + logits.size() - vocab, bytes.data(), vocab * sizeof(float));
  }
  return logits;
}

// Shapes only order sums differently: results that differ by more than rounding come from a kernel that is
// wrong.
bool agree(std::span<const float> a, std::span<const float> b) {
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= 1e30)) return false;
    worst = std::max(worst, difference);
  }
  // An activation that falls on the other side of a step of its 8 bits moves a logit by about a hundredth.
  return worst <= 0.03 * std::max(largest, 1e-6);
}

// Seconds of measuring one candidate: some runs through all layers of a 1B model.
constexpr double kSecondsEach = 0.006;

// A GPU at rest clocks low, and takes up to a second of work to come back: works until that gets no faster.
Status wake(Device& device, std::span<const FixedDispatch> work, double most_seconds) {
  constexpr double kPortion = 0.05;
  const auto start = Clock::now();
  double before = HUGE_VAL;
  while (seconds_since(start) < most_seconds) {
    const auto portion = Clock::now();
    double least = HUGE_VAL;
    while (seconds_since(portion) < kPortion) {
      DOPPLER_ASSIGN(const double seconds, time_each(device, work, kSecondsEach));
      least = std::min(least, seconds);
    }
    if (least > before * 0.97) break;
    before = least;
  }
  return {};
}

}  // namespace

Result<std::vector<TuneRow>> tune(Context& context, DecodeProgram& program, double budget,
                                  std::size_t most_candidates) {
  std::map<std::string, std::vector<std::size_t>> same;  // sites by key
  for (std::size_t i = 0; i < program.sites().size(); ++i) same[program.sites()[i].key()].push_back(i);
  // Everything is compiled before anything is measured, so that the GPU's clock does not fall in between.
  std::vector<KernelSource> sources;
  for (const auto& [key, indices] : same) {
    for (const std::size_t i : indices) {
      for (const TunedShape& candidate : candidates_of(*context.device, program.sites()[i], most_candidates))
        sources.push_back(
            DecodeProgram::source_of(program.sites()[i], candidate.shape, candidate.head_groups));
    }
  }
  DOPPLER_TRY(context.kernels.prepare(sources, context.pool));
  DOPPLER_ASSIGN(const std::vector<float> expected, logits_of(context, program));
  double measuring =
      0;  // what checks and compiling take is not of the budget, which all kinds need a share of
  std::vector<TuneRow> rows;
  bool awake = false;
  for (const auto& [key, indices] : same) {
    // The candidates, each made for all layers.
    std::vector<TuneRow> candidates;
    std::vector<std::vector<FixedDispatch>> dispatches;
    const GemvSite site = program.sites()[indices.front()];
    for (const TunedShape& candidate : candidates_of(*context.device, site, most_candidates)) {
      std::vector<FixedDispatch> layers;
      for (const std::size_t i : indices) {
        auto made =
            DecodeProgram::shaped(context, program.sites()[i], candidate.shape, candidate.head_groups, false);
        if (!made) break;  // a shape that this device does not take
        layers.push_back(std::move(*made));
      }
      if (layers.size() != indices.size()) continue;
      candidates.push_back({key, candidate.shape, candidate.head_groups, HUGE_VAL, site.bytes, false});
      dispatches.push_back(std::move(layers));
    }
    // Sites that are not measured stay as they are, and are measured at the next load.
    if (candidates.empty() || measuring > budget) continue;
    const auto start = Clock::now();
    if (!awake) DOPPLER_TRY(wake(*context.device, dispatches.front(), budget / 2));
    awake = true;
    DOPPLER_ASSIGN(const std::vector<double> seconds,
                   time_in_turns(*context.device, dispatches, kSecondsEach));
    measuring += seconds_since(start);
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].seconds = seconds[i];
    // A gain below two percent is noise: the first is the one in use.
    TuneRow* best = &candidates.front();
    for (TuneRow& candidate : candidates) {
      if (candidate.seconds < best->seconds * 0.98) best = &candidate;
    }
    const auto take = [&](const GemvShape& shape, std::uint32_t groups) -> Status {
      for (const std::size_t i : indices) DOPPLER_TRY(program.reshape(context, i, shape, groups));
      return {};
    };
    Status taken = take(best->shape, best->head_groups);
    if (!taken && taken.error().code != ErrorCode::kUnsupported)
      return std::unexpected(std::move(taken).error());
    bool right = taken.has_value();  // else the self-check refuses the kernel
    if (right) {
      DOPPLER_ASSIGN(const std::vector<float> logits, logits_of(context, program));
      right = agree(expected, logits);
    }
    if (right) {
      best->chosen = true;
      context.tuned[key] = {best->shape, best->head_groups};
    } else {
      best->wrong = true;
      DOPPLER_TRY(take(site.shape, site.head_groups));
    }
    std::ranges::move(candidates, std::back_inserter(rows));
  }
  return rows;
}

}  // namespace doppler::gpu
