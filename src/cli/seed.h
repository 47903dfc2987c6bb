// How tokens are drawn: the seed, random unless somebody gives one, settings without effect, and guesses.
#pragma once

#include <string>

#include "cli/settings.h"

namespace doppler::cli {

// For the commands that answer people; those whose results are compared leave the seed at its default.
void choose_seed(const Settings& settings, GenerateOptions& options);

// Warns of settings that narrow a choice where the model's or the command's own temperature of 0 leaves none;
// a 0 that the user gives contradicts them (config/conflicts.h). `options`: with the settings applied.
void tell_idle_sampling(const Settings& settings, const GenerateOptions& options);

// Words behind the rate of tokens: what guessing ahead has brought; empty if nothing was guessed.
std::string guesses_text(const Timings& timings);

}  // namespace doppler::cli
