// SHA-256 (FIPS 180-4) as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace doppler {

// Two lower-case hexadecimal digits a byte.
std::string hex_digits(std::span<const std::byte> bytes);

// 64 hexadecimal digits, as sha256sum prints them; none where the system has no SHA-256.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace doppler
