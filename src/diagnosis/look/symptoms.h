// The symptom of each ailment in a run's measurements, one function each; diagnosis/ailments.cpp has the
// table. Every threshold has its reason beside it, and healthy models pass without a finding.
#pragma once

#include <vector>

#include "diagnosis/look/triage.h"

namespace doppler::diagnosis::symptoms {

void not_finite(const TriageInput& input, std::vector<Symptom>& findings);
void embedding_rows(const TriageInput& input, std::vector<Symptom>& findings);
void exploding(const TriageInput& input, std::vector<Symptom>& findings);
void spike(const TriageInput& input, std::vector<Symptom>& findings);
void dead_stage(const TriageInput& input, std::vector<Symptom>& findings);
void zero_rows(const TriageInput& input, std::vector<Symptom>& findings);
void head_rows(const TriageInput& input, std::vector<Symptom>& findings);
void same_logits(const TriageInput& input, std::vector<Symptom>& findings);
void uniform_logits(const TriageInput& input, std::vector<Symptom>& findings);
void overconfident(const TriageInput& input, std::vector<Symptom>& findings);
void decode_unlike_prefill(const TriageInput& input, std::vector<Symptom>& findings);
void pad_wins(const TriageInput& input, std::vector<Symptom>& findings);
void prompt_loss(const TriageInput& input, std::vector<Symptom>& findings);
void gibberish(const TriageInput& input, std::vector<Symptom>& findings);
void repeats(const TriageInput& input, std::vector<Symptom>& findings);

}  // namespace doppler::diagnosis::symptoms
