// Two runs' logits compared as distributions, row by row.
#pragma once

#include <span>

#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {

class LogitsMeter {
 public:
  // Adds one row of both, equally long. A row with values that are not finite counts as infinitely far.
  void add(std::span<const float> found, std::span<const float> expected);
  // Nothing if no row came.
  std::optional<LogitsAgreement> result() const;

 private:
  LogitsAgreement sums_;
};

}  // namespace doppler::diagnosis
