// What `doctor --fix` can do about a diagnosis.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/repaired_copy.h"
#include "diagnosis/doctor/doctor.h"

namespace doppler::cli {

// What a program can do about the findings, and a line for each that it can do nothing about.
struct Remedy {
  convert::Changes changes;
  std::vector<std::string> done, left;  // sentences
};

// `source`: the model's original, whose tokenizer replaces a faulty one as a whole; empty: none is known.
Remedy find_remedy(const diagnosis::Diagnosis& diagnosis, const ModelSpec& spec,
                   const std::filesystem::path& model, const std::filesystem::path& source);

}  // namespace doppler::cli
