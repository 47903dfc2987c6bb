// Any bytes as a safetensors file: an error, or a store whose tensors cover the data exactly and can be
// decoded.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  doppler::TensorStore store;
  const auto bytes = std::as_bytes(std::span(data, size));
  const doppler::Status status = doppler::parse_safetensors(bytes, "The file", store);
  if (!status) {
    if (status.error().message.empty() || status.error().message.size() > 2000) std::abort();
    return 0;
  }
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : store.tensors()) {
    if (doppler::byte_size(tensor.dtype, tensor.shape) != tensor.data.size()) std::abort();
    total += tensor.data.size();
    std::vector<float> values(*doppler::element_count(tensor.shape));
    (void)doppler::decode_f32(tensor, 0, values);
    (void)doppler::slice_rows(tensor, tensor.rows() / 2, tensor.rows() / 2, "half");
    (void)doppler::take_matrix(tensor, tensor.matrices() / 2);
  }
  if (total != store.total_bytes() || total > size) std::abort();
  if (!store.align()) std::abort();
  for (const auto& [name, tensor] : store.tensors()) {
    if (!doppler::aligned(tensor)) std::abort();
  }
  return 0;
}
