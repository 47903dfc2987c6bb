// The system's facts about the processor. Highway finds out the rest by itself.
#pragma once

#include <string>

namespace doppler::system {

// As its maker calls it; "unknown" where the system does not say.
std::string processor_name();

// Arm's dot product instructions (FEAT_DotProd); false on other processors.
bool has_arm_dot_product();
// Its instructions that multiply matrices of 8-bit numbers (FEAT_I8MM).
bool has_arm_int8_matrices();

}  // namespace doppler::system
