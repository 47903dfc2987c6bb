// Model files with random weights of a published shape: for measuring without a download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "convert/mix.h"
#include "convert/shapes.h"

namespace doppler::convert {

struct SynthOptions {
  std::uint64_t seed = 1;
  std::size_t threads = 0;  // 0: one per core; the file is the same whatever the number
  std::function<void(double share, std::string_view what)> on_progress;
};

struct SynthReport {
  std::uint64_t parameters = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t token_bytes = 0;  // of the weights that the matmuls read for one token
};

// Writes a GGUF file. Memory stays at a few tens of MB whatever the model's size. Errors: kIo, after which no
// partial file is left; those of shape_spec.
Result<SynthReport> write_synthetic(const ModelShape& shape, const Mix& mix,
                                    const std::filesystem::path& path, const SynthOptions& options);

// Values of a row of the tensor `name`: a pure function of its arguments, on every machine. Near enough to a
// Gaussian of that mean and deviation (a sum of four uniform numbers: nothing beyond 3.5 deviations).
void random_row(std::uint64_t seed, std::string_view name, std::uint64_t row, float mean, float deviation,
                std::span<float> out);

}  // namespace doppler::convert
