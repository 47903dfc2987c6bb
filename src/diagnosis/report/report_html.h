// A comparison as one HTML page that needs nothing but a browser: no network, no other file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
  std::string looked;               // where the findings come from, or why there are none: a sentence
};

// The page's data. Errors by token are 10 log10(error / allowed), whole numbers from -99 to 126; -100 for no
// error, 127 for NaN; in long prompts `bin` tokens share one number, so that the page stays below 1 MB
// whatever the prompt. Of `values`, `expected` is the truth and `found` what was compared with it.
Json report_json(const Comparison& comparison, const ReportContext& context);

// The page of a comparison, around report_json()'s object.
std::string report_html(const Comparison& comparison, const ReportContext& context);

// The stages with these names as a step computes them, with their meanings: the rows of a map.
Json order_json(const std::vector<std::string_view>& names);

}  // namespace doppler::diagnosis
