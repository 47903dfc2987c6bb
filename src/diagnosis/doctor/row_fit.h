// Factors that a product's weight lacks, fitted: for each sampled row by itself from a few sums over its
// columns; or for all rows together, one factor for each column.
#pragma once

#include <functional>
#include <vector>

#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis {

// What a row's outputs are made of: output(token) = base(token) + sum over k of factor k * parts(k, token).
struct RowParts {
  std::vector<double> base;   // [tokens]
  std::vector<double> parts;  // [count][tokens]
};

struct RowFit {
  double ratio = 0;                          // misfit of the sampled outputs with the fitted factors
  std::vector<std::vector<double>> factors;  // for each row of WeightProbe::sample()
};

// Least squares for each sampled row. Nothing if the tokens are too few to fit `count` factors and still to
// contradict them, or a row's parts depend on each other.
std::optional<RowFit> fit_rows(const OpCase& opcase, const WeightProbe& probe, std::size_t count,
                               const std::function<bool(std::size_t row, RowParts& parts)>& read);

// The factor of each column with which the outputs of all rows agree best; nothing if rows and tokens are too
// few.
std::optional<std::vector<double>> fit_columns(OpCase& opcase, const WeightProbe& probe);

// For each column of the inputs the column of the weight that belongs to it, matched through what the
// inverted weight makes of the outputs; nothing if the weight has fewer rows than columns, or no such order
// is seen.
std::optional<std::vector<std::size_t>> match_columns(OpCase& opcase, const WeightProbe& probe);

}  // namespace doppler::diagnosis
