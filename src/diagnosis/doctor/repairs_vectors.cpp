// Repairs of small weights: factors and biases of norms, taps of convolutions, what states decay by, sinks.
// What they should hold is measured, all of it at once, and compared with what they hold.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis::repairs {
namespace {

// Beyond this many values a weight is no small one: an op with a scan of several thousand channels takes some
// tenths of a second, and each tap takes a run or two.
constexpr std::size_t kMostSmall = 1 << 17;
// Values that are stored again in bfloat16 are off by so much of themselves.
constexpr double kStoredAgain = 0x1p-8;

// A weight or a bias of an op.
struct Slot {
  bool bias = false;
  std::size_t index = 0;

  TensorView& of(OpSetup& s) const { return bias ? *s.biases[index] : s.weights[index]; }
  const TensorView& of(const OpSetup& s) const { return bias ? *s.biases[index] : s.weights[index]; }
};

std::vector<Slot> slots_of(const OpSetup& s) {
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < s.weights.size(); ++i) slots.push_back({false, i});
  for (std::size_t i = 0; i < s.biases.size(); ++i) {
    if (s.biases[i]) slots.push_back({true, i});
  }
  return slots;
}

OpChange with(const Slot& slot, const std::vector<float>& values) {
  return [&slot, &values](OpSetup& s) { s.replace(slot.of(s), values); };
}

// Which columns of the output a weight's row moves: a part of them side by side, or every so-manieth.
struct Columns {
  std::size_t rows = 1, taps = 1;  // taps: values of a row
  bool side_by_side = true;
};

std::vector<Columns> reaches_of(std::size_t count, std::size_t width) {
  if (count == 0 || width == 0) return {};
  if (count > width)
    return count % width == 0 ? std::vector<Columns>{{width, count / width, true}} : std::vector<Columns>{};
  if (width % count != 0) return {};
  if (count == 1 || count == width) return {{count, 1, true}};
  return {{count, 1, false}, {count, 1, true}};
}

// Solves a x = b, `n` equations that belong to a least-squares problem, by elimination; zeros where the
// equations say nothing.
std::vector<double> solve(std::vector<double> a, std::vector<double> b, std::size_t n) {
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i * n + i]);
  constexpr double kRidge = 1e-12;  // taps that always move together share what is to be moved
  for (std::size_t i = 0; i < n; ++i) a[i * n + i] += kRidge * largest;
  for (std::size_t i = 0; i < n; ++i) {
    if (!(a[i * n + i] > 0)) return std::vector<double>(n, 0.0);
    for (std::size_t r = i + 1; r < n; ++r) {
      const double factor = a[r * n + i] / a[i * n + i];
      for (std::size_t k = i; k < n; ++k) a[r * n + k] -= factor * a[i * n + k];
      b[r] -= factor * b[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  return b;
}

double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float x : values)
    largest = std::max(largest, static_cast<double>(std::isfinite(x) ? std::abs(x) : 0.0f));
  return largest;
}

// The values with which the op gives the target: Newton's method, from what one run for each tap moves.
// Nothing if none do, or there are too few tokens to contradict any.
class Measurement {
 public:
  Measurement(OpCase& c, const Slot& slot) : case_(c), slot_(slot) {
    for (std::size_t t = 0; t < c.tokens(); ++t)
      largest_.push_back(largest_of(std::span(c.target()).subspan(t * c.judged_width(), c.judged_width())));
  }

  struct Found {
    std::vector<float> values;
    double ratio = 0;
  };
  std::optional<Found> find(const std::vector<float>& stored, const Columns& reach) {
    const std::size_t columns = case_.judged_width() / reach.rows;
    if (case_.tokens() * columns < 2 * reach.taps + 1) return std::nullopt;
    std::vector<float> values = stored;
    auto output = run(values);
    if (!output) return std::nullopt;
    constexpr int kMostSteps = 12;
    double error = error_of(*output);
    for (int step = 0; step < kMostSteps; ++step) {
      const auto moves = step_from(values, *output, reach);
      if (!moves) return std::nullopt;
      bool nearer = false;
      for (double share = 1; share > 0.05 && !nearer; share /= 2) {
        std::vector<float> next = values;
        for (std::size_t i = 0; i < next.size(); ++i)
          next[i] = static_cast<float>(next[i] + share * (*moves)[i]);
        auto there = run(next);
        const double left = there ? error_of(*there) : INFINITY;
        if (!(left < error)) continue;
        nearer = true;
        values = std::move(next), output = std::move(there);
        const bool slow = left > 0.9 * error;
        error = left;
        if (slow) step += 3;  // it ends soon
      }
      if (!nearer) break;
    }
    const double ratio = case_.ratio_with(with(slot_, values));
    if (ratio > 1) return std::nullopt;
    return Found{std::move(values), ratio};
  }

 private:
  std::optional<std::vector<float>> run(const std::vector<float>& values) const {
    auto out = case_.output_with(with(slot_, values));
    if (!out || !std::ranges::all_of(*out, [](float x) { return std::isfinite(x); })) return std::nullopt;
    return out;
  }

  // By what is allowed, but not below the rounding of a token's largest value: where a weight is zero nothing
  // is allowed, and one column would outweigh all.
  double weight_at(std::size_t i) const {
    const double allowed = case_.allowed_at(i / case_.judged_width(), i % case_.judged_width());
    const double least = 1e-7 * largest_[i / case_.judged_width()];
    return std::isfinite(allowed) && allowed + least > 0 ? 1 / (allowed + least) : 0;
  }

  double error_of(const std::vector<float>& output) const {
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i) {
      const double e = (static_cast<double>(output[i]) - case_.target()[i]) * weight_at(i);
      sum += e * e;
    }
    return sum;
  }

  // How far each value should move.
  std::optional<std::vector<double>> step_from(const std::vector<float>& values,
                                               const std::vector<float>& output, const Columns& reach) const {
    double squares = 0;
    for (const float x : values) squares += static_cast<double>(x) * x;
    // Large against the rounding of what is computed, small against the bends of an exponential.
    const double by = 1e-2 * std::max(std::sqrt(squares / static_cast<double>(values.size())), 1e-2);
    std::vector<std::vector<float>> moved(reach.taps);
    for (std::size_t k = 0; k < reach.taps; ++k) {
      std::vector<float> other = values;
      for (std::size_t r = 0; r < reach.rows; ++r) other[r * reach.taps + k] += static_cast<float>(by);
      auto out = run(other);
      if (!out) return std::nullopt;
      moved[k] = std::move(*out);
    }
    const std::size_t n = reach.taps, width = case_.judged_width(), columns = width / reach.rows;
    std::vector<double> moves(values.size()), slopes(n);
    for (std::size_t r = 0; r < reach.rows; ++r) {
      std::vector<double> a(n * n), b(n);
      for (std::size_t t = 0; t < case_.tokens(); ++t) {
        for (std::size_t j = 0; j < columns; ++j) {
          const std::size_t i = t * width + (reach.side_by_side ? r * columns + j : j * reach.rows + r);
          const double w = weight_at(i), rest = (static_cast<double>(case_.target()[i]) - output[i]) * w;
          for (std::size_t k = 0; k < n; ++k)
            slopes[k] = (static_cast<double>(moved[k][i]) - output[i]) / by * w;
          for (std::size_t k = 0; k < n; ++k) {
            b[k] += slopes[k] * rest;
            for (std::size_t l = 0; l < n; ++l) a[k * n + l] += slopes[k] * slopes[l];
          }
        }
      }
      const std::vector<double> x = solve(std::move(a), std::move(b), n);
      std::ranges::copy(x, moves.begin() + static_cast<std::ptrdiff_t>(r * n));
    }
    return moves;
  }

  OpCase& case_;
  Slot slot_;
  std::vector<double> largest_;  // of each token's target
};

// What was done to a weight's values, told by what they should be.
struct Told {
  const char* cause;
  std::string says, repair;
  std::vector<float> values;
  std::string what;  // for the fix
};

// `stored`: of what the values were made; where it is larger, its rounding is.
bool all_near(std::span<const float> a, std::span<const float> truth, std::span<const float> stored) {
  const double least = 1e-4 * largest_of(truth);
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double size = std::max(std::abs(truth[i]), std::abs(stored[i]));
    if (!(std::abs(static_cast<double>(a[i]) - truth[i]) <= kStoredAgain * size + least)) return false;
  }
  return true;
}

// The values that differ if a weight is another one altogether.
std::string others_in(const std::string& name, std::span<const float> stored, std::span<const float> truth) {
  const double least = 1e-4 * largest_of(truth);
  std::size_t different = 0, first = truth.size();
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (std::abs(static_cast<double>(stored[i]) - truth[i]) <= 2e-3 * std::abs(truth[i]) + least) continue;
    ++different;
    first = std::min(first, i);
  }
  if (different == 0) return fmt::format("{} is read as it should be", name);
  return fmt::format("{} of the {} values of {} are others, the first at {}: {:.4g} instead of {:.4g}",
                     different, truth.size(), name, first, truth[first], stored[first]);
}

void scaled_or_moved(const std::string& name, std::span<const float> stored, std::span<const float> truth,
                     bool of_norm, double offset, std::vector<Told>& to) {
  const std::size_t n = truth.size();
  double products = 0, squares = 0, mean = 0;
  for (std::size_t i = 0; i < n; ++i) {
    products += static_cast<double>(stored[i]) * truth[i],
        squares += static_cast<double>(stored[i]) * stored[i];
    mean += (static_cast<double>(truth[i]) - stored[i]) / static_cast<double>(n);
  }
  std::vector<float> values(stored.begin(), stored.end());
  if (n == 1) {
    to.push_back({"weight_wrong",
                  fmt::format("{} is {} (it is {})", name, number(tidy(truth[0])), number(stored[0])),
                  {},
                  {static_cast<float>(tidy(truth[0]))},
                  number(tidy(truth[0]))});
    return;
  }
  if (squares > 0 && std::abs(products / squares) > 1e-3) {
    const double scale = tidy(products / squares);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(stored[i] * scale);
    to.push_back({"weight_scaled",
                  fmt::format("{} is multiplied by {:.4g}", name, scale),
                  {},
                  values,
                  fmt::format("times {:.4g}", scale)});
  }
  // Numbers of 16 bits round one way more often than the other.
  const double more = std::abs(mean - std::round(mean)) < 0.01 ? std::round(mean) : tidy(mean);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(stored[i] + more);
  if (of_norm && std::abs(std::abs(more) - 1) < 0.01) {
    to.push_back(
        {"norm_weight_offset",
         fmt::format("the weight offset is {:.0f}, as {} holds its weights {} 1", offset + more + 0.0, name,
                     more < 0 ? "plus" : "minus"),
         fmt::format("Convert {} again without {} 1; or set rms_norm_weight_offset to {:.0f} (it is {}).",
                     name, more < 0 ? "adding" : "subtracting", offset + more + 0.0, offset),
         values, fmt::format("{} 1", more < 0 ? "minus" : "plus")});
  } else {
    to.push_back(
        {"weight_wrong",
         fmt::format("each value of {} is {} {}", name, number(std::abs(more)), more < 0 ? "less" : "more"),
         {},
         values,
         fmt::format("plus {}", number(more))});
  }
}

void in_another_order(const std::string& name, std::span<const float> stored, std::span<const float> truth,
                      std::size_t taps, std::vector<Told>& to) {
  const std::size_t n = truth.size(), rows = n / taps;
  if (n < 2) return;
  std::vector<float> values(n);
  const auto add = [&](const char* cause, std::string says, std::string what) {
    if (all_near(values, truth, stored) && !all_near(stored, truth, stored))
      to.push_back({cause, std::move(says), {}, values, std::move(what)});
  };
  const auto from_rows = [&](const std::function<std::size_t(std::size_t)>& from) {
    for (std::size_t i = 0; i < n; ++i) values[i] = stored[from(i / taps) * taps + i % taps];
  };
  from_rows([&](std::size_t r) { return rows - 1 - r; });
  add("weight_permuted", fmt::format("{} stands in reverse", name), "in reverse");
  for (std::size_t shift = 1; shift < rows && to.empty(); ++shift) {
    from_rows([&](std::size_t r) { return (r + shift) % rows; });
    const std::size_t least = std::min(shift, rows - shift);
    // What was read beyond the weight's end is lost.
    std::vector<float> known = values;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t r = i / taps;
      if (shift <= rows / 2 ? r >= rows - shift : r < rows - shift) known[i] = truth[i];
    }
    if (least > rows / 4 && !all_near(values, truth, stored)) continue;
    const bool whole = all_near(values, truth, stored);
    if (!whole && !all_near(known, truth, stored)) continue;
    values = whole ? values : known;
    add("weight_shifted",
        fmt::format("{} begins {} {} {}", name, least, least == 1 ? "place" : "places",
                    shift <= rows / 2 ? "later" : "earlier"),
        fmt::format("{} places {}", least, shift <= rows / 2 ? "later" : "earlier"));
  }
  if (taps > 1) {
    for (std::size_t i = 0; i < n; ++i) values[i] = stored[i / taps * taps + taps - 1 - i % taps];
    add("weight_permuted", fmt::format("the taps of {} stand in reverse", name), "taps in reverse");
    for (std::size_t i = 0; i < n; ++i) values[i] = stored[i % taps * rows + i / taps];
    add("weight_transposed", fmt::format("{} is stored [{}, {}]", name, taps, rows), "transposed");
  }
  if (!to.empty() || taps > 1) return;
  std::vector<std::size_t> by_stored(n), by_truth(n);
  std::iota(by_stored.begin(), by_stored.end(), std::size_t{0});
  by_truth = by_stored;
  std::ranges::sort(by_stored, {}, [&](std::size_t i) { return stored[i]; });
  std::ranges::sort(by_truth, {}, [&](std::size_t i) { return truth[i]; });
  for (std::size_t i = 0; i < n; ++i) values[by_truth[i]] = stored[by_stored[i]];
  add("weight_permuted", fmt::format("the values of {} stand in another order", name),
      "in the order of the recording");
}

// Of other weights that one whose values are right here.
void of_another(const OpCase& c, const TensorView& own, std::span<const float> truth, std::vector<Told>& to) {
  std::vector<float> values(truth.size());
  for (const TensorView& other : c.context().weights.tensors()) {
    if (other.data.data() == own.data.data() || is_quantised(other.dtype) ||
        element_count(other.shape).value_or(0) != truth.size() || !decode_f32(other, 0, values))
      continue;
    if (!all_near(values, truth, truth)) continue;
    to.push_back({"tensor_swapped", fmt::format("the weight is {}", other.name),
                  fmt::format("{} holds what belongs elsewhere: convert it again.", own.name), values,
                  fmt::format("the values of {}", other.name)});
    return;
  }
}

void tell(OpCase& c, const Slot& slot, const std::vector<float>& stored, const Measurement::Found& found,
          std::size_t taps) {
  const TensorView& own = slot.of(c.setup());
  const std::vector<float>& truth = found.values;
  const std::size_t n = truth.size();
  const auto* norm = std::get_if<NormParams>(&c.setup().params);
  const auto keep = [&](const Told& told, double weight) {
    const double ratio = c.ratio_with(with(slot, told.values));
    c.keep({told.cause, told.says, told.repair, ratio <= 1 ? ratio : found.ratio, weight});
    c.add_fix({Fix::Kind::kTensor,
               own.name,
               told.what,
               {},
               [values = told.values](std::uint64_t row, std::span<float> into) -> Status {
                 const std::size_t begin = static_cast<std::size_t>(row) * into.size();
                 for (std::size_t i = 0; i < into.size() && begin + i < values.size(); ++i)
                   into[i] = values[begin + i];
                 return {};
               }});
  };
  std::size_t zeros = 0;
  while (zeros < n && stored[n - 1 - zeros] == 0) ++zeros;
  std::vector<float> filled = stored;
  std::copy(truth.end() - static_cast<std::ptrdiff_t>(zeros), truth.end(),
            filled.end() - static_cast<std::ptrdiff_t>(zeros));
  if (zeros > 0 && all_near(filled, truth, stored)) {
    c.keep({"truncated_weight",
            fmt::format("the last {} of the {} values of {} are not zero", zeros, n, own.name),
            {},
            found.ratio,
            1});
    return;
  }
  std::vector<Told> ways;
  of_another(c, own, truth, ways);
  if (ways.empty()) in_another_order(own.name, stored, truth, taps, ways);
  if (ways.empty()) {
    scaled_or_moved(own.name, stored, truth, norm != nullptr && !slot.bias, norm ? norm->weight_offset : 0,
                    ways);
    std::erase_if(ways, [&](const Told& way) { return !all_near(way.values, truth, stored); });
  }
  if (!ways.empty()) {
    keep(ways.front(), std::string_view(ways.front().cause) == "norm_weight_offset" ? 0.97 : 1);
    return;
  }
  c.keep({"weight_wrong", others_in(own.name, stored, truth), {}, found.ratio, 0.8});
}

// Where nothing is measured: the likeliest changes.
void known_changes(OpCase& c, const Slot& slot, const std::vector<float>& stored) {
  const std::string name = slot.of(c.setup()).name;
  const std::size_t n = stored.size(),
                    row = slot.of(c.setup()).shape.size() < 2 ? 1 : slot.of(c.setup()).shape.back();
  const std::size_t rows = n / std::max<std::size_t>(row, 1);
  std::vector<float> values(n);
  const auto attempt = [&](const char* cause, std::string says,
                           const std::function<double(std::size_t i)>& value) {
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(value(i));
    if (values != stored) c.attempt(cause, std::move(says), {}, with(slot, values), 0.95);
  };
  const auto from_rows = [&](const char* cause, std::string says,
                             const std::function<std::size_t(std::size_t r)>& from) {
    attempt(cause, std::move(says), [&](std::size_t i) { return stored[from(i / row) * row + i % row]; });
  };
  attempt("weight_scaled", fmt::format("{} is multiplied by -1", name),
          [&](std::size_t i) { return -stored[i]; });
  if (rows < 2) return;
  from_rows("weight_permuted", fmt::format("{} stands in reverse", name),
            [&](std::size_t r) { return rows - 1 - r; });
  from_rows("weight_shifted", fmt::format("{} begins 1 place later", name),
            [&](std::size_t r) { return (r + 1) % rows; });
  from_rows("weight_shifted", fmt::format("{} begins 1 place earlier", name),
            [&](std::size_t r) { return (r + rows - 1) % rows; });
}

// A norm's factors and biases, each in the other's place.
void exchanged(OpCase& c) {
  const OpSetup& s = c.setup();
  if (s.weights.empty() || s.biases.empty() || !s.biases[0] || s.weights[0].shape != s.biases[0]->shape)
    return;
  c.attempt("tensor_swapped", fmt::format("{} and {} change places", s.weights[0].name, s.biases[0]->name),
            fmt::format("Exchange {} and {}.", s.weights[0].name, s.biases[0]->name),
            [](OpSetup& setup) { std::swap(setup.weights[0], *setup.biases[0]); });
}

}  // namespace

void small_weights(OpCase& c) {
  // What follows along a long chain mixes columns, so that no column tells of one value.
  constexpr std::size_t kShort = 4;
  if (c.explained() || c.scope().size() > 1) return;
  exchanged(c);
  for (const Slot& slot : slots_of(c.setup())) {
    const TensorView& own = slot.of(c.setup());
    const auto count = static_cast<std::size_t>(element_count(own.shape).value_or(0));
    std::vector<float> stored(count);
    if (count == 0 || count > kMostSmall || is_quantised(own.dtype) || !decode_f32(own, 0, stored)) continue;
    if (std::ranges::any_of(stored, [](float w) { return !std::isfinite(w); })) {
      c.keep({"weight_nan", fmt::format("{} holds finite values", own.name), {}, 0, 1});
      return;
    }
    for (const Columns& reach : reaches_of(count, c.judged_width())) {
      if (c.ops_on() > kShort) break;
      const auto found = Measurement(c, slot).find(stored, reach);
      if (!found) continue;
      if (const std::string other = same_bytes_as(c); !other.empty() && !slot.bias && slot.index == 0) {
        c.keep({"stale_weight", fmt::format("{} is another than {}", own.name, other), {}, found->ratio, 1});
        return;
      }
      tell(c, slot, stored, *found, reach.taps);
      return;
    }
    known_changes(c, slot, stored);
  }
}

}  // namespace doppler::diagnosis::repairs
