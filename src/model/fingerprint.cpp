#include "model/fingerprint.h"

#include <algorithm>
#include <array>

namespace doppler {

Fingerprint fingerprint_of(const Weights& weights) {
  Fingerprint fingerprint;
  constexpr std::size_t kPlaces = 16, kBytes = 64;
  for (const TensorView& tensor : weights.tensors()) {
    fingerprint.add(std::as_bytes(std::span(tensor.name)));
    fingerprint.add(std::as_bytes(std::span(tensor.shape)));
    const std::uint64_t bytes = tensor.bytes();
    std::array<std::byte, kBytes> piece{};
    const auto most =
        std::span(piece).first(static_cast<std::size_t>(std::min<std::uint64_t>(kBytes, bytes)));
    for (std::size_t i = 0; i < kPlaces; ++i) {
      // A file that can no longer be read is an error where its weights are used.
      (void)read_bytes(tensor, (bytes - most.size()) / (kPlaces - 1) * i, most);
      fingerprint.add(most);
    }
  }
  return fingerprint;
}

}  // namespace doppler
