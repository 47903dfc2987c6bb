#include "system/hash.h"

#include "system/windows/handles.h"
// after windows.h
#include <bcrypt.h>

namespace doppler::system {
namespace {

bool add(BCRYPT_HASH_HANDLE hash, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(bytes.size() < kMostAtOnce ? bytes.size() : kMostAtOnce);
    auto* const data = reinterpret_cast<PUCHAR>(const_cast<std::byte*>(piece.data()));  // is only read
    if (::BCryptHashData(hash, data, static_cast<ULONG>(piece.size()), 0) < 0) return false;
    bytes = bytes.subspan(piece.size());
  }
  return true;
}

}  // namespace

std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest{};
  BCRYPT_ALG_HANDLE algorithm = nullptr;
  if (::BCryptOpenAlgorithmProvider(&algorithm, BCRYPT_SHA256_ALGORITHM, nullptr, 0) < 0) return std::nullopt;
  BCRYPT_HASH_HANDLE hash = nullptr;
  bool done = ::BCryptCreateHash(algorithm, &hash, nullptr, 0, nullptr, 0, 0) >= 0;
  done = done && add(hash, bytes) &&
         ::BCryptFinishHash(hash, reinterpret_cast<PUCHAR>(digest.data()), digest.size(), 0) >= 0;
  if (hash != nullptr) ::BCryptDestroyHash(hash);
  ::BCryptCloseAlgorithmProvider(algorithm, 0);
  if (!done) return std::nullopt;
  return digest;
}

}  // namespace doppler::system
