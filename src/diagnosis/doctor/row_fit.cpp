#include "diagnosis/doctor/row_fit.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace doppler::diagnosis {
namespace {

// Multiplications that a fit over a whole weight may take: some seconds.
constexpr double kMostWork = 4e9;

// Solves the normal equations of `count` parts; false if they depend on each other.
bool solve(const RowParts& p, const std::vector<double>& wanted, std::size_t count,
           std::vector<double>& factors) {
  const std::size_t tokens = wanted.size();
  std::vector<double> a(count * count), b(count), size(count);
  const auto part = [&](std::size_t k, std::size_t t) { return p.parts[k * tokens + t]; };
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t t = 0; t < tokens; ++t) size[k] += part(k, t) * part(k, t);
    size[k] = std::sqrt(size[k]);
    if (!(size[k] > 0) || !std::isfinite(size[k])) return false;
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t k = 0; k < count; ++k) {
      b[k] += part(k, t) / size[k] * (wanted[t] - p.base[t]);
      for (std::size_t l = 0; l <= k; ++l) a[k * count + l] += part(k, t) / size[k] * (part(l, t) / size[l]);
    }
  }
  for (std::size_t k = 0; k < count; ++k) {  // Cholesky; the diagonal is 1 before
    for (std::size_t l = 0; l <= k; ++l) {
      double sum = a[k * count + l];
      for (std::size_t m = 0; m < l; ++m) sum -= a[k * count + m] * a[l * count + m];
      if (k == l && sum < 1e-8) return false;
      a[k * count + l] = k == l ? std::sqrt(sum) : sum / a[l * count + l];
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t m = 0; m < k; ++m) b[k] -= a[k * count + m] * b[m];
    b[k] /= a[k * count + k];
  }
  for (std::size_t k = count; k-- > 0;) {
    for (std::size_t m = k + 1; m < count; ++m) b[k] -= a[m * count + k] * b[m];
    b[k] /= a[k * count + k];
  }
  factors.resize(count);
  for (std::size_t k = 0; k < count; ++k) factors[k] = b[k] / size[k];
  return true;
}

// Rows of the weight, evenly chosen, and every token's input.
struct Rows {
  std::vector<std::size_t> rows;
  std::vector<float> weight;  // [rows, columns]
  std::size_t columns = 0, tokens = 0;
  const float* input = nullptr;  // [tokens, columns]
};
std::optional<Rows> take_rows(const OpCase& c, const WeightProbe& probe, std::size_t most) {
  Rows taken{.columns = static_cast<std::size_t>(probe.cols()),
             .tokens = c.tokens(),
             .input = c.setup().inputs[0].data.data()};
  const std::size_t count = std::min<std::size_t>(most, c.width());
  taken.weight.resize(count * taken.columns);
  for (std::size_t i = 0; i < count; ++i) {
    taken.rows.push_back(i * c.width() / count);
    const auto row = std::span(taken.weight).subspan(i * taken.columns, taken.columns);
    if (!decode_f32(probe.weight(), taken.rows[i] * taken.columns, row)) return std::nullopt;
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) return std::nullopt;
  }
  return taken;
}

// Conjugate gradients for least squares, from zero: `forward` applies the matrix, `back` its transpose.
using Apply = std::function<void(const std::vector<double>& from, std::vector<double>& to)>;
std::vector<double> least_squares(std::size_t unknowns, std::vector<double> wanted, const Apply& forward,
                                  const Apply& back, std::size_t steps) {
  const auto squares = [](const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return sum;
  };
  std::vector<double> x(unknowns), s(unknowns), q(wanted.size());
  std::vector<double>& rest = wanted;
  back(rest, s);
  std::vector<double> p = s;
  double gamma = squares(s);
  const double done = gamma * 1e-24;
  for (std::size_t step = 0; step < steps && gamma > done; ++step) {
    forward(p, q);
    const double length = squares(q);
    if (!(length > 0)) break;
    const double alpha = gamma / length;
    for (std::size_t i = 0; i < unknowns; ++i) x[i] += alpha * p[i];
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= alpha * q[i];
    back(rest, s);
    const double next = squares(s);
    for (std::size_t i = 0; i < unknowns; ++i) p[i] = s[i] + next / gamma * p[i];
    gamma = next;
  }
  return x;
}

// How many steps the work allows; 0: too few to come near a solution, which the case then says.
std::size_t steps_for(double work_of_a_step, OpCase& c, const char* what) {
  constexpr std::size_t kEnough = 25, kMost = 400;
  constexpr double kASecond = 1e9;  // multiplications of one thread in plain loops
  const auto steps = static_cast<std::size_t>(std::min<double>(kMost, kMostWork / work_of_a_step));
  if (steps >= kEnough) return steps;
  c.leave_out(fmt::format("{} (some {:.0f} s)", what, kEnough * work_of_a_step / kASecond));
  return 0;
}

}  // namespace

std::optional<RowFit> fit_rows(const OpCase& c, const WeightProbe& probe, std::size_t count,
                               const std::function<bool(std::size_t row, RowParts& parts)>& read) {
  const std::size_t tokens = c.tokens();
  if (count == 0 || tokens < 3 || tokens < count + std::max<std::size_t>(2, count / 2)) return std::nullopt;
  const std::vector<std::size_t>& sample = probe.sample();
  RowFit fit;
  std::vector<float> out(tokens * sample.size());
  RowParts parts;
  std::vector<double> wanted(tokens);
  for (std::size_t i = 0; i < sample.size(); ++i) {
    parts.base.assign(tokens, 0);
    parts.parts.assign(count * tokens, 0);
    if (!read(sample[i], parts)) return std::nullopt;
    for (std::size_t t = 0; t < tokens; ++t) wanted[t] = probe.target(t, sample[i]);
    std::vector<double>& factors = fit.factors.emplace_back();
    if (!solve(parts, wanted, count, factors)) return std::nullopt;
    for (std::size_t t = 0; t < tokens; ++t) {
      double sum = parts.base[t] + probe.bias(sample[i]);
      for (std::size_t k = 0; k < count; ++k) sum += factors[k] * parts.parts[k * tokens + t];
      out[t * sample.size() + i] = static_cast<float>(sum);
    }
  }
  fit.ratio = c.judge_columns(sample, out);
  return fit;
}

std::optional<std::vector<double>> fit_columns(OpCase& c, const WeightProbe& probe) {
  const std::size_t columns = probe.cols(), tokens = c.tokens();
  if (c.width() * tokens < 2 * columns) return std::nullopt;
  const std::size_t wanted_rows = (columns <= 2048 ? 8 : 2) * columns / tokens + 1;
  const std::size_t steps = steps_for(
      2.0 * static_cast<double>(std::min(wanted_rows, c.width())) * static_cast<double>(tokens * columns), c,
      "scales of columns");
  if (steps == 0) return std::nullopt;
  const auto taken = take_rows(c, probe, wanted_rows);
  if (!taken) return std::nullopt;
  // Factors in units of their columns' sizes, which makes them alike to the search.
  std::vector<double> unit(columns), wanted(taken->rows.size() * tokens);
  for (std::size_t i = 0; i < columns; ++i) {
    double w = 0, x = 0;
    for (std::size_t r = 0; r < taken->rows.size(); ++r) w += std::pow(taken->weight[r * columns + i], 2);
    for (std::size_t t = 0; t < tokens; ++t) x += std::pow(taken->input[t * columns + i], 2);
    unit[i] = w * x > 0 ? 1 / std::sqrt(w * x) : 0;
  }
  for (std::size_t r = 0; r < taken->rows.size(); ++r) {
    for (std::size_t t = 0; t < tokens; ++t) wanted[r * tokens + t] = probe.target(t, taken->rows[r]);
  }
  std::vector<double> scaled(columns);
  const Apply forward = [&](const std::vector<double>& from, std::vector<double>& to) {
    for (std::size_t i = 0; i < columns; ++i) scaled[i] = from[i] * unit[i];
    for (std::size_t r = 0; r < taken->rows.size(); ++r) {
      const float* w = &taken->weight[r * columns];
      for (std::size_t t = 0; t < tokens; ++t) {
        const float* x = &taken->input[t * columns];
        double sum = 0;
        for (std::size_t i = 0; i < columns; ++i) sum += static_cast<double>(w[i] * x[i]) * scaled[i];
        to[r * tokens + t] = sum;
      }
    }
  };
  const Apply back = [&](const std::vector<double>& from, std::vector<double>& to) {
    std::ranges::fill(to, 0);
    for (std::size_t r = 0; r < taken->rows.size(); ++r) {
      const float* w = &taken->weight[r * columns];
      for (std::size_t t = 0; t < tokens; ++t) {
        const float* x = &taken->input[t * columns];
        for (std::size_t i = 0; i < columns; ++i)
          to[i] += from[r * tokens + t] * static_cast<double>(w[i] * x[i]);
      }
    }
    for (std::size_t i = 0; i < columns; ++i) to[i] *= unit[i];
  };
  std::vector<double> factors = least_squares(columns, std::move(wanted), forward, back, steps);
  for (std::size_t i = 0; i < columns; ++i) factors[i] = unit[i] > 0 ? factors[i] * unit[i] : 1;
  return factors;
}

std::optional<std::vector<std::size_t>> match_columns(OpCase& c, const WeightProbe& probe) {
  // So many tokens identify a column among all.
  constexpr std::size_t kTokens = 8;
  const std::size_t columns = probe.cols(), tokens = std::min(c.tokens(), kTokens);
  if (c.width() < columns || c.tokens() < 2) return std::nullopt;
  const std::size_t wanted_rows = 3 * columns;
  const std::size_t steps = steps_for(
      2.0 * static_cast<double>(std::min(wanted_rows, c.width())) * static_cast<double>(tokens * columns), c,
      "other orders of columns");
  if (steps == 0) return std::nullopt;
  const auto taken = take_rows(c, probe, wanted_rows);
  if (!taken) return std::nullopt;
  const Apply forward = [&](const std::vector<double>& from, std::vector<double>& to) {
    for (std::size_t r = 0; r < taken->rows.size(); ++r) {
      double sum = 0;
      for (std::size_t i = 0; i < columns; ++i) sum += taken->weight[r * columns + i] * from[i];
      to[r] = sum;
    }
  };
  const Apply back = [&](const std::vector<double>& from, std::vector<double>& to) {
    std::ranges::fill(to, 0);
    for (std::size_t r = 0; r < taken->rows.size(); ++r) {
      for (std::size_t i = 0; i < columns; ++i) to[i] += from[r] * taken->weight[r * columns + i];
    }
  };
  // What each column of the weight is multiplied by, if the outputs are right.
  std::vector<float> seen(columns * tokens), given(columns * tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t token = t * (c.tokens() - 1) / std::max<std::size_t>(tokens - 1, 1);
    std::vector<double> wanted(taken->rows.size());
    for (std::size_t r = 0; r < wanted.size(); ++r) wanted[r] = probe.target(token, taken->rows[r]);
    const std::vector<double> inputs = least_squares(columns, std::move(wanted), forward, back, steps);
    for (std::size_t i = 0; i < columns; ++i) {
      seen[i * tokens + t] = static_cast<float>(inputs[i]);
      given[i * tokens + t] = taken->input[token * columns + i];
    }
  }
  std::vector<std::size_t> order(columns, columns);
  for (std::size_t i = 0; i < columns; ++i) {
    std::size_t best = columns;
    float nearest = INFINITY;
    for (std::size_t j = 0; j < columns; ++j) {
      float distance = 0;
      for (std::size_t t = 0; t < tokens && distance < nearest; ++t)
        distance += std::pow(seen[i * tokens + t] - given[j * tokens + t], 2.0F);
      if (distance < nearest) nearest = distance, best = j;
    }
    if (best == columns || order[best] != columns) return std::nullopt;  // two want the same input
    order[best] = i;
  }
  return order;
}

}  // namespace doppler::diagnosis
