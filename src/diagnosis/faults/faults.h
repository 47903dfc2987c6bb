// Faults: what can be put into a model on purpose, to measure whether the doctor finds it. Each is a way in
// which engines have really run and spoken garbage. Only inject() puts one in, and only into the subject it
// is given.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/fault.h"
#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis {

enum class FaultKind : std::uint8_t {
  kDescription,  // ModelSpec or plan say something else than the model: whoever reads them is wrong alike
  kData,         // weights or tokenizer are not what they should be
  kExecution,    // everything that is read is right, and a backend, a cache or the sampler is not
};
std::string_view name_of(FaultKind kind);

// Where a fault first shows in a step over a whole prompt, or in a later step.
struct FaultPlace {
  Stage stage = Stage::kNone;
  int layer = -1;
  // When a run is wrong there: over a fresh prompt; only in later steps of one token, in a second sequence
  // after clear(), beside a second slot, from one run to the next, in several tokens a submission; already in
  // the ids of a prompt; in the choice from right logits.
  enum class When : std::uint8_t { kPrompt, kDecode, kAgain, kBeside, kRepeated, kSubmit, kText, kChoice };
  When when = When::kPrompt;
  std::string key() const { return stage_key(stage, layer); }
};

struct FaultInfo {
  std::string_view name;
  FaultKind kind = FaultKind::kDescription;
  std::string_view cause;    // the id of causes.h that a diagnosis should give
  std::string_view models;   // which it applies to; empty: all
  std::string_view meaning;  // one line
};

// In the order of kinds, then of a step.
std::span<const FaultInfo> all_faults();

// Whether it applies to the subject: the model has what it breaks, on the backend that is examined.
bool applies(std::string_view name, const Subject& subject);

// Puts the fault in; what it needs lives as long as the subject. Says where it shows first. Errors: kUsage
// for an unknown name, with the nearest ones, and for one that does not apply, saying to what it does.
Result<FaultPlace> inject(std::string_view name, Subject& subject);

}  // namespace doppler::diagnosis
