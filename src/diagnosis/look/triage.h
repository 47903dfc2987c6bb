// Triage: the table of symptoms by which a wrong model shows itself, applied to a debug_run. It needs no
// reference, so it can tell that something is wrong and where to look first, not what is right; every
// threshold has its reason beside it, and models in good health pass without a finding.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "diagnosis/look/debug_run.h"
#include "diagnosis/look/text_quality.h"

namespace doppler {

struct Symptom {
  std::string check;  // the row of the table: "not_finite"
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

struct TriageRow {
  std::string_view check;
  std::string_view symptom;
  std::string_view looks_at;  // and the threshold with its reason, for the docs
  void (*judge)(const TriageInput& input, std::vector<Symptom>& findings);
};
// In the order in which a cause comes before its consequences.
std::span<const TriageRow> triage_table();

// All findings, in the table's order.
std::vector<Symptom> triage(const TriageInput& input);

}  // namespace doppler
