// StepInput: the tokens that a step computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace doppler {

// Some tokens of one or several sequences. The vectors are parallel, one entry per token. A slot is a place
// for a sequence in the KV cache; the tokens of a slot come in order and continue where its cache ends.
struct StepInput {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> slots;
  std::vector<std::uint8_t> wants_logits;
  // Whether all but the first are guesses that are to be checked: each token is then computed as in a step of
  // its own, as far as Backend::rows_that_agree() says.
  bool guesses = false;
  // The step's number in trace lines: 0 for a prompt, then the decode steps from 1; -1: not counted.
  std::int64_t trace_step = -1;
  std::size_t size() const { return ids.size(); }
  void add(std::int32_t id, std::uint64_t position, std::uint32_t slot, bool logits) {
    ids.push_back(id);
    positions.push_back(static_cast<std::int32_t>(position));
    slots.push_back(static_cast<std::int32_t>(slot));
    wants_logits.push_back(logits ? 1 : 0);
  }
};

// How many tokens each slot has in the step.
inline std::map<std::uint32_t, std::uint64_t> tokens_by_slot(const StepInput& input) {
  std::map<std::uint32_t, std::uint64_t> tokens;
  for (const std::int32_t slot : input.slots) ++tokens[static_cast<std::uint32_t>(slot)];
  return tokens;
}

}  // namespace doppler
