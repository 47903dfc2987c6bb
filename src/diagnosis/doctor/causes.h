// Causes: every reason for a wrong model that the doctor can name, as one table. The ids are stable, so that
// scripts may rely on them; faults that are put in on purpose go by the same ids.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace doppler::diagnosis {

// Where a cause lies, and so who mends it.
enum class CauseKind : std::uint8_t {
  kDescription,  // what the model's configuration says
  kData,         // the weights, or the files that hold them
  kText,         // tokenizer, special tokens, chat template
  kExecution,    // the program that computes: a bug of ours, or of a driver
  kOther,        // nothing in the catalogue fits
};
std::string_view name_of(CauseKind kind);

struct Cause {
  std::string_view id;
  CauseKind kind = CauseKind::kOther;
  std::string_view explanation;  // what is wrong, as a sentence
  std::string_view repair;       // what to do about it, as a sentence
};

// Sorted by kind, then as a step meets them.
std::span<const Cause> all_causes();
// Null if there is none of that id.
const Cause* find_cause(std::string_view id);

}  // namespace doppler::diagnosis
