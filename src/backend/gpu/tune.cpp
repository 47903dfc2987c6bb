#include "backend/gpu/tune.h"

#include <algorithm>
#include <chrono>
#include <set>

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
      if (shape.threads() < 64 || shape.threads() > most || shape.threads() % subgroup != 0) continue;
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

Result<std::vector<TuneRow>> tune(Context& context, DecodeProgram& program, double budget) {
  const auto start = Clock::now();
  std::vector<TuneRow> rows;
  std::set<std::string> done;
  for (std::size_t first = 0; first < program.sites().size(); ++first) {
    const GemvSite site = program.sites()[first];
    const std::string key = site.key();
    if (!done.insert(key).second) continue;
    std::vector<std::size_t> same;
    for (std::size_t i = first; i < program.sites().size(); ++i) {
      if (program.sites()[i].key() == key) same.push_back(i);
    }
    TuneRow best;
    std::size_t best_row = rows.size();
    for (const TunedShape& candidate : candidates_of(*context.device, site)) {
      if (seconds_since(start) > budget) break;
      std::vector<FixedDispatch> dispatches;
      for (const std::size_t i : same) {
        auto made =
            DecodeProgram::shaped(context, program.sites()[i], candidate.shape, candidate.head_groups);
        if (!made) break;  // a shape that this device does not take
        dispatches.push_back(std::move(*made));
      }
      if (dispatches.size() != same.size()) continue;
      const auto rounds = static_cast<std::uint32_t>(std::max<std::size_t>(3, 40 / same.size()));
      DOPPLER_ASSIGN(const double seconds, time_dispatches(*context.device, dispatches, rounds));
      rows.push_back({key, candidate.shape, candidate.head_groups, seconds, site.bytes, false});
      // A gain below two percent is noise.
      if (best.seconds == 0 || seconds < best.seconds * 0.98) {
        best = rows.back();
        best_row = rows.size() - 1;
      }
    }
    if (best.seconds == 0) continue;
    rows[best_row].chosen = true;
    context.tuned[key] = {best.shape, best.head_groups};
    for (const std::size_t i : same) DOPPLER_TRY(program.reshape(context, i, best.shape, best.head_groups));
  }
  return rows;
}

}  // namespace doppler::gpu
