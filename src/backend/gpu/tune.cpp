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

// Seconds of measuring one candidate: some runs through all layers of a 1B model. Candidates take turns, and
// each one's best counts: a clock that rises while they are measured must not decide.
constexpr double kSecondsEach = 0.006;
constexpr int kRounds = 3;

// The candidates of one kind of site, made for all its layers.
struct Trial {
  TuneRow row;
  std::vector<FixedDispatch> dispatches;
};

// A GPU at rest clocks low, and takes up to a second of work to come back: works until that gets no faster.
Status wake(Device& device, std::span<const FixedDispatch> work, double most_seconds) {
  constexpr double kPortion = 0.1;
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
  const auto start = Clock::now();
  std::vector<TuneRow> rows;
  bool awake = false;
  for (const auto& [key, indices] : same) {
    std::vector<Trial> trials;
    const GemvSite site = program.sites()[indices.front()];
    for (const TunedShape& candidate : candidates_of(*context.device, site, most_candidates)) {
      Trial trial{.row = {key, candidate.shape, candidate.head_groups, HUGE_VAL, site.bytes, false},
                  .dispatches = {}};
      for (const std::size_t i : indices) {
        auto made =
            DecodeProgram::shaped(context, program.sites()[i], candidate.shape, candidate.head_groups);
        if (!made) break;  // a shape that this device does not take
        trial.dispatches.push_back(std::move(*made));
      }
      if (trial.dispatches.size() == indices.size()) trials.push_back(std::move(trial));
    }
    if (trials.empty()) continue;
    if (!awake) DOPPLER_TRY(wake(*context.device, trials.front().dispatches, budget / 2));
    awake = true;
    for (int round = 0; round < kRounds; ++round) {
      for (Trial& trial : trials) {
        if (seconds_since(start) > budget) break;
        DOPPLER_ASSIGN(const double seconds,
                       time_each(*context.device, trial.dispatches, kSecondsEach / kRounds));
        trial.row.seconds = std::min(trial.row.seconds, seconds);
      }
    }
    // Sites that were not measured stay as they are, and are measured at the next load.
    if (!std::isfinite(trials.front().row.seconds)) continue;
    // A gain below two percent is noise: the first is the one in use.
    Trial* best = &trials.front();
    for (Trial& trial : trials) {
      if (trial.row.seconds < best->row.seconds * 0.98) best = &trial;
    }
    const auto take = [&](const GemvShape& shape, std::uint32_t groups) -> Status {
      for (const std::size_t i : indices) DOPPLER_TRY(program.reshape(context, i, shape, groups));
      return {};
    };
    DOPPLER_TRY(take(best->row.shape, best->row.head_groups));
    DOPPLER_ASSIGN(const std::vector<float> logits, logits_of(context, program));
    if (agree(expected, logits)) {
      best->row.chosen = true;
      context.tuned[key] = {best->row.shape, best->row.head_groups};
    } else {
      best->row.wrong = true;
      DOPPLER_TRY(take(site.shape, site.head_groups));
    }
    for (const Trial& trial : trials) rows.push_back(trial.row);
  }
  return rows;
}

}  // namespace doppler::gpu
