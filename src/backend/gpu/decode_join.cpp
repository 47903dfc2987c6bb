#include "backend/gpu/decode_join.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

using Pair = DecodeProgram::Pair;
using Beside = DecodeProgram::Beside;

// Where Context::tuned has the shape of a pair's second product.
std::string second_key(const std::string& pair_key) {
  return pair_key + ", second";
}

constexpr std::uint32_t kMostRows = 64;  // of a workgroup
constexpr std::uint32_t kFewest = 256;   // threads of a workgroup in which several kernels share a dispatch

std::uint32_t most_threads(const Limits& limits) {
  return std::min<std::uint32_t>(limits.workgroup_invocations, 1024);
}

// Shapes of the first product for workgroups of so many threads, the one that looks best first: one that
// has about a workgroup for each processor, and few units a thread (H100, both products joined: Llama's down
// with q, k, v 9.3 us in 128 workgroups of 16 rows, 10.2 in 256; 8B's 26.8 in 128 of 32 rows, 29.7 in 256,
// 29.6 in 512; with half as many threads 30.5 in 128, 27.4 in 256, 28.4 in 512, 33.4 in 1,024).
std::vector<GemvShape> first_shapes(const GemvSite& first, std::uint32_t threads) {
  constexpr double kWorkgroups = 128;
  constexpr std::uint32_t kMostUnits = 8;
  // Loads of 16 bytes that a thread has under way at most, so that there are registers for the second's.
  constexpr std::uint32_t kLoads = 16;
  std::vector<GemvShape> shapes;
  for (const std::uint32_t rows : {32u, 16u, 8u, 4u}) {
    GemvShape shape{.rows = rows, .lanes = 1};
    shape.lanes = threads / threads_of(first, shape);
    // Lanes without a unit wait for the others, and half of them at most.
    if (shape.lanes == 0 || threads_of(first, shape) != threads || shape.lanes >= 2 * first.units) continue;
    shape.units = std::bit_ceil(ceil_div(first.units, shape.lanes));
    shape.at_once = std::min({shape.units, 4u, std::max(1u, kLoads / first.format.pieces())});
    shapes.push_back(shape);
  }
  const auto cost = [&](const GemvShape& shape) {
    const double workgroups = first.rows / static_cast<double>(shape.rows);
    const double many_units = std::max(1.0, shape.units / static_cast<double>(kMostUnits));
    return std::abs(std::log2(workgroups / kWorkgroups)) + 2 * std::log2(many_units);
  };
  std::ranges::stable_sort(shapes, {}, cost);
  return shapes;
}

// With more rows, as long as workgroups have fewer threads than that and may have more.
GemvShape with_rows(const Limits& limits, GemvShape shape, std::uint32_t threads) {
  const std::uint32_t most = most_threads(limits);
  while (shape.threads() < threads && shape.threads() * 2 <= most && shape.rows * 2 <= kMostRows)
    shape.rows *= 2;
  return shape;
}

// Workgroups from which on so many wait that what they ask for slows the others down.
constexpr std::uint32_t kManyWaiting = 64;

// A shape in which a thread loads one unit at a time, and has several, so that it may load ahead (joint.h).
GemvShape one_by_one(GemvShape shape) {
  shape.at_once = 1;
  if (shape.units == 1) {
    shape.units = 2;
    shape.lanes = ceil_div(shape.lanes, 2u);
  }
  return shape;
}

// Shapes of a product that waits in many workgroups: fewer with more rows may be better, since all ask for
// the same values. If a thread can load ahead, the two of the most threads (H100, joined and apart: Gemma's
// output with gates and ups 8.9 us in 108 workgroups of 576, 9.2 in 216 of 288, 11.2; Llama's 12.9 in 128 of
// 1,024, 12.7 in 256 of 512, 15.3; 8B's 34.3 in 224 of 1,024, 35.4 in 448 of 512, 38.5); else in as many
// lanes or in half as many of twice the units.
std::vector<GemvShape> shapes_of_many(const Limits& limits, const GemvSite& second, const GemvShape& own) {
  constexpr std::uint32_t kFewPieces = 2;  // of a unit, so that two of gate and up stay in registers
  const auto with_times_the_rows = [](GemvShape shape, std::uint32_t times) {
    shape.rows *= times;
    return shape;
  };
  const GemvShape single = one_by_one(own);
  const bool ahead = loads_ahead(second, single);
  std::vector<GemvShape> shapes;
  if (ahead) {
    for (const std::uint32_t times : {4u, 2u, 1u}) shapes.push_back(with_times_the_rows(single, times));
  } else {
    GemvShape larger = with_times_the_rows(own, 2);
    if (second.format.pieces() <= kFewPieces) larger.at_once = std::min(larger.units, 2u);
    GemvShape longer = larger;
    longer.units *= 2;
    longer.at_once = std::min(longer.units, 2u);
    longer.lanes = ceil_div(second.units, longer.units);
    shapes = {larger, longer, with_times_the_rows(own, 4)};
  }
  std::erase_if(shapes, [&](const GemvShape& shape) {
    return shape.rows > kMostRows || shape.threads() > most_threads(limits) || shape.threads() % 8 != 0 ||
           (second.gated && second.rows % shape.rows != 0);
  });
  if (ahead && shapes.size() > 2) shapes.resize(2);
  return shapes;
}

// A shape of which a thread takes few pieces at a time, where the format is one for that: in as many threads
// as there may be, each with a unit or two (H100, output with gates and ups of Llama 3.2 1B in BF16, joined
// and apart: 29.2 us in 256 workgroups of 1,024 threads, 29.5 in 512 of 512, 30.0 with two units each, 30.9
// in whole units, 32.8; one or four pieces are no better than two).
std::optional<GemvShape> streamed(const Limits& limits, const GemvSite& second) {
  constexpr std::uint32_t kRows = 32, kPieces = 2;
  GemvShape shape{.rows = kRows, .lanes = most_threads(limits) / kRows, .at_once = 1, .stream = kPieces};
  if (shape.lanes == 0 || !streams(second.format, shape) || (second.gated && second.rows % kRows != 0))
    return std::nullopt;
  shape.units = std::bit_ceil(ceil_div(second.units, shape.lanes));
  shape.lanes = ceil_div(second.units, shape.units);
  return shape;
}

// Shapes of the second product that may be good for a pair. Where those that wait are few, the first, whose
// workgroups have as many threads, must have enough (H200, gpt-oss's output and router: 14.5 us with 384
// threads, 18.4 with 192, 17.1 apart), if need be lanes that are a power of two, as its units often are.
std::vector<GemvShape> second_shapes(const Limits& limits, const GemvSite& second) {
  constexpr std::uint32_t kEnough = 512;
  // The rows of gates and ups are whole blocks.
  const GemvShape own = second.gated ? second.shape : with_rows(limits, second.shape, kFewest);
  if (ceil_div(second.rows, own.rows) > kManyWaiting) {
    std::vector<GemvShape> shapes = shapes_of_many(limits, second, own);
    if (shapes.empty()) shapes.push_back(own);
    if (const std::optional<GemvShape> shape = streamed(limits, second)) shapes.push_back(*shape);
    return shapes;
  }
  std::vector<GemvShape> shapes = {own};
  GemvShape even = second.shape;
  even.lanes = std::bit_ceil(even.lanes);
  even = with_rows(limits, even, kEnough);
  if (!second.gated && even != own && even.threads() <= most_threads(limits)) shapes.push_back(even);
  return shapes;
}

// The shapes that are measured for a pair. Each is a kernel that the driver takes some 0.1 s for: where many
// wait (half as many by now), with one shape of the first; where few do it is the first that takes the time,
// so with two (the best of all was among these for Gemma's, Llama's and gpt-oss's products).
std::vector<Joint> joints_to_measure(const Limits& limits, const DecodeProgram& program, const Pair& pair) {
  const GemvSite &first = program.sites()[pair.first], &second = program.sites()[pair.second];
  std::vector<Joint> joints;
  for (const GemvShape& second_shape : second_shapes(limits, second)) {
    std::vector<GemvShape> shapes = first_shapes(first, second_shape.threads());
    const std::size_t most = ceil_div(second.rows, second_shape.rows) > kManyWaiting / 2 ? 1 : 2;
    shapes.resize(std::min(shapes.size(), most));
    for (const GemvShape& shape : shapes)
      joints.push_back({.product = pair.second, .pair = pair, .first = shape, .second = second_shape});
  }
  return joints;
}

std::vector<Joint> in_shapes_of(const Joint& shaped, std::span<const Pair> pairs) {
  std::vector<Joint> joints(pairs.size(), shaped);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    joints[i].product = pairs[i].second;
    joints[i].pair = pairs[i];
  }
  return joints;
}

// --- products beside one another

using Joints = std::map<std::string, std::vector<Joint>>;  // by what Context::tuned knows them as

std::string beside_key(const DecodeProgram& program, const Joint& joint) {
  return program.key_of(*joint.beside) + (joint.pair ? ", pair" : "");
}

// What is in one dispatch with a product already, or the product by itself, if need be with more rows, so
// that the one beside it has its own in few workgroups.
Joint before(const Limits& limits, const DecodeProgram& program, std::span<const Joint> joints,
             std::size_t product) {
  const auto found = std::ranges::find(joints, product, &Joint::product);
  if (found != joints.end()) return *found;
  Joint joint{.product = product};
  joint.second = with_rows(limits, program.sites()[product].shape, kFewest);
  return joint;
}

// Products with the ones beside them. Of more than two formats two are together.
Joints with_besides(const Limits& limits, const DecodeProgram& program, std::span<const Joint> joints) {
  Joints found;
  std::set<std::size_t> taken;
  for (const Beside& beside : program.besides()) {
    if (!are_apart(program, beside) || taken.contains(beside.product)) continue;
    Joint joint = before(limits, program, joints, beside.product);
    const std::vector<GemvShape> shapes = first_shapes(program.sites()[beside.other], joint.second.threads());
    if (shapes.empty()) continue;
    joint.beside = beside;
    joint.third = shapes.front();
    taken.insert(beside.other);
    found[beside_key(program, joint)].push_back(joint);
  }
  return found;
}

// --- which pairs are faster as one dispatch

// One dispatch each, as if a token had no others.
Result<std::vector<FixedDispatch>> all_joined(Context& context, const DecodeProgram& program,
                                              std::span<const Joint> joints) {
  const Places places(joints);
  std::vector<FixedDispatch> dispatches;
  for (const Joint& joint : joints) {
    DOPPLER_ASSIGN(FixedDispatch made, joined_dispatch(context, program, joint, places));
    dispatches.push_back(std::move(made));
  }
  return dispatches;
}

// The kernels of all_joined().
void add_sources(const DecodeProgram& program, std::span<const Joint> joints,
                 std::vector<KernelSource>& sources) {
  const Places places(joints);
  for (const Joint& joint : joints) sources.push_back(joined_source(program, joint, places));
}

// Seconds of measuring one candidate.
constexpr double kJoinSeconds = 0.006;
// What is faster by less is noise.
constexpr double kGain = 0.985;

// Measures each row's list, and the head behind it: without that, joints would find in the cache
// what a token, which has read the head before, has to bring from memory (H100, Gemma 3 1B Q4_K_M: those that
// were fastest so made a token 1.3 % slower).
Status time_rows(Context& context, const DecodeProgram& program,
                 std::vector<std::vector<FixedDispatch>> lists, std::vector<TuneRow>& rows) {
  for (auto& list : lists) list.insert(list.end(), program.head().begin(), program.head().end());
  DOPPLER_ASSIGN(const std::vector<double> seconds, time_awake(context, lists, kJoinSeconds));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].seconds = seconds[i] * static_cast<double>(lists[i].size());
  return {};
}

// Measures pairs of one key: apart, which is the first row, then joined in each of the shapes.
Result<std::vector<TuneRow>> measure(Context& context, const DecodeProgram& program,
                                     std::span<const Pair> pairs) {
  const GemvSite &first = program.sites()[pairs[0].first], &second = program.sites()[pairs[0].second];
  const std::uint64_t bytes = first.bytes + second.bytes;
  std::vector<std::vector<FixedDispatch>> lists(1);
  for (const Pair& pair : pairs) {
    lists[0].push_back(program.body()[program.sites()[pair.first].index]);
    lists[0].push_back(program.body()[program.sites()[pair.second].index]);
  }
  std::vector<TuneRow> rows = {{.key = program.key_of(pairs[0]), .bytes = bytes}};
  for (const Joint& each : joints_to_measure(context.device->limits(), program, pairs[0])) {
    auto made = all_joined(context, program, in_shapes_of(each, pairs));
    if (!made && made.error().code != ErrorCode::kUnsupported)
      return std::unexpected(std::move(made).error());
    if (!made) continue;
    rows.push_back({.key = rows[0].key, .shape = each.first, .second = each.second, .bytes = bytes});
    lists.push_back(std::move(*made));
  }
  DOPPLER_TRY(time_rows(context, program, std::move(lists), rows));
  return rows;
}

// Pairs whose seconds are of one kind and size, by the key of the pair: those of one second are joined
// together or not at all.
using Family = std::map<std::string, std::vector<Pair>>;

// The kernels that measure() needs.
void add_sources(const Limits& limits, const DecodeProgram& program, const Family& family,
                 std::vector<KernelSource>& sources) {
  for (const auto& [key, pairs] : family) {
    for (const Joint& each : joints_to_measure(limits, program, pairs[0]))
      add_sources(program, in_shapes_of(each, pairs), sources);
  }
}

// Those of join_besides() where pairs of the family are joined in one of their shapes.
void add_besides(const Limits& limits, const DecodeProgram& program, const Family& family,
                 std::vector<KernelSource>& sources) {
  for (const auto& [key, pairs] : family) {
    for (const Joint& each : joints_to_measure(limits, program, pairs[0])) {
      for (auto& [name, together] : with_besides(limits, program, in_shapes_of(each, pairs))) {
        std::erase_if(together, [](const Joint& joint) { return !joint.pair; });
        if (!together.empty()) add_sources(program, together, sources);
      }
    }
  }
}

// Measures all of them, and keeps in Context::tuned whether they are joined, and in which shapes.
Result<std::vector<TuneRow>> choose(Context& context, const DecodeProgram& program, const Family& family) {
  const Limits& limits = context.device->limits();
  std::vector<TuneRow> rows;
  std::vector<std::size_t> apart;  // rows of each key, behind which lie those of its shapes
  double seconds_apart = 0;
  for (const auto& [key, pairs] : family) {
    DOPPLER_ASSIGN(const std::vector<TuneRow> measured, measure(context, program, pairs));
    apart.push_back(rows.size());
    seconds_apart += measured[0].seconds;
    rows.insert(rows.end(), measured.begin(), measured.end());
  }
  // The shape of the second that is best for all keys together.
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

// The pairs that are faster as one dispatch, in the shapes in which they are.
Result<std::vector<Joint>> join_pairs(Context& context, const DecodeProgram& program, bool measures,
                                      std::vector<TuneRow>& rows) {
  std::map<std::string, Family> families;  // by the second's key
  for (const Pair& pair : program.pairs()) {
    const GemvSite& second = program.sites()[pair.second];
    if (are_apart(program, pair)) families[second.key()][program.key_of(pair)].push_back(pair);
  }
  const auto is_known = [&](const auto& each) {
    return context.tuned.contains(each.first) && context.tuned.contains(second_key(each.first));
  };
  for (auto& [second, family] : families)
    std::erase_if(family, [](const auto& each) { return each.second.size() < 2; });
  const auto all_known = [&](const Family& family) { return std::ranges::all_of(family, is_known); };
  std::erase_if(families, [&](const auto& each) {
    return each.second.empty() || (!measures && !all_known(each.second));
  });
  const Limits& limits = context.device->limits();
  std::vector<KernelSource> sources;
  for (const auto& [second, family] : families) {
    if (!all_known(family)) add_sources(limits, program, family, sources);
  }
  // What is measured beside the pairs that will be joined is compiled with them, although few of it will be
  // needed, where most threads would else wait for the longest kernel: it takes as long again by itself.
  std::set<ShaderValues> kernels;
  for (const KernelSource& source : sources) kernels.insert(source.values);
  const bool threads_wait = kernels.size() <= context.pool.used();
  for (const auto& [second, family] : families) {
    if (threads_wait && !all_known(family)) add_besides(limits, program, family, sources);
  }
  if (!sources.empty()) DOPPLER_TRY(prepare_awake(context, sources, program.body()));
  std::vector<Joint> taken;
  for (const auto& [second, family] : families) {
    if (!all_known(family)) {
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
      for (const Pair& pair : pairs) {
        taken.push_back({.product = pair.second,
                         .pair = pair,
                         .first = context.tuned[key].shape,
                         .second = context.tuned[second_key(key)].shape});
      }
    }
  }
  return taken;
}

// --- which products are faster beside one another

// Measures whether products beside one another are faster in one dispatch, where what is before them is in
// one or is not, and keeps it in Context::tuned by that key.
Result<std::vector<TuneRow>> choose(Context& context, const DecodeProgram& program, const std::string& key,
                                    std::span<const Joint> joints) {
  const Places places(joints);
  std::vector<std::vector<FixedDispatch>> lists(1);
  for (Joint joint : joints) {
    const std::size_t other = program.sites()[joint.beside->other].index;
    lists[0].push_back(program.body()[program.sites()[joint.product].index]);
    joint.beside.reset();
    if (joint.pair) {
      DOPPLER_ASSIGN(lists[0].back(), joined_dispatch(context, program, joint, places));
    }
    lists[0].push_back(program.body()[other]);
  }
  std::vector<TuneRow> rows = {{.key = key}};
  auto made = all_joined(context, program, joints);
  if (!made && made.error().code != ErrorCode::kUnsupported) return std::unexpected(std::move(made).error());
  if (made) {
    rows.push_back({.key = key, .shape = joints[0].second, .second = joints[0].third});
    lists.push_back(std::move(*made));
  }
  DOPPLER_TRY(time_rows(context, program, std::move(lists), rows));
  const bool joins = made && rows[1].seconds < kGain * rows[0].seconds;
  rows[joins ? 1 : 0].chosen = true;
  context.tuned[key] = {joints[0].second, joins ? 1u : 0u};
  return rows;
}

void add_to(std::vector<Joint>& joints, const Joint& added) {
  const auto found = std::ranges::find(joints, added.product, &Joint::product);
  if (found != joints.end()) {
    *found = added;
  } else {
    joints.push_back(added);
  }
}

// Adds to the joints the products beside theirs, or makes them one, where that is faster.
Status join_besides(Context& context, const DecodeProgram& program, bool measures, std::vector<Joint>& joints,
                    std::vector<TuneRow>& rows) {
  Joints found = with_besides(context.device->limits(), program, joints);
  std::erase_if(found, [&](const auto& each) {
    return each.second.size() < 2 || (!measures && !context.tuned.contains(each.first));
  });
  std::vector<KernelSource> sources;
  for (const auto& [key, together] : found) {
    if (!context.tuned.contains(key)) add_sources(program, together, sources);
  }
  if (!sources.empty()) DOPPLER_TRY(prepare_awake(context, sources, program.body()));
  for (const auto& [key, together] : found) {
    if (!context.tuned.contains(key)) {
      DOPPLER_ASSIGN(const std::vector<TuneRow> measured, choose(context, program, key, together));
      rows.insert(rows.end(), measured.begin(), measured.end());
    }
    const TunedShape& tuned = context.tuned[key];
    for (const Joint& joint : together) {
      if (tuned.head_groups != 0 && tuned.shape == joint.second) add_to(joints, joint);
    }
  }
  return {};
}

}  // namespace

Status join(Context& context, DecodeProgram& program, std::span<const Joint> wanted) {
  std::vector<Joint> joints;
  for (const Joint& each : wanted) {
    const auto has_second = [&](const Pair& other) { return other.second == each.product; };
    const auto wants_second = [&](const Joint& other) { return other.pair && has_second(*other.pair); };
    if (each.pair &&
        std::ranges::count_if(wanted, wants_second) != std::ranges::count_if(program.pairs(), has_second))
      continue;
    joints.push_back(each);
  }
  if (!Places(joints).enough())
    std::erase_if(joints, [](const Joint& joint) { return joint.pair.has_value(); });
  const Places places(joints);
  for (const Joint& joint : joints) {
    DOPPLER_ASSIGN(FixedDispatch made, joined_dispatch(context, program, joint, places));
    program.join(joint.pair, joint.beside, std::move(made));
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

Result<std::vector<TuneRow>> join_kernels(Context& context, DecodeProgram& program, bool measures) {
  std::vector<TuneRow> rows;
  if (!can_join(*context.device)) return rows;
  DOPPLER_ASSIGN(std::vector<Joint> joints, join_pairs(context, program, measures, rows));
  DOPPLER_TRY(join_besides(context, program, measures, joints, rows));
  DOPPLER_TRY(join(context, program, joints));
  return rows;
}

std::vector<Joint> all_joints(const Context& context, const DecodeProgram& program) {
  std::vector<Joint> joints;
  for (const Pair& pair : program.pairs()) {
    if (!are_apart(program, pair)) continue;
    const std::vector<Joint> shaped = joints_to_measure(context.device->limits(), program, pair);
    if (!shaped.empty()) joints.push_back(shaped.back());
  }
  for (const auto& [key, found] : with_besides(context.device->limits(), program, joints)) {
    for (const Joint& joint : found) add_to(joints, joint);
  }
  return joints;
}

std::size_t forget_joined(Context& context, const DecodeProgram& program) {
  std::size_t forgotten = 0;
  for (const Pair& pair : program.pairs()) {
    const std::string key = program.key_of(pair);
    forgotten += context.tuned.erase(key) + context.tuned.erase(second_key(key));
  }
  for (const Beside& beside : program.besides()) {
    const std::string key = program.key_of(beside);
    forgotten += context.tuned.erase(key) + context.tuned.erase(key + ", pair");
  }
  return forgotten;
}

}  // namespace doppler::gpu
