#include "base/sha256.h"

#include "system/hash.h"

namespace doppler {

std::string hex_digits(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  const auto digest = system::sha256(bytes);
  return digest ? hex_digits(*digest) : std::string();
}

}  // namespace doppler
