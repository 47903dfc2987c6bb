// Where the milliseconds of a prompt go on a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace doppler::gpu {

struct PromptOptions {
  std::string model;
  std::uint32_t tokens = 512;
  int rounds = 15;
  // Folders of .wgsl files that take the place of the program's in a run of their own, to compare.
  std::vector<std::string> shaders;
};

// Prints whole steps by the host's clock and what the host does in them, then each kind of kernel by the
// device's clock: in its place in the step, and alone.
Status print_prompt_parts(const PromptOptions& options);

}  // namespace doppler::gpu
