// What users choose about a GPU: the same struct in the public LoadOptions, the settings below runtime.gpu,
// and the backend.
#pragma once

#include <cstdint>
#include <string>

namespace doppler {

struct GpuOptions {
  // Part of an adapter's name, or its number as doppler inspect --gpu counts; empty: the best real GPU.
  std::string adapter = {};
  // Tokens that are generated between two checks by the host, 1 to kMostSubmitTokens.
  std::uint32_t submit_tokens = 8;
  bool checked = false;  // kernels check every access to memory against their buffers (slower)
  bool poison = false;   // memory begins as NaN, so that a read before the first write shows

  // More would only delay a stop: from 16 on the host's share of the time is negligible.
  static constexpr std::uint32_t kMostSubmitTokens = 64;
};

}  // namespace doppler
