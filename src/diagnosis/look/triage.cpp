#include "diagnosis/look/triage.h"

#include <algorithm>

#include "diagnosis/ailments.h"

namespace doppler::diagnosis {

std::vector<Symptom> triage(const TriageInput& input) {
  std::vector<Symptom> findings;
  // With NaN in a run all other numbers are consequences, except those that show why values grew.
  const bool broken = !std::ranges::all_of(input.run.stages, [](const StageRecord& record) {
    return record.prompt.finite() && record.decode.finite();
  });
  for (const Ailment* ailment : ailments(AskedBy::kDebug)) {
    if (!broken || ailment->is_cause_of_nan) ailment->judge(input, findings);
  }
  return findings;
}

}  // namespace doppler::diagnosis
