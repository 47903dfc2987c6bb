#include "system/hash.h"

#include <openssl/evp.h>

#include <utility>

namespace doppler::system {

std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest{};
  auto* const out = reinterpret_cast<unsigned char*>(digest.data());
  if (EVP_Digest(bytes.data(), bytes.size(), out, nullptr, EVP_sha256(), nullptr) != 1) return std::nullopt;
  return digest;
}

struct Hasher::Inner {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool good = true;
  ~Inner() { EVP_MD_CTX_free(context); }
};

Hasher::Hasher(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

std::optional<Hasher> Hasher::create(HashKind kind) {
  auto inner = std::make_unique<Inner>();
  const EVP_MD* const type = kind == HashKind::kSha1 ? EVP_sha1() : EVP_sha256();
  if (inner->context == nullptr || EVP_DigestInit_ex(inner->context, type, nullptr) != 1) return std::nullopt;
  return Hasher(std::move(inner));
}

void Hasher::add(std::span<const std::byte> bytes) {
  inner_->good = EVP_DigestUpdate(inner_->context, bytes.data(), bytes.size()) == 1 && inner_->good;
}

std::vector<std::byte> Hasher::finish() {
  std::vector<std::byte> digest(EVP_MAX_MD_SIZE);
  unsigned size = 0;
  const bool done =
      EVP_DigestFinal_ex(inner_->context, reinterpret_cast<unsigned char*>(digest.data()), &size) == 1;
  digest.resize(done && inner_->good ? size : 0);
  return digest;
}

}  // namespace doppler::system
