// A comparison as one HTML page that needs nothing but a browser: no network, no other file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {

// The contents of a report beside the comparison. All of it is untrusted text.
struct ReportContext {
  std::string model, reference;  // as the user named them
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::string> pieces;  // the text of each prompt token; empty without a tokenizer
  Json findings;                    // of a diagnosis: the array of `doctor --json`; null: none
};

// The page's data. Errors by token are 10 log10(error / allowed), whole numbers from -99 to 126; -100 for no
// error, 127 for NaN; in long prompts `bin` tokens share one number, so that the page stays below 1 MB
// whatever the prompt.
Json report_json(const Comparison& comparison, const ReportContext& context);

// The page around report_json()'s object.
std::string report_html(const Json& report);

}  // namespace doppler::diagnosis
