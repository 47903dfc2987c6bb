// Faults that can be injected into a model, to measure whether the doctor finds them. Each is a mistake that
// real engines have made. Only inject() puts one in, and only into the subject it is given.
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
  kDescription,  // ModelSpec or plan contradict the model: every backend is wrong in the same way
  kData,         // weights are not what they should be
  kText,         // tokenizer, chat template or the tokens that end an answer are not the model's
  kExecution,    // the inputs are right; a backend, a cache or the sampler is wrong
};
std::string_view name_of(FaultKind kind);

// Where a fault first shows in a step over a whole prompt, or in a later step.
struct FaultPlace {
  Stage stage = Stage::kNone;
  int layer = -1;
  // When a run is wrong there: in a fresh prompt; only in later steps of one token; in a second sequence
  // after clear(); beside a second slot; differently from run to run; in several tokens per submission;
  // already in the ids of a prompt; in the choice from right logits.
  enum class When : std::uint8_t { kPrompt, kDecode, kAgain, kBeside, kRepeated, kSubmit, kText, kChoice };
  When when = When::kPrompt;
  std::string key() const { return stage_key(stage, layer); }
};

struct FaultInfo {
  std::string_view name;
  FaultKind kind = FaultKind::kDescription;
  std::string_view cause;    // the id of causes.h that a diagnosis should give
  std::string_view models;   // the models it applies to; empty: all
  std::string_view meaning;  // one line
};

// In the order of kinds, then of a step.
std::span<const FaultInfo> all_faults();

// Whether the fault applies to the subject: its model has the part that the fault breaks, on the examined
// backend.
bool applies(std::string_view name, const Subject& subject);

// Puts the fault in; the memory it needs lives as long as the subject. Returns where it shows first. Errors:
// kUsage for an unknown name, with the nearest ones, and for a fault that does not apply, saying to which
// models it does.
Result<FaultPlace> inject(std::string_view name, Subject& subject);

}  // namespace doppler::diagnosis
