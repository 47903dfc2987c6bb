// Whole safetensors files in one call, tensors of ids as integers, and how far logits differ.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace doppler::testing {

inline Status write_tensors(const std::filesystem::path& file, std::span<const TensorView> tensors,
                            const std::map<std::string, std::string>& metadata = {}) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const TensorView& tensor : tensors) entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  DOPPLER_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(file, entries, metadata));
  for (const TensorView& tensor : tensors) DOPPLER_TRY(writer.write(tensor.data));
  return writer.finish();
}

template <typename Stored>
std::vector<std::int64_t> widened(std::span<const std::byte> bytes) {
  std::vector<Stored> values(bytes.size() / sizeof(Stored));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Stored));
  return {values.begin(), values.end()};
}
// The ids of a recording.
inline Result<std::vector<std::int64_t>> read_ids(const TensorView& tensor) {
  if (tensor.dtype == DType::kI32) return widened<std::int32_t>(tensor.data);
  if (tensor.dtype == DType::kI64) return widened<std::int64_t>(tensor.data);
  return fail(ErrorCode::kUnsupported, "The tensor {} has no ids but {}.", tensor.name,
              dtype_name(tensor.dtype));
}

// The root mean square of what two rows differ by; infinite for rows of two lengths.
inline double rms_between(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace doppler::testing
