// A comparison as one HTML page that needs nothing but a browser: no network, no other file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {

// What a report says beside the comparison itself. All of it may be hostile text.
struct ReportContext {
  std::string model, reference;  // as the user named them
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::string> pieces;  // the text of each prompt token; empty without a tokenizer
  Json findings;                    // of a diagnosis: the array of `doctor --json`; null: none
};

// What the page shows. Errors by token are tenths of powers of ten over what is allowed, whole numbers from
// -99 to 126; -100 for none, 127 for NaN; several tokens share one number (`bin`) where there are many, so
// that the page stays below 1 MB whatever the prompt.
Json report_json(const Comparison& comparison, const ReportContext& context);

// The page around report_json()'s object.
std::string report_html(const Json& report);

}  // namespace doppler::diagnosis
