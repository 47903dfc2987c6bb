#include "backend/gpu/decode_join.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/gpu/shader_values.h"
#include "backend/gpu/tune.h"

namespace doppler::gpu {
namespace {

using Pair = DecodeProgram::Pair;

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

// Threads that have a row of the first product together, R of them: all that the second's workgroups have.
std::vector<GemvShape> first_shapes(const GemvSite& first, std::uint32_t threads) {
  std::vector<GemvShape> shapes;
  for (const std::uint32_t rows : {4u, 8u, 16u, 32u}) {
    const std::uint32_t lanes = threads / rows / std::max(1u, first.sums_places ? first.places : 1u);
    const bool fits = lanes > 0 && lanes * rows * (first.sums_places ? first.places : 1u) == threads;
    // Lanes without a unit wait for the others, and half of them at most.
    if (!fits || lanes >= 2 * first.units) continue;
    GemvShape shape{.rows = rows, .lanes = lanes, .units = ceil_div(first.units, lanes)};
    // Four units' loads are under way at most, so that there are registers for the second's.
    for (shape.at_once = std::min(shape.units, 4u); shape.units % shape.at_once != 0;) --shape.at_once;
    shapes.push_back(shape);
  }
  return shapes;
}

// Whether neither writes what the other reads, but for what is handed over.
bool are_apart(const DecodeProgram& program, const Pair& pair) {
  static constexpr std::string_view kWritten[] = {
      "out",     "out8",     "outs",     "carried",   "gate_out",   "up_out",       "act_out",
      "normed8", "post_out", "attn_out", "parts_out", "normed_out", "normed_scales"};
  const auto writes = [](const Bound& bound) {
    return std::ranges::find(kWritten, bound.name) != std::end(kWritten);
  };
  for (const Bound& a : program.sites()[pair.first].buffers) {
    for (const Bound& b : program.sites()[pair.second].buffers) {
      const bool handed = a.name == "out" && b.name == "branch";
      if (a.buffer.raw() == b.buffer.raw() && !handed && (writes(a) || writes(b))) return false;
    }
  }
  return true;
}

// A pair as one dispatch: its kernel, what is bound, and its workgroups.
struct Joined {
  KernelSource source;
  std::vector<Bound> buffers;
  Workgroups groups;
};

Joined joined_parts(const GemvSite& first, const GemvShape& shape, const GemvSite& second,
                    const Bound& cleared) {
  ShaderValues values;
  const auto add = [&](std::string_view module, const KernelSource& source, std::string_view flag) {
    for (const auto& [name, value] : source.values) values[fmt::format("{}.{}", module, name)] = value;
    values[fmt::format("{}.{}", module, flag)] = 1;
  };
  add("first", DecodeProgram::source_of(first, shape, 0), "HANDS_OVER");
  add("second", DecodeProgram::source_of(second, second.shape, 0), "TAKES_OVER");
  const std::uint32_t groups = ceil_div(first.rows, shape.rows);
  values["FIRST"] = groups;
  values["FIRST_SUMS"] = first.sums_places ? 1 : 0;
  values["THREADS"] = second.shape.threads();
  values["TRIES"] = 20000;  // about a microsecond each: far longer than a product takes
  values["WORDS"] = static_cast<std::int64_t>(cleared.bytes / 4);
  std::vector<Bound> buffers;
  for (const Bound& bound : first.buffers) {
    if (bound.name == "out") continue;
    buffers.push_back(bound);
    buffers.back().name = name_in_module("first", bound.name);
  }
  for (const Bound& bound : second.buffers) {
    if (bound.name == "branch") continue;
    buffers.push_back(bound);
    buffers.back().name = name_in_module("second", bound.name);
  }
  buffers.push_back(bound_of(first, "out"));
  buffers.back().name = "handed";
  buffers.push_back(cleared);
  buffers.back().name = "cleared";
  return {{"joined.wgsl", std::move(values)}, std::move(buffers), {groups + second.groups(), 1, 1}};
}

// Errors: kUnsupported where the device cannot bind it.
Result<FixedDispatch> joined(Context& context, const GemvSite& first, const GemvShape& shape,
                             const GemvSite& second, const Bound& cleared) {
  const Joined parts = joined_parts(first, shape, second, cleared);
  DOPPLER_ASSIGN(auto kernel, context.kernels.get(parts.source.file, parts.source.values));
  DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(*context.device, std::move(kernel), parts.buffers));
  return FixedDispatch{std::move(bound), parts.groups};
}

// What pairs hand over, one after the other as a token runs them: pairs with one second lie in the same
// place.
class Places {
 public:
  Places(const DecodeProgram& program, std::span<const Pair> pairs) {
    for (const Pair& pair : pairs) places_[pair.second] = bound_of(program.sites()[pair.first], "out");
  }
  // There must be others than the own, which is cleared while they are used.
  bool enough() const { return places_.size() > 1; }
  const Bound& before(const Pair& pair) const {
    const auto own = places_.find(pair.second);
    return own == places_.begin() ? places_.rbegin()->second : std::prev(own)->second;
  }

 private:
  std::map<std::size_t, Bound> places_;  // by the second's number, which grows along a token
};

// The second in a shape of enough threads for the first, whose workgroups have as many (H200, gpt-oss's
// output and router: 14.5 us with 384 threads, 18.4 with 192, 17.1 apart).
GemvShape widened(const GemvSite& second) {
  constexpr std::uint32_t kFewest = 256, kMost = 512, kMostRows = 64;
  GemvShape shape = second.shape;
  if (second.gated) return shape;  // whose rows are whole blocks
  while (shape.threads() < kFewest && shape.threads() * 2 <= kMost && shape.rows * 2 <= kMostRows)
    shape.rows *= 2;
  return shape;
}

// All pairs of one key as one dispatch each, the products in those shapes.
Result<std::vector<FixedDispatch>> all_joined(Context& context, const DecodeProgram& program,
                                              std::span<const Pair> pairs, const GemvShape& shape,
                                              const GemvShape& second_shape) {
  const Places places(program, pairs);
  std::vector<FixedDispatch> dispatches;
  for (const Pair& pair : pairs) {
    GemvSite second = program.sites()[pair.second];
    second.shape = second_shape;
    DOPPLER_ASSIGN(FixedDispatch made,
                   joined(context, program.sites()[pair.first], shape, second, places.before(pair)));
    dispatches.push_back(std::move(made));
  }
  return dispatches;
}

// Seconds of measuring one candidate.
constexpr double kJoinSeconds = 0.006;

// Measures pairs of one key: apart, which is the first row, then joined with each shape of the first.
Result<std::vector<TuneRow>> measure(Context& context, const DecodeProgram& program,
                                     std::span<const Pair> pairs) {
  const GemvSite &first = program.sites()[pairs[0].first], &second = program.sites()[pairs[0].second];
  std::vector<std::vector<FixedDispatch>> lists(1);
  for (const Pair& pair : pairs) {
    lists[0].push_back(program.body()[program.sites()[pair.first].index]);
    lists[0].push_back(program.body()[program.sites()[pair.second].index]);
  }
  const std::uint64_t bytes = first.bytes + second.bytes;
  std::vector<TuneRow> rows = {{program.key_of(pairs[0]), {}, 0, 0, bytes, false}};
  const GemvShape wide = widened(second);
  for (const GemvShape& shape : first_shapes(first, wide.threads())) {
    auto made = all_joined(context, program, pairs, shape, wide);
    if (!made && made.error().code != ErrorCode::kUnsupported)
      return std::unexpected(std::move(made).error());
    if (!made) continue;
    rows.push_back({rows[0].key, shape, 1, 0, bytes, false});
    lists.push_back(std::move(*made));
  }
  DOPPLER_ASSIGN(const std::vector<double> seconds, time_awake(context, lists, kJoinSeconds));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].seconds = seconds[i] * (i == 0 ? 2 : 1);  // of two dispatches
  return rows;
}

// Pairs whose seconds are of one kind and size, by the key of the pair: those of one second are joined
// together or not at all.
using Family = std::map<std::string, std::vector<Pair>>;

// The kernels that measure() needs.
std::vector<KernelSource> sources_of(const DecodeProgram& program, const Family& family) {
  std::vector<KernelSource> sources;
  for (const auto& [key, pairs] : family) {
    const Places places(program, pairs);
    for (const Pair& pair : pairs) {
      const GemvSite& first = program.sites()[pair.first];
      GemvSite second = program.sites()[pair.second];
      second.shape = widened(second);
      for (const GemvShape& shape : first_shapes(first, second.shape.threads()))
        sources.push_back(joined_parts(first, shape, second, places.before(pair)).source);
    }
  }
  return sources;
}

// Measures all of them, and keeps in Context::tuned whether they are joined, and in which shapes.
Result<std::vector<TuneRow>> choose(Context& context, const DecodeProgram& program, const Family& family) {
  std::vector<TuneRow> rows;
  std::vector<std::size_t> apart, best;  // rows of each key
  double seconds_apart = 0, seconds_joined = 0;
  DOPPLER_TRY(prepare_awake(context, sources_of(program, family), program.body()));
  for (const auto& [key, pairs] : family) {
    DOPPLER_ASSIGN(const std::vector<TuneRow> measured, measure(context, program, pairs));
    apart.push_back(rows.size());
    seconds_apart += measured[0].seconds;
    const auto fastest = std::min_element(measured.begin() + 1, measured.end(),
                                          [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    const bool can = fastest != measured.end();
    best.push_back(rows.size() + static_cast<std::size_t>(can ? fastest - measured.begin() : 0));
    seconds_joined += can ? fastest->seconds : 1;  // far longer than any
    rows.insert(rows.end(), measured.begin(), measured.end());
  }
  constexpr double kGain = 0.98;  // less is noise
  const bool joins = seconds_joined < kGain * seconds_apart;
  for (const std::size_t row : joins ? best : apart) rows[row].chosen = true;
  for (const TuneRow& row : rows) {
    const GemvShape& own = program.sites()[family.at(row.key)[0].first].shape;
    if (row.chosen) context.tuned[row.key] = {joins ? row.shape : own, joins ? 1u : 0u};
  }
  if (joins) {
    const GemvSite& second = program.sites()[family.begin()->second[0].second];
    context.tuned[second.key()] = {widened(second), 0};
  }
  return rows;
}

}  // namespace

Status join_pairs(Context& context, DecodeProgram& program, std::span<const Pair> wanted) {
  std::vector<Pair> pairs;
  for (const Pair& pair : wanted) {
    const auto same_second = [&](const Pair& other) { return other.second == pair.second; };
    if (std::ranges::count_if(wanted, same_second) == std::ranges::count_if(program.pairs(), same_second))
      pairs.push_back(pair);
  }
  const Places places(program, pairs);
  if (!places.enough()) return {};
  for (const Pair& pair : pairs) {
    const GemvSite &first = program.sites()[pair.first], &second = program.sites()[pair.second];
    DOPPLER_ASSIGN(FixedDispatch made, joined(context, first, first.shape, second, places.before(pair)));
    program.join(pair, std::move(made));
  }
  return program.clear_handed(*context.device);
}

bool can_join(const Device& device) {
  // Sorensen et al., "Specifying and testing GPU workgroup progress models" (2021): workgroups that have
  // begun go on, and begin in their order, on GPUs of these; not so on Apple's and Arm's.
  constexpr std::uint32_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;
  const std::uint32_t vendor = device.adapter().vendor_id;
  return !device.adapter().software() && !device.options().poison &&
         (vendor == kNvidia || vendor == kAmd || vendor == kIntel);
}

Result<std::vector<TuneRow>> join_products(Context& context, DecodeProgram& program, bool measures) {
  std::vector<TuneRow> rows;
  if (!can_join(*context.device)) return rows;
  std::map<std::string, Family> families;  // by the second's key
  for (const Pair& pair : program.pairs()) {
    // Many that wait cost more than a launch (H200: gates and ups of Gemma in 216 workgroups 16.0 us
    // joined, 12.5 apart; a router in 8 the other way round), so only few are worth measuring.
    constexpr std::uint32_t kMostWaiting = 64;
    const GemvSite& second = program.sites()[pair.second];
    if (second.groups() <= kMostWaiting && are_apart(program, pair))
      families[second.key()][program.key_of(pair)].push_back(pair);
  }
  std::vector<Pair> taken;
  for (auto& [second, family] : families) {
    std::erase_if(family, [](const auto& each) { return each.second.size() < 2; });
    const auto is_known = [&](const auto& each) { return context.tuned.contains(each.first); };
    if (family.empty()) continue;
    if (!std::ranges::all_of(family, is_known)) {
      if (!measures) continue;
      DOPPLER_ASSIGN(const std::vector<TuneRow> measured, choose(context, program, family));
      rows.insert(rows.end(), measured.begin(), measured.end());
    }
    const auto is_joined = [&](const auto& each) { return context.tuned[each.first].head_groups != 0; };
    if (!std::ranges::all_of(family, is_joined)) continue;
    // Kernels of the pair by themselves take these shapes, too: whether two are joined changes no bit.
    for (const auto& [key, pairs] : family) {
      const GemvShape shape = context.tuned[key].shape;
      const auto wide = context.tuned.find(second);
      for (const Pair& pair : pairs) {
        DOPPLER_TRY(program.reshape(context, pair.first, shape, 0));
        // Only after measuring: else it was made in that shape, and two pairs may have the same second.
        if (wide != context.tuned.end() && program.sites()[pair.second].shape != wide->second.shape)
          DOPPLER_TRY(program.reshape(context, pair.second, wide->second.shape, 0));
      }
      context.tuned[program.sites()[pairs[0].first].key()] = {shape, 0};
      taken.insert(taken.end(), pairs.begin(), pairs.end());
    }
  }
  DOPPLER_TRY(join_pairs(context, program, taken));
  return rows;
}

Result<std::vector<Pair>> shape_for_joining(Context& context, DecodeProgram& program) {
  std::vector<Pair> pairs;
  for (const Pair& pair : program.pairs()) {
    const GemvSite &first = program.sites()[pair.first], &second = program.sites()[pair.second];
    const std::vector<GemvShape> shapes = first_shapes(first, second.shape.threads());
    if (shapes.empty() || !are_apart(program, pair)) continue;
    DOPPLER_TRY(program.reshape(context, pair.first, shapes[0], 0));
    pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace doppler::gpu
