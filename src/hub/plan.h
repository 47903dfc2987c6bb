// PullPlan: which files of a repository to take, why, and whether this machine has room for them; made before
// the first byte.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "hub/api.h"
#include "hub/variant.h"

namespace doppler::hub {

// What this machine has to spare, in bytes; nothing where it does not say.
struct Machine {
  std::optional<std::uint64_t> memory, disk;
};

struct PullPlan {
  RepoInfo info;
  std::string revision;
  std::vector<Variant> variants;  // what the repository offers
  Variant chosen;
  std::string why;               // "the best of 12 types that fits the memory"
  std::uint64_t bytes_here = 0;  // of the chosen files, from earlier downloads
  Machine machine;

  std::uint64_t bytes_to_get() const { return chosen.bytes - bytes_here; }
  bool fits_memory() const;
  bool fits_disk() const;
};

// Memory that a model of so many bytes takes to run: itself, and the cache and activations of 4096 tokens,
// which are up to an eighth of it in models of 1 to 70 billion parameters.
std::uint64_t memory_to_run(std::uint64_t weight_bytes);

// `bytes_here` says of a file how many of its bytes the cache has already.
// Errors: kUsage for a pick that names several; kNotFound for one that names none, with what there is; those
// of no_variant().
Result<PullPlan> make_plan(RepoInfo info, std::string_view revision, std::string_view pick,
                           const Machine& machine,
                           const std::function<std::uint64_t(const RepoFile&)>& bytes_here);

// For people, lines of at most 80 columns; and for programs.
std::string describe(const PullPlan& plan);
Json plan_json(const PullPlan& plan);

}  // namespace doppler::hub
