// What execution faults leave behind: patterns in where the values are wrong, and what stands there instead.
#pragma once

#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis {

struct ExecutionHints {
  std::size_t prompt_tokens = SIZE_MAX;  // rows from here on were computed one at a time
  const StageRows* again = nullptr;  // the same run once more on the same backend; null: it was not repeated
};

// The rows by which a wrong op should be judged: those of the prompt, else the first wrong one of decoding.
std::vector<std::size_t> rows_to_explain(const OpCase& opcase, const ExecutionHints& hints);

// Before the catalogue: patterns that no repair of an op can show. True if one fits.
bool explain_execution(OpCase& opcase, const ExecutionHints& hints, Explanation& explanation);

// After it: if nothing fits, the place alone says something.
void explain_by_place(const OpCase& opcase, const ExecutionHints& hints, Explanation& explanation);

}  // namespace doppler::diagnosis
