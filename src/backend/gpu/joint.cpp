#include "backend/gpu/joint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

using Pair = DecodeProgram::Pair;
using Beside = DecodeProgram::Beside;

// Names of bindings as #module makes them; a Bound refers to its name.
std::string_view name_in_module(std::string_view module, std::string_view name) {
  static system::Mutex mutex;
  static std::set<std::string> names;
  const system::Lock lock(mutex);
  return *names.insert(fmt::format("{}_{}", module, name)).first;
}

const Bound& bound_of(const GemvSite& site, std::string_view name) {
  return *std::ranges::find(site.buffers, name, &Bound::name);
}

// Whether neither writes what the other reads, but for the first's result, which the second knows as `taken`.
bool are_apart(const GemvSite& first, const GemvSite& second, std::string_view taken) {
  static constexpr std::string_view kWritten[] = {
      "out",     "out8",     "outs",     "carried",   "gate_out",   "up_out",       "act_out",
      "normed8", "post_out", "attn_out", "parts_out", "normed_out", "normed_scales"};
  const auto writes = [](const Bound& bound) {
    return std::ranges::find(kWritten, bound.name) != std::end(kWritten);
  };
  for (const Bound& a : first.buffers) {
    for (const Bound& b : second.buffers) {
      const bool handed = a.name == "out" && b.name == taken;
      if (a.buffer.raw() == b.buffer.raw() && !handed && (writes(a) || writes(b))) return false;
    }
  }
  return true;
}

// One dispatch for several, in those shapes.
struct Joined {
  KernelSource source;
  std::vector<Bound> buffers;
  Workgroups groups;
};

// Adds a kernel as a module: its values, and its bindings but for what is handed over.
void add_module(std::string_view module, const KernelSource& source, std::span<const Bound> bound,
                std::string_view handed, Joined& joined) {
  for (const auto& [name, value] : source.values)
    joined.source.values[fmt::format("{}.{}", module, name)] = value;
  for (const Bound& each : bound) {
    if (each.name == handed) continue;
    joined.buffers.push_back(each);
    joined.buffers.back().name = name_in_module(module, each.name);
  }
}

void add_first(const DecodeProgram& program, const Joint& joint, const Bound& cleared, Joined& joined) {
  const Pair& pair = *joint.pair;
  const GemvSite& first = program.sites()[pair.first];
  ShaderValues& values = joined.source.values;
  add_module("first", DecodeProgram::source_of(first, joint.first, 0), first.buffers, "out", joined);
  values["first.HANDS_OVER"] = 1;
  values["second.TAKES_OVER"] = 1;
  values["second.AHEAD"] = loads_ahead(program.sites()[joint.product], joint.second) ? 1 : 0;
  values["TRIES"] = 20000;  // about a microsecond each: far longer than a product takes
  values["FIRST"] = ceil_div(first.rows, joint.first.rows);
  values["FIRST_ROWS"] = joint.first.rows;
  values["HANDED"] = first.rows;
  values["FIRST_SUMS"] = first.sums_places ? 1 : 0;
  values["WORDS"] = static_cast<std::int64_t>(cleared.bytes / 4);
  if (pair.keeps || pair.others > (joint.beside ? 1u : 0u)) {
    values["second.KEEPS"] = 1;
    joined.buffers.push_back(bound_of(first, "out"));
    joined.buffers.back().name = name_in_module("second", "branch_out");
  }
  joined.buffers.push_back(pair.handed);
  joined.buffers.push_back(cleared);
  joined.buffers.back().name = "cleared";
  joined.groups.x += static_cast<std::uint32_t>(values["FIRST"]);
}

void add_beside(const DecodeProgram& program, const Joint& joint, Joined& joined) {
  const GemvSite &product = program.sites()[joint.product], &other = program.sites()[joint.beside->other];
  ShaderValues& values = joined.source.values;
  add_module("third", DecodeProgram::source_of(other, joint.third, 0), other.buffers,
             joint.pair ? "branch" : "", joined);
  if (joint.pair) {
    values["third.TAKES_OVER"] = 1;
    values["third.AHEAD"] = loads_ahead(other, joint.third) ? 1 : 0;
  }
  values["BESIDE"] = 1;
  values["SECOND"] = ceil_div(product.rows, joint.second.rows);
  joined.groups.x += ceil_div(other.rows, joint.third.rows);
}

Joined joined_parts(const DecodeProgram& program, const Joint& joint, const Places& places) {
  GemvSite second = program.sites()[joint.product];
  second.shape = joint.second;
  Joined joined{.source = {"joined.wgsl", {}}, .buffers = {}, .groups = {second.groups(), 1, 1}};
  ShaderValues& values = joined.source.values;
  values["FIRST"] = 0;
  values["BESIDE"] = 0;
  values["THREADS"] = joint.second.threads();
  if (joint.pair) add_first(program, joint, places.before(*joint.pair), joined);
  add_module("second", DecodeProgram::source_of(second, second.shape, 0), second.buffers,
             joint.pair ? "branch" : "", joined);
  if (joint.beside) add_beside(program, joint, joined);
  return joined;
}

}  // namespace

bool are_apart(const DecodeProgram& program, const Pair& pair) {
  return are_apart(program.sites()[pair.first], program.sites()[pair.second], "branch");
}

bool are_apart(const DecodeProgram& program, const Beside& beside) {
  // Both write to their columns of one row.
  return are_apart(program.sites()[beside.product], program.sites()[beside.other], "out");
}

bool loads_ahead(const GemvSite& site, const GemvShape& shape) {
  constexpr std::uint32_t kMostWords = 20;  // of a unit
  const std::uint32_t words = site.format.pieces() * 4 + site.format.scale_words();
  return shape.loaded() == 1 && shape.units > 1 && words * (site.gated ? 2 : 1) <= kMostWords;
}

std::uint32_t threads_of(const GemvSite& site, const GemvShape& shape) {
  return shape.threads() * std::max(1u, site.sums_places ? site.places : 1u);
}

Places::Places(std::span<const Joint> joints) {
  for (const Joint& joint : joints) {
    if (joint.pair) places_[joint.pair->second] = joint.pair->handed;
  }
}

const Bound& Places::before(const Pair& pair) const {
  const auto own = places_.find(pair.second);
  return own == places_.begin() ? places_.rbegin()->second : std::prev(own)->second;
}

KernelSource joined_source(const DecodeProgram& program, const Joint& joint, const Places& places) {
  return joined_parts(program, joint, places).source;
}

Result<FixedDispatch> joined_dispatch(Context& context, const DecodeProgram& program, const Joint& joint,
                                      const Places& places) {
  const Joined parts = joined_parts(program, joint, places);
  DOPPLER_ASSIGN(auto kernel, context.kernels.get(parts.source.file, parts.source.values));
  DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(*context.device, std::move(kernel), parts.buffers));
  return FixedDispatch{std::move(bound), parts.groups};
}

}  // namespace doppler::gpu
