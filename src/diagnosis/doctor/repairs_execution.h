// The traces of execution faults: patterns in the places of wrong values and in the values found there.
#pragma once

#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis {

struct ExecutionHints {
  std::size_t prompt_tokens = SIZE_MAX;  // rows from here on were computed one at a time
  const StageRows* again = nullptr;  // the same run once more on the same backend; null: it was not repeated
};

// The rows by which a wrong op should be judged: those of the prompt, else the first wrong one of decoding.
std::vector<std::size_t> rows_to_explain(const OpCase& opcase, const ExecutionHints& hints);

// Runs before the catalogue of repairs: patterns that no repair of an op can show. True if one fits.
bool explain_execution(OpCase& opcase, const ExecutionHints& hints, Explanation& explanation);

// Runs after it: if no repair fits, the places of the wrong values alone may explain them.
void explain_by_place(const OpCase& opcase, const ExecutionHints& hints, Explanation& explanation);

}  // namespace doppler::diagnosis
