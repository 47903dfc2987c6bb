// SHA-256 (FIPS 180-4) of bytes in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace doppler {

// 64 hexadecimal digits, as sha256sum prints them.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace doppler
