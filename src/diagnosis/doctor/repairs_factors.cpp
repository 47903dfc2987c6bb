// Repairs of products by fitting: scales of rows, columns or blocks that were lost, offsets of blocks, and
// the order of columns.
#include <algorithm>
#include <cmath>

#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/row_fit.h"

namespace doppler::diagnosis::repairs {
namespace {

// Factors this close to each other, relatively, are one factor.
constexpr double kSame = 1e-3;

struct Spread {
  double least = INFINITY, most = -INFINITY;
  void add(double x) { least = std::min(least, x), most = std::max(most, x); }
  bool one() const { return most - least <= kSame * std::max(std::abs(most), std::abs(least)); }
  std::string text() const {
    return one() ? fmt::format("{:.4g}", most) : fmt::format("{:.3g} to {:.3g}", least, most);
  }
};

// The wrong rows of the sample, and the factors that they want.
std::string wrong_rows(const WeightProbe& probe) {
  return probe.bad().size() == probe.rows() ? "the rows"
         : probe.bad().size() == 1          ? fmt::format("row {}", probe.bad()[0])
                                   : fmt::format("{} of the {} rows", probe.bad().size(), probe.rows());
}
Spread spread_of_wrong(const WeightProbe& probe, const RowFit& fit, std::size_t of_factor) {
  Spread spread;
  for (std::size_t i = 0; i < probe.sample().size(); ++i) {
    if (std::ranges::binary_search(probe.bad(), probe.sample()[i])) spread.add(fit.factors[i][of_factor]);
  }
  return spread;
}

// Sums over `block` columns each of values times inputs: [columns / block][tokens].
void add_sums(const OpCase& c, std::span<const float> values, std::size_t block, std::span<double> to) {
  const OpSetup::Rows& in = c.setup().inputs[0];
  for (std::size_t t = 0; t < c.tokens(); ++t) {
    for (std::size_t i = 0; i < in.width; ++i)
      to[i / block * c.tokens() + t] += static_cast<double>(values[i]) * in.data[t * in.width + i];
  }
}

// The factor of every row, not only of the sampled ones; 1 for rows that are right.
std::vector<double> row_scales(const OpCase& c, const WeightProbe& probe) {
  std::vector<double> scales(c.width(), 1);
  for (const std::size_t r : probe.bad()) {
    double products = 0, squares = 0;
    for (std::size_t t = 0; t < c.tokens(); ++t)
      products += probe.output(t, r) * probe.target(t, r), squares += probe.output(t, r) * probe.output(t, r);
    if (squares > 0) scales[r] = products / squares;
  }
  return scales;
}
ReadRow scaled_rows(const TensorView& w, std::vector<double> scales) {
  return [w, scales = std::move(scales)](std::uint64_t row, std::span<float> values) -> Status {
    DOPPLER_TRY(decode_f32(w, row * values.size(), values));
    for (float& x : values) x = static_cast<float>(x * scales[row]);
    return {};
  };
}

// One factor for each row: of all its values, or of what its blocks' scales make of them, minima left out.
bool scale_rows(OpCase& c, const WeightProbe& probe) {
  const TensorView& w = probe.weight();
  std::vector<float> row(w.cols()), scaled(w.cols());
  const auto whole = fit_rows(c, probe, 1, [&](std::size_t r, RowParts& parts) {
    for (std::size_t t = 0; t < c.tokens(); ++t) parts.parts[t] = probe.output(t, r);
    return true;
  });
  const bool few = probe.bad().size() * 2 < probe.rows();
  if (whole && whole->ratio <= 1) {
    const Spread spread = spread_of_wrong(probe, *whole, 0);
    c.keep({few || spread.one() ? "weight_scaled" : "scales_lost",
            fmt::format("{} of {} are multiplied by {}{}", wrong_rows(probe), w.name,
                        spread.one() ? "" : "scales of their own, ", spread.text()),
            {},
            whole->ratio,
            0.97});
    c.add_fix({Fix::Kind::kTensor,
               w.name,
               fmt::format("rows times {}", spread.text()),
               {},
               scaled_rows(w, row_scales(c, probe))});
    return true;
  }
  const auto without_minima = scales_only(w);
  if (!without_minima) return false;
  const auto parts_of = [&](std::size_t r, RowParts& parts) {
    if (!decode_f32(w, r * w.cols(), row) || !without_minima(r, scaled)) return false;
    add_sums(c, scaled, w.cols(), parts.parts);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] -= scaled[i];
    add_sums(c, row, w.cols(), parts.base);
    return true;
  };
  const auto scales = fit_rows(c, probe, 1, parts_of);
  if (!scales || scales->ratio > 1) return false;
  return c.keep(
      {"weight_scaled",
       fmt::format("the scales of the blocks in {} of {} ({}) are multiplied by {}", wrong_rows(probe),
                   w.name, dtype_name(w.dtype), spread_of_wrong(probe, *scales, 0).text()),
       {},
       scales->ratio,
       0.97});
}

bool scale_columns(OpCase& c, const WeightProbe& probe) {
  const auto factors = fit_columns(c, probe);
  if (!factors) return false;
  const TensorView& w = probe.weight();
  const double ratio = probe.ratio([&](std::uint64_t row, std::span<float> values) -> Status {
    DOPPLER_TRY(decode_f32(w, row * values.size(), values));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(values[i] * (*factors)[i]);
    return {};
  });
  if (ratio > 1) return false;
  Spread spread;
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < factors->size(); ++i) {
    if (std::abs((*factors)[i] - 1) < kSame) continue;
    if (wrong++ == 0) first = i;
    spread.add((*factors)[i]);
  }
  if (wrong == 0) return false;
  c.keep({"scales_lost",
          fmt::format("{} of {} {} multiplied by {}{}",
                      wrong == 1 ? fmt::format("column {}", first)
                                 : fmt::format("{} of the {} columns", wrong, factors->size()),
                      w.name, wrong == 1 ? "is" : "are", spread.one() ? "" : "scales of their own, ",
                      spread.text()),
          "Convert the tensor again with the scales of its inputs, or divide what it reads by them.", ratio,
          0.97});
  c.add_fix({Fix::Kind::kTensor,
             w.name,
             fmt::format("columns times {}", spread.text()),
             {},
             [w, factors = *factors](std::uint64_t row, std::span<float> values) -> Status {
               DOPPLER_TRY(decode_f32(w, row * values.size(), values));
               for (std::size_t i = 0; i < values.size(); ++i)
                 values[i] = static_cast<float>(values[i] * factors[i]);
               return {};
             }});
  return true;
}

// A scale, or an offset, for each block of a row.
bool fit_blocks(OpCase& c, const WeightProbe& probe, std::size_t block, bool offsets) {
  const TensorView& w = probe.weight();
  if (w.cols() % block != 0 || (w.cols() == block && !offsets)) return false;
  std::vector<float> row(w.cols()), rest(w.cols());
  const std::vector<float> ones(w.cols(), 1.0F);
  const ReadRow without_minima = offsets ? ReadRow() : scales_only(w);
  const auto fit = fit_rows(c, probe, w.cols() / block, [&](std::size_t r, RowParts& parts) {
    if (!decode_f32(w, r * w.cols(), row)) return false;
    if (offsets) {
      add_sums(c, ones, block, parts.parts);
      add_sums(c, row, w.cols(), parts.base);
      return true;
    }
    if (without_minima) {
      rest = row;
      if (!without_minima(r, row)) return false;
      for (std::size_t i = 0; i < row.size(); ++i) rest[i] -= row[i];
      add_sums(c, rest, w.cols(), parts.base);
    }
    add_sums(c, row, block, parts.parts);
    return true;
  });
  if (!fit || fit->ratio > 1) return false;
  Spread spread;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < fit->factors.size(); ++i) {
    if (!std::ranges::binary_search(probe.bad(), probe.sample()[i])) continue;
    for (const double f : fit->factors[i]) {
      if (std::abs(f - (offsets ? 0 : 1)) > kSame) spread.add(f), ++wrong;
    }
  }
  if (wrong == 0) return false;
  const bool damaged = !offsets && (is_quantised(w.dtype) || probe.bad().size() * 2 < probe.rows());
  return c.keep({offsets   ? "wrong_dequantisation"
                 : damaged ? "weight_scaled"
                           : "scales_lost",
                 offsets ? fmt::format("each block of {} values of {} gets an offset, {} in {}", block,
                                       w.name, spread.text(), wrong_rows(probe))
                         : fmt::format("each block of {} values in {} of {} is multiplied by a scale, {}",
                                       block, wrong_rows(probe), w.name, spread.text()),
                 {},
                 fit->ratio,
                 0.95});
}

}  // namespace

void weight_factors(OpCase& c) {
  // With weights of another precision than the recording's, so many free numbers fit the noise.
  if (c.explained()) return;
  const WeightProbe probe(c);
  if (scale_rows(c, probe) || scale_columns(c, probe) || weight_noise(c.setup(), c.context().rounding) > 0)
    return;
  for (const bool offsets : {false, true}) {
    for (const std::size_t block : {128, 64, 32, 16}) {
      if (fit_blocks(c, probe, block, offsets)) return;
    }
  }
}

void weight_columns(OpCase& c) {
  if (c.explained()) return;
  const WeightProbe probe(c);
  const auto order = match_columns(c, probe);
  if (!order) return;
  std::vector<float> row(probe.cols());
  const double ratio = probe.ratio([&](std::uint64_t r, std::span<float> values) -> Status {
    DOPPLER_TRY(decode_f32(probe.weight(), r * row.size(), row));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = row[(*order)[i]];
    return {};
  });
  if (ratio > 1) return;
  std::size_t moved = 0, first = probe.cols();
  for (std::size_t i = 0; i < order->size(); ++i) {
    if ((*order)[i] == i) continue;
    ++moved;
    first = std::min(first, i);
  }
  if (moved == 0) return;
  c.keep({"weight_permuted",
          fmt::format("{} of the {} columns of {} change places (column {} lies at {})", moved, order->size(),
                      probe.weight().name, first, (*order)[first]),
          "Undo the permutation of the columns: act-order's, or that of tensor-parallel shards.", ratio,
          0.98});
  std::string columns = "columns";
  for (const std::size_t from : *order) columns += fmt::format(" {}", from);
  c.add_fix({Fix::Kind::kTensor,
             probe.weight().name,
             columns,
             {},
             [w = probe.weight(), order = *order](std::uint64_t r, std::span<float> values) -> Status {
               std::vector<float> stored(values.size());
               DOPPLER_TRY(decode_f32(w, r * values.size(), stored));
               for (std::size_t i = 0; i < values.size(); ++i) values[i] = stored[order[i]];
               return {};
             }});
}

}  // namespace doppler::diagnosis::repairs
