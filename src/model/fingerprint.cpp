#include "model/fingerprint.h"

#include <algorithm>

namespace doppler {

Fingerprint fingerprint_of(const Weights& weights) {
  Fingerprint fingerprint;
  constexpr std::size_t kPlaces = 16, kBytes = 64;
  for (const TensorView& tensor : weights.tensors()) {
    fingerprint.add(std::as_bytes(std::span(tensor.name)));
    fingerprint.add(std::as_bytes(std::span(tensor.shape)));
    const std::size_t most = std::min(kBytes, tensor.data.size());
    for (std::size_t i = 0; i < kPlaces; ++i)
      fingerprint.add(tensor.data.subspan((tensor.data.size() - most) / (kPlaces - 1) * i, most));
  }
  return fingerprint;
}

}  // namespace doppler
