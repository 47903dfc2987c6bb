// SHA-256 (FIPS 180-4) and SHA-1, which git names files by, from the system's cryptographic library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace doppler::system {

// Nothing only where the library has no SHA-256 at all (a provider that was switched off).
std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes);

enum class HashKind : std::uint8_t { kSha1, kSha256 };

// A hash of bytes that come in pieces.
class Hasher {
 public:
  // Nothing where the library lacks the hash.
  static std::optional<Hasher> create(HashKind kind);
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();
  void add(std::span<const std::byte> bytes);
  // 20 or 32 bytes; empty if the library failed. Nothing may be added afterwards.
  std::vector<std::byte> finish();

 private:
  struct Inner;
  explicit Hasher(std::unique_ptr<Inner> inner);
  std::unique_ptr<Inner> inner_;
};

}  // namespace doppler::system
