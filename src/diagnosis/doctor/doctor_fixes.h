// The fixes of findings in terms of the files at hand.
#pragma once

#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis::doctor {

// Gives each setting the file and key that the spec says it came from, and names that key in the repair's
// sentence; fixes of values that stand in no file are left out.
void name_keys(const ModelSpec& spec, Finding& finding);

}  // namespace doppler::diagnosis::doctor
