// Values of a model's description as fixes: what a repair, or a model that is right, would set.
#pragma once

#include <string>
#include <vector>

#include "diagnosis/doctor/fix.h"
#include "model/spec.h"

namespace doppler::diagnosis {

// A value of the rotary embedding, "theta", "scaling" or "rotary_dim": one spec has one for all layers,
// another one for each kind, so that both paths are given, of which one is the model's.
std::vector<Fix> rope_setting(AttentionKind kind, const std::string& value, const std::string& json);
// The scaling in config.json's words, with the base that it is meant for ("rope_theta"); empty for lists of
// divisors, which are no words.
std::string scaling_text(const RopeSpec& rope);
// A number as JSON, in as few digits as give it again.
std::string exact_text(double number);

struct SettingBetween {
  std::string cause;  // an id of all_causes()
  Fix fix;
};
// What makes the first description the second, as far as files have words for it.
std::vector<SettingBetween> settings_between(const ModelSpec& ours, const ModelSpec& right);

}  // namespace doppler::diagnosis
