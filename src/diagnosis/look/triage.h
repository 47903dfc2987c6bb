// Triage: the ailments (diagnosis/ailments.h) that show in a debug_run. Without a reference it can tell that
// something is wrong and where to look first, not which values would be right.
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
  bool sick = true;   // false: worth knowing, but healthy models show it, too
  std::string text;   // the finding, with its numbers
  std::string next;   // the command to run next
  Json numbers;       // the numbers for programs
};

struct TriageInput {
  const DebugRun& run;
  const ModelSpec& spec;
  std::string model;                // as it was named on the command line
  std::optional<std::string> text;  // generated; nothing without a tokenizer
  bool prompt_is_text = false;      // the prompt is text, not token ids from the user
  std::uint32_t known_ids = 0;      // the first id without a token; 0: every id has one
};

// All findings of the table of ailments about a run, in the table's order.
std::vector<Symptom> triage(const TriageInput& input);

}  // namespace doppler::diagnosis
