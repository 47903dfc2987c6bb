// Loading a model that the loader refuses: what the refusal says of config.json, and the files contradict, is
// repaired in memory, so that what else is wrong is found, too.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis {

// Whether an error says something of the model's files, and not of the call.
bool is_about_files(const Error& error);

// `load` loads the model with these settings of its config.json changed; none at first. Adds to `refused`
// what was repaired, or what nothing repairs. Errors: the last refusal.
Result<Loaded> load_repaired(const std::filesystem::path& model, Diagnosis& refused,
                             const std::function<Result<Loaded>(const std::vector<Fix>& settings)>& load);

}  // namespace doppler::diagnosis
