// The two hashes by which RDRR packages name their shards and groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/blake3.h"
#include "base/result.h"
#include "system/hash.h"

namespace doppler {

enum class RdrrHash : std::uint8_t { kSha256, kBlake3 };

std::string_view name_of(RdrrHash kind);  // "sha256", "blake3"
std::optional<RdrrHash> rdrr_hash_named(std::string_view name);

// A hash of bytes that come in pieces, as 64 hexadecimal digits.
class RdrrHasher {
 public:
  // Errors: kUnsupported where the system's library has no SHA-256.
  static Result<RdrrHasher> create(RdrrHash kind);
  void add(std::span<const std::byte> bytes);
  std::string finish();  // nothing may be added afterwards

 private:
  explicit RdrrHasher(std::variant<system::Hasher, Blake3> hasher) : hasher_(std::move(hasher)) {}
  std::variant<system::Hasher, Blake3> hasher_;
};

}  // namespace doppler
