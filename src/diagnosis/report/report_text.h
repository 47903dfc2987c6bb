// A comparison in words: the verdict in plain sentences, and the table that compare prints.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {

// "q_rope of layer 5"; "final_norm"; "the logits of the decode steps".
std::string describe_place(const StageComparison& stage);

// The stage's error over the allowed one: the greatest of the whole difference and of those of its op alone.
// Up to 1 it agrees; infinite for NaN and for a stage that is not computed.
double excess_of(const StageComparison& stage);

// "×3.2", "×40", "×12k"; "NaN" for infinity.
std::string describe_excess(double excess);

// The result, in sentences for a person who did not ask for numbers. Never empty.
std::vector<std::string> verdict_of(const Comparison& comparison);

struct TableStyle {
  std::size_t width = 100;  // columns to fill; lines are cut there, but never below 40
  bool colour = false;
  bool all = false;  // a line for every stage, nothing folded
};

// Runs of stages that agree are one line; so are runs of stages that do not, except the first divergence and
// the stages right after it. Ends with the verdict.
std::string comparison_table(const Comparison& comparison, const TableStyle& style);

}  // namespace doppler::diagnosis
