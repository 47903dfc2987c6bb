#include "backend/gpu/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

namespace doppler::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Shapes worth a try: whole shares of the units, workgroups of some subgroups, 2 to 16 loads a thread.
std::vector<TunedShape> candidates_of(const Device& device, const GemvSite& site) {
  std::vector<TunedShape> candidates = {{site.shape, site.head_groups}};
  const std::uint32_t most = std::min<std::uint32_t>(device.limits().workgroup_invocations, 512);
  const std::uint32_t subgroup = device.features().subgroup_size;
  for (std::uint32_t units = 1; units <= site.units; ++units) {
    if (site.units % units != 0) continue;
    const std::uint32_t loads = units * site.format.pieces() * (site.gated ? 2 : 1);
    if (loads > 16 && units > 1) continue;
    for (std::uint32_t rows = site.quantises ? 32 : 4; rows <= 64; rows *= 2) {
      const GemvShape shape{.rows = rows, .lanes = site.units / units, .units = units};
      // Prologues reduce over whole subgroups.
      const std::uint32_t grain = site.kind == "down" ? 8 : subgroup;
      if (shape.threads() < 64 || shape.threads() > most || shape.threads() % grain != 0) continue;
      if (site.gated && site.rows % rows != 0) continue;
      if (site.head_groups == 0) {
        candidates.push_back({shape, 0});
        continue;
      }
      for (const std::uint32_t groups : {132u, 264u, 528u}) candidates.push_back({shape, groups});
    }
  }
  return candidates;
}

}  // namespace

Result<double> time_dispatches(Device& device, std::span<const FixedDispatch> dispatches,
                               std::uint32_t rounds) {
  const auto run = [&](std::uint32_t count) -> Result<double> {
    Recorder recorder(device);
    for (std::uint32_t i = 0; i < count; ++i) {
      for (const FixedDispatch& dispatch : dispatches) recorder.dispatch(dispatch.kernel, dispatch.groups);
    }
    const auto start = Clock::now();
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
    DOPPLER_TRY(device.wait(submission));
    return seconds_since(start);
  };
  // The difference of a long and a short run: what submitting and waiting cost is in both.
  DOPPLER_TRY(run(1));
  DOPPLER_ASSIGN(const double few, run(1));
  DOPPLER_ASSIGN(const double many, run(1 + rounds));
  return std::max(many - few, 0.0) / (static_cast<double>(rounds) * static_cast<double>(dispatches.size()));
}

namespace {

// The candidates of one kind of site, made for all its layers.
struct Trial {
  TuneRow row;
  std::vector<FixedDispatch> dispatches;
};

// A GPU at rest clocks low, and takes some milliseconds of work to come back.
Status wake(Device& device, std::span<const FixedDispatch> work, double seconds) {
  const auto start = Clock::now();
  while (seconds_since(start) < seconds) DOPPLER_TRY(time_dispatches(device, work, 2));
  return {};
}

}  // namespace

Result<std::vector<TuneRow>> tune(Context& context, DecodeProgram& program, double budget) {
  const auto start = Clock::now();
  // Everything is compiled before anything is measured, so that the GPU stays awake from then on.
  std::map<std::string, std::vector<Trial>> kinds;
  std::map<std::string, std::vector<std::size_t>> same;
  for (std::size_t i = 0; i < program.sites().size(); ++i) same[program.sites()[i].key()].push_back(i);
  for (const auto& [key, indices] : same) {
    const GemvSite& site = program.sites()[indices.front()];
    for (const TunedShape& candidate : candidates_of(*context.device, site)) {
      if (seconds_since(start) > budget * 0.6) break;
      Trial trial{.row = {key, candidate.shape, candidate.head_groups, 0, site.bytes, false},
                  .dispatches = {}};
      for (const std::size_t i : indices) {
        auto made =
            DecodeProgram::shaped(context, program.sites()[i], candidate.shape, candidate.head_groups);
        if (!made) break;  // a shape that this device does not take
        trial.dispatches.push_back(std::move(*made));
      }
      if (trial.dispatches.size() == indices.size()) kinds[key].push_back(std::move(trial));
    }
  }
  std::vector<TuneRow> rows;
  if (kinds.empty()) return rows;
  constexpr double kWake = 0.05;
  DOPPLER_TRY(wake(*context.device, kinds.begin()->second.front().dispatches, kWake));
  for (auto& [key, trials] : kinds) {
    for (Trial& trial : trials) trial.row.seconds = HUGE_VAL;
    for (int round = 0; round < 3; ++round) {
      for (Trial& trial : trials) {
        if (seconds_since(start) > budget) break;
        const auto rounds =
            static_cast<std::uint32_t>(std::max<std::size_t>(2, 40 / trial.dispatches.size()));
        DOPPLER_ASSIGN(const double seconds, time_dispatches(*context.device, trial.dispatches, rounds));
        trial.row.seconds = std::min(trial.row.seconds, seconds);
      }
    }
    // A gain below two percent is noise: the first is the one in use.
    Trial* best = &trials.front();
    for (Trial& trial : trials) {
      if (trial.row.seconds < best->row.seconds * 0.98) best = &trial;
    }
    best->row.chosen = true;
    for (const Trial& trial : trials) rows.push_back(trial.row);
    context.tuned[key] = {best->row.shape, best->row.head_groups};
    for (const std::size_t i : same[key])
      DOPPLER_TRY(program.reshape(context, i, best->row.shape, best->row.head_groups));
  }
  return rows;
}

}  // namespace doppler::gpu
