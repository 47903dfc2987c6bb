// Repairs of products: known kinds of damage to a weight between training and loading. Rows that changed
// places are found by their outputs; repairs_layout.cpp reads the bytes anew.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "diagnosis/doctor/head_rows.h"
#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis::repairs {
namespace {

// At most this many wrong rows are traced to their sources, which bounds the time for a whole vocabulary.
constexpr std::size_t kMostSources = 512;

struct Source {
  std::size_t row, from;  // from: the weight's row that would give this output; width(): none
};

// What becomes of the bias where rows changed places.
enum class BiasOf : std::uint8_t {
  kPlace,  // it is added where it was
  kRow,    // each row takes its bias along
  kNone,   // nothing is known of it: rows are told by how their outputs differ from token to token
};

// The sources of wrong rows, evenly chosen.
std::vector<Source> find_sources(const OpCase& c, const WeightProbe& probe, BiasOf bias) {
  const bool free = bias == BiasOf::kNone;
  const auto with_bias = [&](double x, std::size_t r) {
    return x + (bias == BiasOf::kRow ? probe.bias(r) : 0);
  };
  const auto output = [&](std::size_t t, std::size_t r) {
    return with_bias(probe.output(t, r), r) - (free ? probe.output(0, r) : 0);
  };
  const auto target = [&](std::size_t t, std::size_t r) {
    return with_bias(probe.target(t, r), r) - (free ? probe.target(0, r) : 0);
  };
  const auto allowed_at = [&](std::size_t t, std::size_t r) {
    return c.allowed_at(t, r) + (free ? c.allowed_at(0, r) : 0);
  };
  const std::size_t key = free ? 1 : 0;  // the token whose outputs are sorted
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < c.width(); ++r) {
    if (std::isfinite(output(key, r))) order.push_back(r);
  }
  std::ranges::sort(order, {}, [&](std::size_t r) { return output(key, r); });
  std::vector<Source> sources;
  const std::size_t count = std::min(kMostSources, probe.bad().size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bad = probe.bad()[i * probe.bad().size() / count];
    const double wanted = target(key, bad), allowed = allowed_at(key, bad);
    auto at =
        std::ranges::lower_bound(order, wanted - allowed, {}, [&](std::size_t r) { return output(key, r); });
    Source source{bad, c.width()};
    double nearest = 1;  // in allowed errors: where much is allowed, several fit
    for (; at != order.end() && output(key, *at) <= wanted + allowed; ++at) {
      double worst = 0;
      for (std::size_t t = 0; t < c.tokens() && worst <= nearest; ++t)
        worst = std::max(worst, std::abs(output(t, *at) - target(t, bad)) / allowed_at(t, bad));
      if (worst <= nearest) nearest = worst, source.from = *at;
    }
    sources.push_back(source);
  }
  return sources;
}

// The rows in another order, and what that says of the bias.
struct Moved {
  std::vector<Source> sources;
  std::string with_bias = {};        // ", and ..."; empty: the bias stays, or there is none
  bool along = false;                // the values of the bias move with the rows
  std::optional<double> scale = {};  // what the bias is multiplied by
};
Moved find_moved(const OpCase& c, const WeightProbe& probe) {
  const auto found = [&](const std::vector<Source>& sources) {
    return std::ranges::any_of(sources, [&](const Source& s) { return s.from != c.width(); });
  };
  Moved moved{find_sources(c, probe, BiasOf::kPlace)};
  const auto& biases = c.setup().biases;
  if (found(moved.sources) || biases.empty() || !biases[0]) return moved;
  moved.sources = find_sources(c, probe, BiasOf::kRow);
  if (found(moved.sources)) {
    moved.with_bias = fmt::format(", and the values of {} with them", biases[0]->name);
    moved.along = true;
  }
  if (moved.along || c.tokens() < 3) return moved;
  // Both are wrong, each in its own way: what the rows do not explain is what should be added.
  moved.sources = find_sources(c, probe, BiasOf::kNone);
  if (!found(moved.sources)) return moved;
  const auto measured = [&](const Source& s) {
    return probe.target(0, s.row) + probe.bias(s.row) - probe.output(0, s.from);
  };
  double products = 0, squares = 0, rest = 0;
  std::erase_if(moved.sources, [&](const Source& s) { return s.from == c.width(); });
  for (const Source& s : moved.sources) {
    products += measured(s) * probe.bias(s.row), squares += probe.bias(s.row) * probe.bias(s.row);
  }
  const double scale = squares > 0 ? products / squares : 0;
  for (const Source& s : moved.sources)
    rest = std::max(rest, std::abs(measured(s) - scale * probe.bias(s.row)) / c.allowed_at(0, s.row));
  constexpr double kMultiple = 10;  // of what is allowed: the rest is the rounding of the row that was moved
  if (rest < kMultiple) moved.scale = std::abs(scale) < 1e-4 ? 0 : scale;
  moved.with_bias = fmt::format(", and {} is {}", biases[0]->name,
                                !moved.scale        ? "another"
                                : *moved.scale == 0 ? "not added"
                                                    : fmt::format("multiplied by {:.4g}", *moved.scale));
  return moved;
}

std::string list_rows(const std::vector<std::size_t>& rows) {
  if (rows.empty()) return "none";
  if (rows.size() == 1) return fmt::format("row {}", rows[0]);
  const bool together = rows.back() - rows.front() + 1 == rows.size();
  return together ? fmt::format("rows {} to {}", rows.front(), rows.back())
                  : fmt::format("{} rows between {} and {}", rows.size(), rows.front(), rows.back());
}

// Ops that multiply by a weight of this shape, this one left out.
std::vector<std::size_t> alike(const OpCase& c) {
  std::vector<std::size_t> ops;
  const Plan& plan = c.plan();
  const Shape& shape = c.setup().weights[0].shape;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::kMatmul && i != c.index() && c.context().weights[op.weights[0]].shape == shape)
      ops.push_back(i);
  }
  // Nearest layers first: neighbours are confused more often than ends.
  std::ranges::sort(ops, {},
                    [&](std::size_t i) { return std::pair(std::abs(plan.ops[i].layer - c.layer()), i); });
  return ops;
}

// The orders of rows to try: unchanged; and if loading may have reordered them, the order it gives to the
// tensor that belongs there, and the order before loading.
using RowOrder = std::size_t (*)(std::size_t row, std::size_t dim);
constexpr RowOrder kRowOrders[] = {nullptr, paired, unpaired};

double ratio_of(const OpCase& c, const WeightProbe& probe, const TensorView& weight, RowOrder order) {
  if (order == nullptr) return probe.ratio(weight);
  const std::size_t dim = head_dim(c);
  if (!rows_may_be_paired(c) || weight.shape != probe.weight().shape) return INFINITY;
  return probe.ratio([&](std::uint64_t row, std::span<float> values) {
    return decode_f32(weight, order(row, dim) * weight.cols(), values);
  });
}

// Does the other op's recorded output follow from our weight?
bool fits_there(const OpCase& c, std::size_t other) {
  const auto recorded = c.context().experiment.recorded(other);
  if (!recorded) return false;
  auto there = OpCase::open(c.context(), other, *recorded);
  if (!there || there->misfit().agrees()) return false;
  const WeightProbe probe(*there);
  return std::ranges::any_of(
      kRowOrders, [&](RowOrder order) { return ratio_of(*there, probe, c.setup().weights[0], order) <= 1; });
}

bool embeds_rightly(const OpCase& c) {
  for (std::size_t i = 0; i < c.plan().ops.size(); ++i) {
    if (c.plan().ops[i].kind != OpKind::kEmbed) continue;
    const auto recorded = c.context().experiment.recorded(i);
    if (!recorded) return true;
    const auto there = OpCase::open(c.context(), i, *recorded);
    return !there || there->misfit().agrees();
  }
  return true;
}

// A few outputs that differ by a multiple of one input: one value of each row.
bool one_value_each(OpCase& c, const WeightProbe& probe) {
  const OpSetup::Rows& in = c.setup().inputs[0];
  if (probe.bad().empty() || probe.bad().size() > 8) return false;
  std::vector<std::string> places;
  for (const std::size_t r : probe.bad()) {
    std::size_t best = in.width;
    double change = 0;
    for (std::size_t i = 0; i < in.width && best == in.width; ++i) {
      double products = 0, squares = 0;
      for (std::size_t t = 0; t < c.tokens(); ++t) {
        const double x = in.data[t * in.width + i];
        products += x * (probe.target(t, r) - probe.output(t, r)), squares += x * x;
      }
      if (squares == 0) continue;
      bool same = true;
      for (std::size_t t = 0; t < c.tokens() && same; ++t) {
        const double rest =
            probe.target(t, r) - probe.output(t, r) - products / squares * in.data[t * in.width + i];
        same = std::abs(rest) <= c.allowed_at(t, r);
      }
      if (same) best = i, change = products / squares;
    }
    if (best == in.width) return false;
    float stored = 0;
    if (!decode_f32(probe.weight(), r * in.width + best, std::span(&stored, 1))) return false;
    places.push_back(fmt::format("[{}][{}] is {:.4g} (it is {:.4g})", r, best, stored + change, stored));
  }
  c.keep({"weight_wrong",
          fmt::format("{}{}{}", probe.weight().name, places[0],
                      places.size() > 1 ? fmt::format(", and {} more", places.size() - 1) : ""),
          {},
          0.5,
          0.9});
  return true;
}

}  // namespace

void weight_values(OpCase& c) {
  const WeightProbe probe(c);
  const TensorView& w = probe.weight();
  std::vector<float> row(w.cols());
  std::size_t zero_rows = 0, positive = 0, least_tail = SIZE_MAX;
  for (const std::size_t r : probe.bad()) {
    if (!decode_f32(w, r * w.cols(), row)) return;
    if (const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
        bad != row.end()) {
      weight_layout(c);  // numbers of another type, or from elsewhere
      if (c.explained()) return;
      c.keep(
          {"weight_nan",
           fmt::format("{} holds a number, not {}, in row {}, column {}", w.name, *bad, r, bad - row.begin()),
           {},
           0,
           1});
      return;
    }
    positive += static_cast<std::size_t>(std::ranges::count_if(row, [](float x) { return x > 0; }));
    std::size_t tail = 0;
    while (tail < row.size() && row[row.size() - 1 - tail] == 0) ++tail;
    zero_rows += tail == row.size();
    if (tail < row.size()) least_tail = std::min(least_tail, tail);
  }
  if (probe.bad().empty()) return;
  if (positive * 100 >= probe.bad().size() * w.cols() * 99 && !is_quantised(w.dtype)) {
    c.keep({"weight_wrong", fmt::format("{} has negative values, too", w.name),
            "Convert the tensor again: its signs are lost.", 0.6, 0.9});
  }
  if (const std::string other = same_bytes_as(c); !other.empty())
    c.keep({c.stage() == Stage::kLogits ? "tied_head" : "stale_weight",
            fmt::format("{} is another than {}", w.name, other),
            {},
            0.5,
            0.95});
  const bool only_zero = zero_rows == probe.bad().size(), ends = probe.bad().back() + 1 == w.rows();
  if (only_zero || (zero_rows > 0 && ends && zero_rows + 1 >= probe.bad().size())) {
    c.keep({"truncated_weight",
            fmt::format("{} of {} {} not zero", list_rows(probe.bad()), w.name,
                        probe.bad().size() == 1 ? "is" : "are"),
            {},
            0.4,
            1});
  } else if (least_tail != SIZE_MAX && least_tail >= 4) {
    c.keep({"truncated_weight",
            fmt::format("the last {} columns of {} are not zero", least_tail, w.name),
            {},
            0.6,
            0.95});
  }
}

void weight_scale(OpCase& c) {
  if (c.explained()) return;
  const WeightProbe probe(c);
  std::vector<float> scaled = c.output();
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const std::size_t t = i / c.width(), r = i % c.width();
    products += probe.output(t, r) * probe.target(t, r);
    squares += probe.output(t, r) * probe.output(t, r);
  }
  const double scale = squares > 0 ? products / squares : 0;
  if (!(std::abs(scale) > 1e-4)) return;  // a scale of 0 is no scale
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const std::size_t r = i % c.width();
    scaled[i] = static_cast<float>(probe.output(i / c.width(), r) * scale + probe.bias(r));
  }
  c.consider("weight_scaled", fmt::format("{} is multiplied by {:.6g}", c.setup().weights[0].name, scale), {},
             scaled, 0.95);
  c.add_fix({Fix::Kind::kTensor,
             c.setup().weights[0].name,
             fmt::format("times {:.6g}", scale),
             {},
             [w = c.setup().weights[0], scale](std::uint64_t row, std::span<float> values) -> Status {
               DOPPLER_TRY(decode_f32(w, row * values.size(), values));
               for (float& x : values) x = static_cast<float>(x * scale);
               return {};
             }});
}

void weight_rows(OpCase& c) {
  const WeightProbe probe(c);
  if (c.explained() || c.tokens() < 2) return;  // one token does not identify a row
  const std::size_t rows = c.width(), dim = head_dim(c);
  const Moved moved = find_moved(c, probe);
  const std::vector<Source>& sources = moved.sources;
  std::size_t found = 0, to_pairs = 0, from_pairs = 0, earlier = 0;
  std::map<std::size_t, std::size_t> shifts;
  std::set<std::size_t> different;
  const Source* first = nullptr;
  for (const Source& s : sources) {
    if (s.from == rows) continue;
    if (first == nullptr) first = &s;
    ++found;
    different.insert(s.from);
    ++shifts[(s.from + rows - s.row) % rows];
    if (dim > 1 && dim % 2 == 0) {
      to_pairs += s.from == paired(s.row, dim);
      from_pairs += s.from == unpaired(s.row, dim);
    }
    earlier += s.from < s.row;
  }
  const auto commonest = std::ranges::max_element(shifts, {}, [](const auto& entry) { return entry.second; });
  const std::size_t shift = shifts.empty() ? 0 : commonest->first,
                    shifted = shifts.empty() ? 0 : commonest->second;
  const auto most = [&](std::size_t count) { return count > 0 && count * 10 >= sources.size() * 9; };
  const std::string name = probe.weight().name;
  const std::string where = list_rows(probe.bad());
  const auto signed_shift = shift > rows / 2
                                ? static_cast<std::int64_t>(shift) - static_cast<std::int64_t>(rows)
                                : static_cast<std::int64_t>(shift);
  // Rows were matched through every token, so what fits, fits.
  constexpr double kMatched = 0.3;
  const auto permuted = [&](const char* cause, std::string says, std::string what, auto from, double weight) {
    c.keep({cause, says + moved.with_bias, {}, kMatched, weight});
    c.add_fix({Fix::Kind::kTensor,
               name,
               what,
               {},
               [w = probe.weight(), from](std::uint64_t row, std::span<float> values) {
                 return decode_f32(w, from(row) * values.size(), values);
               }});
    if (!moved.along && !moved.scale) return;
    c.add_fix({Fix::Kind::kTensor,
               c.setup().biases[0]->name,
               moved.along ? what : fmt::format("times {:.4g}", *moved.scale),
               {},
               [b = *c.setup().biases[0], from, along = moved.along, scale = moved.scale.value_or(1)](
                   std::uint64_t, std::span<float> values) -> Status {
                 std::vector<float> stored(values.size());
                 DOPPLER_TRY(decode_f32(b, 0, stored));
                 for (std::size_t i = 0; i < values.size(); ++i)
                   values[i] = static_cast<float>(stored[along ? from(i) : i] * scale);
                 return {};
               }});
  };
  if (most(to_pairs) || most(from_pairs)) {
    const bool apart = most(from_pairs);
    permuted(
        "weight_permuted",
        fmt::format("the rows of {} are put in the order of {}", name,
                    apart ? "halves of a head (Hugging Face's)" : "neighbouring rotary pairs (GGUF's)"),
        apart ? "rows unpaired" : "rows paired",
        [dim, apart](std::uint64_t row) { return apart ? unpaired(row, dim) : paired(row, dim); }, 1);
  } else if (most(shifted)) {
    permuted(
        "weight_shifted",
        fmt::format("row i of {} is row i {} {} ({})", name, signed_shift < 0 ? '-' : '+',
                    std::abs(signed_shift), where),
        fmt::format("rows shifted by {}", signed_shift),
        [shift, rows](std::uint64_t row) { return (row + shift) % rows; }, 1);
  } else if (most(different.size())) {
    std::map<std::size_t, std::size_t> order;  // of the rows that are wrong
    for (const Source& s : sources) order.emplace(s.row, s.from);
    std::string says = fmt::format("{} of {} change places", where, name);
    if (found == sources.size() && found == probe.bad().size()) {
      permuted(
          "weight_permuted", std::move(says), fmt::format("{} in the order of the recording", where),
          [order](std::uint64_t row) {
            const auto at = order.find(row);
            return at == order.end() ? row : static_cast<std::uint64_t>(at->second);
          },
          0.95);
    } else {
      c.keep({"weight_permuted", says + moved.with_bias, {}, kMatched, 0.95});
    }
  } else if (found >= 2 && found * 20 >= sources.size() && earlier == found) {
    c.keep({"row_blocks_misaligned",
            fmt::format("{} is cut into rows at other places: row {} lies where row {} should", name,
                        first->row, first->from),
            {},
            0.9,
            0.7});
  }
}

void weight_others(OpCase& c) {
  if (c.explained()) return;
  const WeightProbe probe(c);
  const std::string name = probe.weight().name;
  const TensorView* embedding = nullptr;
  if (const WeightId id = c.context().weights.find(WeightRole::kTokenEmbedding); id != kNoWeight)
    embedding = &c.context().weights[id];
  if (c.stage() == Stage::kLogits && embedding != nullptr &&
      embedding->data.data() != probe.weight().data.data()) {
    const double ratio = probe.ratio(*embedding);
    if (ratio <= 1 && !embeds_rightly(c)) {
      c.keep({"tensor_swapped", fmt::format("the weight is {}, which has this one's place", embedding->name),
              fmt::format("Exchange {} and {}.", embedding->name, name), ratio, 1});
      return;
    }
    c.keep({"tied_head", fmt::format("the head is {}", embedding->name), "Set tie_word_embeddings to true.",
            ratio, 1});
    c.add_setting("head.tied", "true");
    c.add_fix({.kind = Fix::Kind::kDrop, .target = name, .value = "left out, as the embedding is the head"});
  }
  const std::vector<std::size_t> others = alike(c);
  for (const RowOrder order : kRowOrders) {
    for (const std::size_t other : others) {
      const Op& op = c.plan().ops[other];
      const TensorView& weight = c.context().weights[op.weights[0]];
      if (weight.data.data() == probe.weight().data.data()) continue;
      const double ratio = ratio_of(c, probe, weight, order);
      if (ratio > 1) continue;
      const Stage stage = c.plan().values[op.outputs[0]].stage;
      const bool gate_up =
          op.layer == c.layer() && ((stage == Stage::kFfnUp && c.stage() == Stage::kFfnGate) ||
                                    (stage == Stage::kFfnGate && c.stage() == Stage::kFfnUp));
      const bool both = fits_there(c, other);
      c.keep({gate_up ? "gate_up_swapped"
              : both  ? "tensor_swapped"
                      : "stale_weight",
              fmt::format("the weight is {}{}", weight.name, both ? ", which has this one's place" : ""),
              both ? fmt::format("Exchange {} and {}.", name, weight.name) : std::string(), ratio, 1});
      if (!both) {  // its values are there, only elsewhere
        c.add_fix({Fix::Kind::kTensor,
                   name,
                   fmt::format("the values of {}", weight.name),
                   {},
                   [read = weight, order, dim = head_dim(c)](std::uint64_t row, std::span<float> values) {
                     return decode_f32(read, (order == nullptr ? row : order(row, dim)) * values.size(),
                                       values);
                   }});
      }
      if (both && order == nullptr) {
        for (const auto& [to, from] : {std::pair(probe.weight(), weight), {weight, probe.weight()}})
          c.add_fix({Fix::Kind::kRename,
                     to.name,
                     from.name,
                     {},
                     [read = from](std::uint64_t row, std::span<float> values) {
                       return decode_f32(read, row * values.size(), values);
                     }});
      }
      return;
    }
  }
}

void matmul_input(OpCase& c) {
  if (c.explained()) return;
  for (const OpCase::Other& other : c.others(c.setup().inputs[0].width)) {
    if (other.rows == c.setup().inputs[0].data) continue;
    c.attempt("norm_order", fmt::format("it reads {}", stage_key(other.stage, other.layer)), {},
              [&](OpSetup& s) { s.inputs[0].data = other.rows; });
  }
}

void weight_one_value(OpCase& c) {
  if (c.explained() || c.tokens() < 3) return;
  const WeightProbe probe(c);
  if (one_value_each(c, probe)) return;
  const WeightId embedding = c.context().weights.find(WeightRole::kTokenEmbedding);
  // Where tokens get wrong rows, too, it is the one tensor that is wrong.
  const bool tied = c.stage() == Stage::kLogits && c.op().weights[0] == embedding && embeds_rightly(c);
  if (tied && probe.bad().size() * 10 > c.width() * 9) {
    c.keep({"tied_head", "the head is a matrix of its own",
            "Set tie_word_embeddings to false, and bind the head.", 0.9, 0.8});
    // Without its tensor the flag repairs nothing, and with it no model is loaded as a tied one.
    return;
  }
  if (probe.bad().size() * 2 > c.width()) return;
  // Most rows are right: the others were damaged.
  c.keep({"weight_wrong",
          fmt::format("no permutation, scale or type of {} explains {}", probe.weight().name,
                      list_rows(probe.bad())),
          {},
          0.9,
          0.7});
}

}  // namespace doppler::diagnosis::repairs
