// Tolerances by backend, and the verdicts of a Comparison.
#include <array>

#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {
namespace {

// Float32 weights and activations everywhere; the numbers are shares of a stage's largest value.
struct ToleranceRow {
  std::string_view backend;
  double plain, softcapped;
};
constexpr std::array<ToleranceRow, 2> kTolerances = {{
    // transformers in float32 differs from itself in double by 2e-6, with softcapped scores (Gemma 2) by
    // 4e-5, with scores that are not scaled (Gemma 4) by 5e-5: five times that covers other summation orders
    // and stays far below any real fault.
    {"reference", 1e-5, 2e-4},
    // Float32 accumulation in another order: rows of thousands of products lose about 1e-5 each layer; a
    // wrong constant or index moves a stage by 1e-2 or more.
    {"cpu", 2e-4, 1e-3},
}};

// Backends that round on purpose. Measured on the fixtures, whose two or three layers of random weights pass
// errors on like real ones: the worst stage lies 1.1e-3 (f16 cache) and 0.075 (8-bit blocks) from the
// reference.
struct RoundingRow {
  Rounding rounding;
  double tolerance;
};
constexpr std::array<RoundingRow, 3> kRoundings = {{
    {Rounding::kHalfCache, 4e-3},
    {Rounding::kHalf, 0.02},  // a half is 2^-11 of a value, a step of 8 bits about 2^-8
    {Rounding::kEightBits, 0.15},
}};

}  // namespace

double stage_tolerance(std::string_view backend, Rounding rounding, bool softcapped) {
  for (const RoundingRow& row : kRoundings) {
    if (row.rounding == rounding) return row.tolerance;
  }
  for (const ToleranceRow& row : kTolerances) {
    if (row.backend == backend) return softcapped ? row.softcapped : row.plain;
  }
  return softcapped ? 1e-3 : 2e-4;
}

Disagreement StageComparison::disagreement() const {
  if (stage == Stage::kNone) return Disagreement::kNotComputed;
  if (execution && !execution->agrees()) return Disagreement::kExecution;
  if (description && !description->agrees()) return Disagreement::kDescription;
  return first_bad_token && !explained ? Disagreement::kTotal : Disagreement::kNone;
}

const StageComparison* Comparison::first_divergence() const {
  const StageComparison* outside = nullptr;
  for (const StageComparison& c : stages) {
    const Disagreement why = c.disagreement();
    if (why == Disagreement::kNone) continue;
    if (why != Disagreement::kTotal) return &c;
    // Inherited from an op that may yet be found only where this stage's own op is known to be right.
    if (outside == nullptr) outside = &c;
    if (!c.execution || !c.description) break;
  }
  if (outside != nullptr) return outside;
  return decode && !decode->agrees() ? &*decode : nullptr;
}

}  // namespace doppler::diagnosis
