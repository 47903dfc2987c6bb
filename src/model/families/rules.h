// The rules of all families, one file each; family.cpp lists them.
#pragma once

#include "model/family.h"

namespace doppler {

extern const FamilyRule kLlamaRule;
extern const FamilyRule kMistralRule;
extern const FamilyRule kQwen2Rule;
extern const FamilyRule kQwen3Rule;
extern const FamilyRule kPhi3Rule;
extern const FamilyRule kGemma2Rule;
extern const FamilyRule kGemma3Rule;

}  // namespace doppler
