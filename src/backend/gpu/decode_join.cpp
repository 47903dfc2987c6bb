#include "backend/gpu/decode_join.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "backend/gpu/shader_values.h"
#include "backend/gpu/tune.h"

namespace doppler::gpu {
namespace {

using Pair = DecodeProgram::Pair;

// Where Context::tuned has the shape of a pair's second product.
std::string second_key(const std::string& pair_key) {
  return pair_key + ", second";
}

// Threads of a workgroup that has the first product in that shape.
std::uint32_t threads_of(const GemvSite& first, const GemvShape& shape) {
  return shape.threads() * std::max(1u, first.sums_places ? first.places : 1u);
}

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

// Shapes of the first product for workgroups of so many threads, the one that looks best first. In it a
// thread has one unit, or two of a long row (H100: Gemma's down with q, k, v in 8 rows of 72 threads with 2
// units 7.3 us, 4 of 144 with 1 unit 7.7, 16 of 36 with 4 units 7.9, 32 of 18 with 8 units 9.6; Llama's
// output with gates and ups 14.1 with 1 unit, 14.6 with 2).
std::vector<GemvShape> first_shapes(const GemvSite& first, std::uint32_t threads) {
  constexpr std::uint32_t kLongRow = 64;
  const std::uint32_t wanted = first.units >= kLongRow ? 2 : 1;
  std::vector<GemvShape> shapes;
  for (const std::uint32_t rows : {32u, 16u, 8u, 4u}) {
    GemvShape shape{.rows = rows, .lanes = 1};
    shape.lanes = threads / threads_of(first, shape);
    // Lanes without a unit wait for the others, and half of them at most.
    if (shape.lanes == 0 || threads_of(first, shape) != threads || shape.lanes >= 2 * first.units) continue;
    shape.units = std::bit_ceil(ceil_div(first.units, shape.lanes));
    // Four units' loads are under way at most, so that there are registers for the second's.
    shape.at_once = std::min(shape.units, 4u);
    shapes.push_back(shape);
  }
  const auto distance = [&](const GemvShape& shape) {
    return std::max(shape.units, wanted) / std::min(shape.units, wanted);
  };
  std::ranges::stable_sort(shapes, {}, distance);
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

Joined joined_parts(const DecodeProgram& program, const ShapedPair& shaped, const Bound& cleared) {
  const Pair& pair = shaped.pair;
  const GemvSite& first = program.sites()[pair.first];
  const GemvShape& shape = shaped.first;
  GemvSite second = program.sites()[pair.second];
  second.shape = shaped.second;
  ShaderValues values;
  const auto add = [&](std::string_view module, const KernelSource& source, std::string_view flag) {
    for (const auto& [name, value] : source.values) values[fmt::format("{}.{}", module, name)] = value;
    values[fmt::format("{}.{}", module, flag)] = 1;
  };
  add("first", DecodeProgram::source_of(first, shape, 0), "HANDS_OVER");
  add("second", DecodeProgram::source_of(second, second.shape, 0), "TAKES_OVER");
  const std::uint32_t groups = ceil_div(first.rows, shape.rows);
  values["FIRST"] = groups;
  values["FIRST_ROWS"] = shape.rows;
  values["HANDED"] = first.rows;
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
  if (pair.keeps) {
    values["second.KEEPS"] = 1;
    buffers.push_back(bound_of(first, "out"));
    buffers.back().name = name_in_module("second", "branch_out");
  }
  buffers.push_back(pair.handed);
  buffers.push_back(cleared);
  buffers.back().name = "cleared";
  return {{"joined.wgsl", std::move(values)}, std::move(buffers), {groups + second.groups(), 1, 1}};
}

// Errors: kUnsupported where the device cannot bind it.
Result<FixedDispatch> joined(Context& context, const DecodeProgram& program, const ShapedPair& pair,
                             const Bound& cleared) {
  const Joined parts = joined_parts(program, pair, cleared);
  DOPPLER_ASSIGN(auto kernel, context.kernels.get(parts.source.file, parts.source.values));
  DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(*context.device, std::move(kernel), parts.buffers));
  return FixedDispatch{std::move(bound), parts.groups};
}

// What pairs hand over, one after the other as a token runs them: pairs with one second lie in the same
// place.
class Places {
 public:
  explicit Places(std::span<const Pair> pairs) {
    for (const Pair& pair : pairs) places_[pair.second] = pair.handed;
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

// Workgroups from which on so many wait that what they ask for slows the others down.
constexpr std::uint32_t kManyWaiting = 64;

// Shapes of the second product that may be good for a pair. All its workgroups ask for the same values while
// they wait, so where they are many, half as many are better: with twice the rows, in as many lanes or in
// half as many of twice the units (H100: Gemma's output with gates and ups takes 10.6 us in 216 workgroups of
// 288 threads, 10.0 in 108 of 576 and 11.3 apart, Llama's 15.0 in 256 of 512 threads, 14.1 in 128 of
// 512, 15.2 apart). Where they are few, the first, whose workgroups have as many threads, must have enough
// (H200, gpt-oss's output and router: 14.5 us with 384 threads, 18.4 with 192, 17.1 apart), if need be lanes
// that are a power of two, as its units often are.
std::vector<GemvShape> second_shapes(const Limits& limits, const GemvSite& second) {
  constexpr std::uint32_t kFewest = 256, kEnough = 512, kMostRows = 64;
  const std::uint32_t most = std::min<std::uint32_t>(limits.workgroup_invocations, 1024);
  const auto with_rows = [&](GemvShape shape, std::uint32_t threads) {
    while (shape.threads() < threads && shape.threads() * 2 <= most && shape.rows * 2 <= kMostRows)
      shape.rows *= 2;
    return shape;
  };
  // The rows of gates and ups are whole blocks.
  const GemvShape own = second.gated ? second.shape : with_rows(second.shape, kFewest);
  std::vector<GemvShape> shapes = {own};
  if (ceil_div(second.rows, own.rows) <= kManyWaiting) {
    GemvShape even = second.shape;
    even.lanes = std::bit_ceil(even.lanes);
    even = with_rows(even, kEnough);
    if (!second.gated && even != own && even.threads() <= most) shapes.push_back(even);
    return shapes;
  }
  if (own.rows * 2 > kMostRows || (second.gated && second.rows % (own.rows * 2) != 0)) return shapes;
  GemvShape larger = own;
  larger.rows *= 2;
  GemvShape longer = larger;
  longer.units *= 2;
  longer.at_once = std::min(longer.units, 2u);
  longer.lanes = ceil_div(second.units, longer.units);
  shapes.clear();
  for (const GemvShape& shape : {larger, longer}) {
    if (shape.threads() <= most && shape.threads() % 8 == 0) shapes.push_back(shape);
  }
  return shapes;
}

// The shapes that are measured for a pair. Each is a kernel that the driver takes some 0.1 s for: where many
// wait (half as many by now), with one shape of the first; where few do it is the first that takes the time,
// so with all.
std::vector<ShapedPair> shapes_to_measure(const Limits& limits, const DecodeProgram& program,
                                          const Pair& pair) {
  const GemvSite &first = program.sites()[pair.first], &second = program.sites()[pair.second];
  std::vector<ShapedPair> shaped;
  for (const GemvShape& second_shape : second_shapes(limits, second)) {
    std::vector<GemvShape> shapes = first_shapes(first, second_shape.threads());
    if (ceil_div(second.rows, second_shape.rows) > kManyWaiting / 2 && shapes.size() > 1) shapes.resize(1);
    for (const GemvShape& shape : shapes) shaped.push_back({pair, shape, second_shape});
  }
  return shaped;
}

// All pairs of one key as one dispatch each, the products in those shapes.
Result<std::vector<FixedDispatch>> all_joined(Context& context, const DecodeProgram& program,
                                              std::span<const Pair> pairs, const GemvShape& shape,
                                              const GemvShape& second_shape) {
  const Places places(pairs);
  std::vector<FixedDispatch> dispatches;
  for (const Pair& pair : pairs) {
    DOPPLER_ASSIGN(FixedDispatch made,
                   joined(context, program, {pair, shape, second_shape}, places.before(pair)));
    dispatches.push_back(std::move(made));
  }
  return dispatches;
}

// Seconds of measuring one candidate.
constexpr double kJoinSeconds = 0.006;

// Measures pairs of one key: apart, which is the first row, then joined in each of the shapes.
Result<std::vector<TuneRow>> measure(Context& context, const DecodeProgram& program,
                                     std::span<const Pair> pairs) {
  const GemvSite &first = program.sites()[pairs[0].first], &second = program.sites()[pairs[0].second];
  std::vector<std::vector<FixedDispatch>> lists(1);
  for (const Pair& pair : pairs) {
    lists[0].push_back(program.body()[program.sites()[pair.first].index]);
    lists[0].push_back(program.body()[program.sites()[pair.second].index]);
  }
  const std::uint64_t bytes = first.bytes + second.bytes;
  std::vector<TuneRow> rows = {{.key = program.key_of(pairs[0]), .bytes = bytes}};
  for (const ShapedPair& each : shapes_to_measure(context.device->limits(), program, pairs[0])) {
    auto made = all_joined(context, program, pairs, each.first, each.second);
    if (!made && made.error().code != ErrorCode::kUnsupported)
      return std::unexpected(std::move(made).error());
    if (!made) continue;
    rows.push_back({.key = rows[0].key, .shape = each.first, .second = each.second, .bytes = bytes});
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
std::vector<KernelSource> sources_of(const Limits& limits, const DecodeProgram& program,
                                     const Family& family) {
  std::vector<KernelSource> sources;
  for (const auto& [key, pairs] : family) {
    const Places places(pairs);
    for (const Pair& pair : pairs) {
      for (const ShapedPair& each : shapes_to_measure(limits, program, pair))
        sources.push_back(joined_parts(program, each, places.before(pair)).source);
    }
  }
  return sources;
}

// Measures all of them, and keeps in Context::tuned whether they are joined, and in which shapes.
Result<std::vector<TuneRow>> choose(Context& context, const DecodeProgram& program, const Family& family) {
  const Limits& limits = context.device->limits();
  DOPPLER_TRY(prepare_awake(context, sources_of(limits, program, family), program.body()));
  std::vector<TuneRow> rows;
  std::vector<std::size_t> apart;  // rows of each key, behind which lie those of its shapes
  double seconds_apart = 0;
  for (const auto& [key, pairs] : family) {
    DOPPLER_ASSIGN(const std::vector<TuneRow> measured, measure(context, program, pairs));
    apart.push_back(rows.size());
    seconds_apart += measured[0].seconds;
    rows.insert(rows.end(), measured.begin(), measured.end());
  }
  // The shape of the second that is best for all keys together; a gain of less than two percent is noise.
  constexpr double kGain = 0.98;
  double least = kGain * seconds_apart;
  std::vector<std::size_t> best;
  for (const GemvShape& second : second_shapes(limits, program.sites()[family.begin()->second[0].second])) {
    std::vector<std::size_t> fastest;
    double seconds = 0;
    for (std::size_t k = 0; k < apart.size(); ++k) {
      const std::size_t end = k + 1 < apart.size() ? apart[k + 1] : rows.size();
      std::size_t found = end;
      for (std::size_t i = apart[k] + 1; i < end; ++i) {
        if (rows[i].second == second && (found == end || rows[i].seconds < rows[found].seconds)) found = i;
      }
      if (found == end) break;
      fastest.push_back(found);
      seconds += rows[found].seconds;
    }
    if (fastest.size() < apart.size() || seconds >= least) continue;
    least = seconds;
    best = std::move(fastest);
  }
  const bool joins = !best.empty();
  for (const std::size_t i : joins ? best : apart) {
    TuneRow& row = rows[i];
    row.chosen = true;
    const Pair& pair = family.at(row.key)[0];
    context.tuned[row.key] = {joins ? row.shape : program.sites()[pair.first].shape, joins ? 1u : 0u};
    context.tuned[second_key(row.key)] = {joins ? row.second : program.sites()[pair.second].shape, 0};
  }
  return rows;
}

}  // namespace

Status join_pairs(Context& context, DecodeProgram& program, std::span<const ShapedPair> wanted) {
  std::vector<ShapedPair> shaped;
  std::vector<Pair> pairs;
  for (const ShapedPair& each : wanted) {
    const auto same_second = [&](const Pair& other) { return other.second == each.pair.second; };
    if (std::ranges::count_if(wanted, same_second, &ShapedPair::pair) !=
        std::ranges::count_if(program.pairs(), same_second))
      continue;
    shaped.push_back(each);
    pairs.push_back(each.pair);
  }
  const Places places(pairs);
  if (!places.enough()) return {};
  for (const ShapedPair& each : shaped) {
    DOPPLER_ASSIGN(FixedDispatch made, joined(context, program, each, places.before(each.pair)));
    program.join(each.pair, std::move(made));
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
    const GemvSite& second = program.sites()[pair.second];
    if (are_apart(program, pair)) families[second.key()][program.key_of(pair)].push_back(pair);
  }
  std::vector<ShapedPair> taken;
  for (auto& [second, family] : families) {
    std::erase_if(family, [](const auto& each) { return each.second.size() < 2; });
    const auto is_known = [&](const auto& each) {
      return context.tuned.contains(each.first) && context.tuned.contains(second_key(each.first));
    };
    if (family.empty()) continue;
    if (!std::ranges::all_of(family, is_known)) {
      if (!measures) continue;
      DOPPLER_ASSIGN(const std::vector<TuneRow> measured, choose(context, program, family));
      rows.insert(rows.end(), measured.begin(), measured.end());
    }
    const auto is_joined = [&](const auto& each) {
      const GemvSite& first = program.sites()[each.second[0].first];
      const TunedShape &shape = context.tuned[each.first],
                       &second_shape = context.tuned[second_key(each.first)];
      return shape.head_groups != 0 && threads_of(first, shape.shape) == second_shape.shape.threads();
    };
    if (!std::ranges::all_of(family, is_joined)) continue;
    for (const auto& [key, pairs] : family) {
      for (const Pair& pair : pairs)
        taken.push_back({pair, context.tuned[key].shape, context.tuned[second_key(key)].shape});
    }
  }
  DOPPLER_TRY(join_pairs(context, program, taken));
  return rows;
}

std::vector<ShapedPair> pairs_to_join(const Context& context, const DecodeProgram& program) {
  std::vector<ShapedPair> pairs;
  for (const Pair& pair : program.pairs()) {
    if (!are_apart(program, pair)) continue;
    const std::vector<ShapedPair> shaped = shapes_to_measure(context.device->limits(), program, pair);
    if (!shaped.empty()) pairs.push_back(shaped.back());
  }
  return pairs;
}

std::size_t forget_joined(Context& context, const DecodeProgram& program) {
  std::size_t forgotten = 0;
  for (const Pair& pair : program.pairs()) {
    const std::string key = program.key_of(pair);
    forgotten += context.tuned.erase(key) + context.tuned.erase(second_key(key));
  }
  return forgotten;
}

}  // namespace doppler::gpu
