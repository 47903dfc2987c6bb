// SHA-256 (FIPS 180-4) by the system's cryptographic library.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace doppler::system {

// Nothing only where the library has no SHA-256 at all (a provider that was switched off).
std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes);

}  // namespace doppler::system
