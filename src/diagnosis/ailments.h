// Ailments: every check for a fault in a model, as one table. `debug` runs the checks that read the
// measurements of one run, `doctor` the others, which need the files, the weights, further runs or a
// recording.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler::diagnosis {

struct Symptom;
struct TriageInput;
namespace doctor {
struct Examination;
struct Outcome;
}  // namespace doctor

enum class AskedBy : std::uint8_t { kDebug, kDoctor };

struct Ailment {
  std::string_view id;    // stable, so that scripts may rely on it
  std::string_view asks;  // "are the files whole?"
  // Exactly one of the two is set: `judge` reads a run's measurements, `check` examines by itself.
  void (*judge)(const TriageInput& input, std::vector<Symptom>& findings) = nullptr;
  Result<doctor::Outcome> (*check)(const doctor::Examination& examination) = nullptr;
  bool is_cause_of_nan = false;  // judged also where values are NaN or infinite: others are then consequences

  AskedBy asked_by() const { return judge != nullptr ? AskedBy::kDebug : AskedBy::kDoctor; }
};

// In the order in which a person would ask: cheap checks that explain much come first, a cause before its
// consequences, and the recording before the backend, because a wrong description shows in both.
std::vector<const Ailment*> ailments(AskedBy by);

}  // namespace doppler::diagnosis
