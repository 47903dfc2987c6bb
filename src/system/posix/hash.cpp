#include "system/hash.h"

#include <openssl/evp.h>

namespace doppler::system {

std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest{};
  auto* const out = reinterpret_cast<unsigned char*>(digest.data());
  if (EVP_Digest(bytes.data(), bytes.size(), out, nullptr, EVP_sha256(), nullptr) != 1) return std::nullopt;
  return digest;
}

}  // namespace doppler::system
