// Which of two tests compares a model's stages on a GPU in `make test`; the other one does in `make
// test-more`.
#pragma once

#include <algorithm>
#include <string_view>

namespace doppler::testing {

// With the reference's, by tests/backend/gpu_backend_test.cpp: models of many kinds. Those of all others are
// compared with transformers', by tests/diagnosis/fixtures_test.cpp.
inline constexpr std::string_view kGpuAgainstReference[] = {"llama", "gemma2", "gemma3", "phi",
                                                            "olmo3", "gpt2",   "cohere"};
inline bool is_gpu_against_reference(std::string_view model) {
  return std::ranges::find(kGpuAgainstReference, model) != std::end(kGpuAgainstReference);
}

}  // namespace doppler::testing
