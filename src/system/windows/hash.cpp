#include "system/hash.h"

#include "system/windows/handles.h"
// after windows.h
#include <bcrypt.h>

#include <algorithm>

namespace doppler::system {
namespace {

bool hash_in_pieces(BCRYPT_HASH_HANDLE hash, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(bytes.size() < kMostAtOnce ? bytes.size() : kMostAtOnce);
    auto* const data = reinterpret_cast<PUCHAR>(const_cast<std::byte*>(piece.data()));  // is only read
    if (::BCryptHashData(hash, data, static_cast<ULONG>(piece.size()), 0) < 0) return false;
    bytes = bytes.subspan(piece.size());
  }
  return true;
}

}  // namespace

struct Hasher::Inner {
  BCRYPT_ALG_HANDLE algorithm = nullptr;
  BCRYPT_HASH_HANDLE hash = nullptr;
  std::size_t size = 0;
  bool good = true;
  ~Inner() {
    if (hash != nullptr) ::BCryptDestroyHash(hash);
    if (algorithm != nullptr) ::BCryptCloseAlgorithmProvider(algorithm, 0);
  }
};

Hasher::Hasher(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

std::optional<Hasher> Hasher::create(HashKind kind) {
  auto inner = std::make_unique<Inner>();
  inner->size = kind == HashKind::kSha1 ? 20 : 32;
  const wchar_t* const name = kind == HashKind::kSha1 ? BCRYPT_SHA1_ALGORITHM : BCRYPT_SHA256_ALGORITHM;
  if (::BCryptOpenAlgorithmProvider(&inner->algorithm, name, nullptr, 0) < 0) return std::nullopt;
  if (::BCryptCreateHash(inner->algorithm, &inner->hash, nullptr, 0, nullptr, 0, 0) < 0) return std::nullopt;
  return Hasher(std::move(inner));
}

void Hasher::add(std::span<const std::byte> bytes) {
  inner_->good = hash_in_pieces(inner_->hash, bytes) && inner_->good;
}

std::vector<std::byte> Hasher::finish() {
  std::vector<std::byte> digest(inner_->size);
  auto* const out = reinterpret_cast<PUCHAR>(digest.data());
  const bool done = ::BCryptFinishHash(inner_->hash, out, static_cast<ULONG>(digest.size()), 0) >= 0;
  if (!done || !inner_->good) digest.clear();
  return digest;
}

std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes) {
  auto hasher = Hasher::create(HashKind::kSha256);
  if (!hasher) return std::nullopt;
  hasher->add(bytes);
  const std::vector<std::byte> whole = hasher->finish();
  std::array<std::byte, 32> digest{};
  if (whole.size() != digest.size()) return std::nullopt;
  std::copy(whole.begin(), whole.end(), digest.begin());
  return digest;
}

}  // namespace doppler::system
