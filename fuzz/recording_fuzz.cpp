// Any bytes as a recording: an error, or one that can be compared with itself (without a model) and agrees.
#include <cstdint>
#include <cstdlib>

#include "base/json.h"
#include "diagnosis/compare/compare_json.h"
#include "diagnosis/compare/compare_recordings.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  doppler::TensorStore store;
  if (!doppler::parse_safetensors(std::as_bytes(std::span(data, size)), "The file", store)) return 0;
  const auto recording = doppler::diagnosis::read_recording(std::move(store), "recording");
  if (!recording) {
    if (recording.error().message.empty() || recording.error().message.size() > 4000) std::abort();
    return 0;
  }
  const auto comparison = doppler::diagnosis::compare_recordings(*recording, *recording, nullptr, {});
  if (!comparison) {
    if (comparison.error().message.empty() || comparison.error().message.size() > 4000) std::abort();
    return 0;
  }
  for (const doppler::diagnosis::StageComparison& stage : comparison->stages) {
    if (!stage.agrees() || stage.error != 0) std::abort();
  }
  if (doppler::diagnosis::comparison_json(*comparison, "fuzz").empty()) std::abort();
  return 0;
}
