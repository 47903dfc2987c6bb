// Triage: the ailments (diagnosis/ailments.h) that show in a debug_run. It needs no reference, so it can tell
// that something is wrong and where to look first, not what is right.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "diagnosis/look/debug_run.h"
#include "diagnosis/look/text_quality.h"

namespace doppler::diagnosis {

struct Symptom {
  std::string check;  // the ailment's id: "not_finite"
  bool sick = true;   // false: worth knowing, but healthy models do so, too
  std::string text;   // what was found, with the numbers
  std::string next;   // the command to run next
  Json numbers;       // the same for programs
};

struct TriageInput {
  const DebugRun& run;
  const ModelSpec& spec;
  std::string model;                // as it was named on the command line
  std::optional<std::string> text;  // generated; nothing without a tokenizer
  bool prompt_is_text = false;      // the prompt is language, not ids that somebody chose
  std::uint32_t known_ids = 0;      // ids from here on have no token; 0: all have
};

// All that the table of ailments finds in a run, in the table's order.
std::vector<Symptom> triage(const TriageInput& input);

}  // namespace doppler::diagnosis
