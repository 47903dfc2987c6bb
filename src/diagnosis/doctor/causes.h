// Causes: every reason for a wrong model that the doctor can name, as one table. The ids are stable, so that
// scripts may rely on them; faults that are injected for tests have the same ids.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace doppler::diagnosis {

// Where a cause lies, and so where it is repaired.
enum class CauseKind : std::uint8_t {
  kDescription,  // what the model's configuration says
  kData,         // the weights, or the files that hold them
  kText,         // tokenizer, special tokens, chat template
  kExecution,    // the program that computes: a bug of Doppler or of a driver
  kOther,        // nothing in the catalogue fits
};
std::string_view name_of(CauseKind kind);

struct Cause {
  std::string_view id;
  CauseKind kind = CauseKind::kOther;
  std::string_view explanation;  // what is wrong, as a sentence
  std::string_view repair;       // what to do about it, as a sentence
};

// Sorted by kind, then in the order of a step.
std::span<const Cause> all_causes();
// Null if no cause has that id.
const Cause* find_cause(std::string_view id);

}  // namespace doppler::diagnosis
