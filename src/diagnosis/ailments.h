// Ailments: all that is looked for in a model, as one table. `debug` asks for what shows in the measurements
// of one run, `doctor` for the rest, which takes the files, the weights, runs of its own or a recording.
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
  // One of the two: what a run's measurements tell, or an examination of its own.
  void (*judge)(const TriageInput& input, std::vector<Symptom>& findings) = nullptr;
  Result<doctor::Outcome> (*check)(const doctor::Examination& examination) = nullptr;
  bool is_cause_of_nan = false;  // judged also where values are NaN or infinite: others are then consequences

  AskedBy asked_by() const { return judge != nullptr ? AskedBy::kDebug : AskedBy::kDoctor; }
};

// In the order in which a person would ask: what is cheap and explains much comes first, a cause before its
// consequences, and the recording before the backend, because a wrong description shows in both.
std::span<const Ailment> all_ailments();
std::vector<const Ailment*> ailments(AskedBy by);

}  // namespace doppler::diagnosis
