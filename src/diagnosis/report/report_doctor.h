// A diagnosis as one HTML page that needs nothing but a browser: no network, no other file.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis {

// What was examined, and with what. All of it is untrusted text; what was not given is empty.
struct DiagnosisContext {
  std::string model, reference, source, backend;
  std::string injected;  // the fault that was put in first
};

// The page's data: to_json() and the rows of the map of ops.
Json report_json(const Diagnosis& diagnosis);
std::string report_html(const Diagnosis& diagnosis, const DiagnosisContext& context);

}  // namespace doppler::diagnosis
