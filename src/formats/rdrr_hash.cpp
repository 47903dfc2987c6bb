#include "formats/rdrr_hash.h"

#include "base/sha256.h"

namespace doppler {

std::string_view name_of(RdrrHash kind) {
  return kind == RdrrHash::kSha256 ? "sha256" : "blake3";
}

std::optional<RdrrHash> rdrr_hash_named(std::string_view name) {
  for (const RdrrHash kind : {RdrrHash::kSha256, RdrrHash::kBlake3}) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

Result<RdrrHasher> RdrrHasher::create(RdrrHash kind) {
  if (kind == RdrrHash::kBlake3) return RdrrHasher(Blake3());
  auto sha256 = system::Hasher::create(system::HashKind::kSha256);
  if (!sha256) {
    return fail(ErrorCode::kUnsupported,
                "The system's cryptographic library has no SHA-256. Choose the hash blake3.");
  }
  return RdrrHasher(std::move(*sha256));
}

void RdrrHasher::add(std::span<const std::byte> bytes) {
  std::visit([bytes](auto& hasher) { hasher.add(bytes); }, hasher_);
}

std::string RdrrHasher::finish() {
  return std::visit([](auto& hasher) { return hex_digits(hasher.finish()); }, hasher_);
}

}  // namespace doppler
