// Values of settings: from the user's notation to the one form that the rest of the program reads.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"
#include "config/setting.h"

namespace doppler::config {

// The value in its canonical form: numbers as JSON numbers, kTexts and kLayers as arrays, kBiases as an
// object. `text`: it comes from a command line, where lists are written "a,b" and numbers as text. Null gives
// SettingInfo::off. Errors: kUsage, whose message completes "but it must be …".
Result<Json> canonical_value(const SettingInfo& info, const Json& value, bool text);

// "a whole number between 1 and 64", "one of auto, gpu, cpu and reference".
std::string describe_type(const SettingInfo& info);

}  // namespace doppler::config
