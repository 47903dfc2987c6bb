// Repairs of products whose rows belong to a sibling: a fused tensor of q, k and v, or of gate and up, that
// is cut in another order than it was written.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/text.h"
#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis::repairs {
namespace {

// The products that a file may fuse, in the usual order.
struct Part {
  std::size_t op;
  Stage stage;
  const TensorView* weight;
};

std::vector<Part> parts_of(const OpCase& c) {
  static const std::vector<Stage> kFused[] = {{Stage::kQProj, Stage::kKProj, Stage::kVProj},
                                              {Stage::kFfnGate, Stage::kFfnUp}};
  std::vector<Part> parts;
  for (const auto& stages : kFused) {
    if (std::ranges::find(stages, c.stage()) == stages.end()) continue;
    for (const Stage stage : stages) {
      const auto op = c.context().experiment.find(stage, c.layer());
      if (!op || c.plan().ops[*op].kind != OpKind::kMatmul) return {};
      parts.push_back({*op, stage, &c.context().weights[c.plan().ops[*op].weights[0]]});
      const TensorView& w = *parts.back().weight;
      if (w.shape.size() != 2 || w.cols() != c.setup().weights[0].cols() ||
          w.dtype != c.setup().weights[0].dtype)
        return {};
    }
  }
  return parts;
}

// A row of one of the parts.
struct Place {
  std::size_t part, row;
  bool operator==(const Place&) const = default;
};
using Order = std::vector<std::size_t>;  // of the parts

// All rows of a fused tensor that holds `groups` pieces of each part in turn.
std::vector<Place> fused_rows(const std::vector<Part>& parts, const Order& order, std::size_t groups) {
  std::vector<Place> places;
  for (std::size_t g = 0; g < groups; ++g) {
    for (const std::size_t p : order) {
      const std::size_t piece = parts[p].weight->shape[0] / groups;
      for (std::size_t r = 0; r < piece; ++r) places.push_back({p, g * piece + r});
    }
  }
  return places;
}

// A way to fuse; `read`: this is how the tensor was cut, and it is written in the plain order; else the
// reverse.
struct Fusing {
  Order order;
  std::size_t groups = 1;
  bool read = false;
};

// For each row of each part, where it lies now.
std::vector<std::vector<Place>> sources_of(const std::vector<Part>& parts, const Fusing& how) {
  Order plain(parts.size());
  std::iota(plain.begin(), plain.end(), std::size_t{0});
  const std::vector<Place> a = fused_rows(parts, how.order, how.groups), b = fused_rows(parts, plain, 1);
  const std::vector<Place>&written = how.read ? b : a, &cut = how.read ? a : b;
  std::vector<std::vector<Place>> sources(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) sources[p].resize(parts[p].weight->shape[0]);
  for (std::size_t i = 0; i < written.size(); ++i) sources[written[i].part][written[i].row] = cut[i];
  return sources;
}

std::vector<Fusing> all_ways(const OpCase& c, const std::vector<Part>& parts) {
  const AttentionSpec& a = c.context().spec.layers[static_cast<std::size_t>(c.layer())].attention;
  std::uint64_t common = 0;
  for (const Part& part : parts) common = std::gcd(common, part.weight->shape[0]);
  std::set<std::uint64_t> counts = {1, common, 2, 4, 8, 16, 32};  // plain, row by row, shards
  if (parts.size() == 3) counts.insert({a.kv_heads, a.heads});
  for (const Part& part : parts)
    std::erase_if(counts, [&](auto n) { return part.weight->shape[0] % n != 0; });
  std::vector<Fusing> ways;
  Order order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    for (const std::uint64_t groups : counts) {
      for (const bool read : {false, true}) {
        if (groups > 1 || (!std::ranges::is_sorted(order) && !read))
          ways.push_back({order, static_cast<std::size_t>(groups), read});
      }
    }
  } while (std::ranges::next_permutation(order).found);
  // The usual order first, and large pieces before small ones.
  std::ranges::stable_sort(
      ways, {}, [](const Fusing& way) { return std::pair(!std::ranges::is_sorted(way.order), way.groups); });
  return ways;
}

double ratio_of_sources(const WeightProbe& probe, const std::vector<Part>& parts,
                        const std::vector<Place>& rows) {
  return probe.ratio([&](std::uint64_t row, std::span<float> values) {
    const Place& from = rows[row];
    return decode_f32(*parts[from.part].weight, from.row * values.size(), values);
  });
}

// Whether the other parts agree, too.
bool explains_all(const OpCase& c, const std::vector<Part>& parts,
                  const std::vector<std::vector<Place>>& sources) {
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].stage == c.stage()) continue;
    auto recorded = c.context().experiment.recorded(parts[p].op);
    if (!recorded) continue;
    const auto there = OpCase::open(c.context(), parts[p].op, std::move(*recorded));
    if (!there || ratio_of_sources(WeightProbe(*there), parts, sources[p]) > 1) return false;
  }
  return true;
}

std::string describe_way(const OpCase& c, const std::vector<Part>& parts, const Fusing& how) {
  std::vector<std::string> names;
  for (const std::size_t p : how.order) {
    const std::string_view name = stage_name(parts[p].stage);
    names.push_back(std::string(name.starts_with("ffn_") ? name.substr(4) : name.substr(0, 1)));
  }
  const AttentionSpec& a = c.context().spec.layers[static_cast<std::size_t>(c.layer())].attention;
  const bool heads = parts.size() == 3;
  const bool rows = how.groups == parts[0].weight->shape[0];
  if (heads && how.groups == a.kv_heads) {
    // A key head belongs to several query heads.
    for (std::string& name : names)
      name = name == "q" && a.heads > a.kv_heads ? fmt::format("{} heads of q", a.heads / a.kv_heads)
                                                 : "one of " + name;
  }
  const std::string pieces = how.groups == 1                     ? "one after the other"
                             : heads && how.groups == a.kv_heads ? "for each key head in turn"
                             : heads && how.groups == a.heads    ? "for each head in turn"
                             : rows                              ? "row by row in turn"
                                    : fmt::format("in {} pieces in turn", how.groups);
  return fmt::format("{}, {}", join(names, ", "), pieces);
}

// Rows that match rows of the siblings, in whatever order: the share of those that were looked for, and in
// how many tensors they lie.
struct Matched {
  double share = 0;
  std::size_t tensors = 0;
};
Matched match_siblings(const OpCase& c, const WeightProbe& probe, const std::vector<Part>& parts) {
  std::size_t looked = 0, found = 0;
  std::vector<std::vector<float>> outputs;
  for (const Part& part : parts) {
    OpSetup other = c.setup();
    other.weights[0] = *part.weight;
    other.width = part.weight->rows();
    other.biases.clear();
    auto out = c.context().experiment.run(other);
    if (!out) return {};
    outputs.push_back(std::move(*out));
  }
  std::set<std::size_t> from;
  bool from_sibling = false;
  for (const std::size_t r : probe.sample()) {
    if (!std::ranges::binary_search(probe.bad(), r)) continue;
    ++looked;
    bool fits = false;
    for (std::size_t p = 0; p < parts.size() && !fits; ++p) {
      const std::size_t width = outputs[p].size() / c.tokens();
      for (std::size_t row = 0; row < width && !fits; ++row) {
        fits = true;
        for (std::size_t t = 0; t < c.tokens() && fits; ++t)
          fits = std::abs(outputs[p][t * width + row] - probe.target(t, r)) <= c.allowed_at(t, r);
        if (fits) from.insert(p), from_sibling |= parts[p].stage != c.stage();
      }
    }
    found += fits;
  }
  if (looked == 0 || !from_sibling) return {};
  return {static_cast<double>(found) / static_cast<double>(looked), from.size()};
}

}  // namespace

void weight_fused(OpCase& c) {
  if (c.explained() || c.layer() < 0) return;
  const std::vector<Part> parts = parts_of(c);
  if (parts.empty() || c.tokens() < 2) return;
  const WeightProbe probe(c);
  const auto own =
      static_cast<std::size_t>(std::ranges::find(parts, c.stage(), &Part::stage) - parts.begin());
  const Matched matched = match_siblings(c, probe, parts);
  if (matched.share < 0.9) return;
  Fusing plain{.order = Order(parts.size())};
  std::iota(plain.order.begin(), plain.order.end(), std::size_t{0});
  for (const Fusing& way : all_ways(c, parts)) {
    const auto sources = sources_of(parts, way);
    // Two tensors of one size that changed places are another cause.
    const bool swapped = std::ranges::all_of(sources[own], [&](const Place& from) {
      return from.part != own && from.row == static_cast<std::size_t>(&from - sources[own].data());
    });
    const bool inside = std::ranges::all_of(sources[own], [&](const Place& p) { return p.part == own; });
    if (swapped || inside) continue;
    const double ratio = ratio_of_sources(probe, parts, sources[own]);
    if (ratio > 1 || !explains_all(c, parts, sources)) continue;
    const std::string written = describe_way(c, parts, way);
    c.keep({"fused_split",
            way.read ? fmt::format("the rows of {} and its siblings are cut from {}, not {}",
                                   probe.weight().name, describe_way(c, parts, plain), written)
                     : fmt::format("the rows of {} and its siblings are taken from {}", probe.weight().name,
                                   written),
            way.read ? fmt::format("The fused tensor holds {}: cut it so, not as {}.",
                                   describe_way(c, parts, plain), written)
                     : fmt::format("The fused tensor holds {}: cut it so.", written),
            ratio, 1});
    std::vector<TensorView> weights;
    for (const Part& part : parts) weights.push_back(*part.weight);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      c.add_fix({Fix::Kind::kTensor,
                 weights[p].name,
                 fmt::format("rows from {}", written),
                 {},
                 [weights, rows = sources[p]](std::uint64_t row, std::span<float> values) {
                   const Place& from = rows[row];
                   return decode_f32(weights[from.part], from.row * values.size(), values);
                 }});
    }
    return;
  }
  if (matched.tensors < 2) return;  // those of a single sibling: the tensors changed places
  c.keep({"fused_split",
          fmt::format("the rows of {} are put together from its own and its siblings', in an order that is "
                      "none of the usual ones",
                      probe.weight().name),
          {},
          0.9,
          0.9});
}

}  // namespace doppler::diagnosis::repairs
