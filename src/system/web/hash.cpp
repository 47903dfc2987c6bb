// SHA-1 and SHA-256 in plain loops (FIPS 180-4): a page's own are asynchronous, which callers here cannot
// wait for.
#include "system/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace doppler::system {
namespace {

constexpr std::size_t kBlock = 64;
using Words = std::array<std::uint32_t, 8>;

constexpr Words kSha1Start = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
constexpr Words kSha256Start = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kSha256Rounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t word_at(const std::byte* p) {
  std::uint32_t little;
  std::memcpy(&little, p, 4);
  return __builtin_bswap32(little);
}

void sha256_block(Words& state, const std::byte* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t t = 0; t < 16; ++t) w[t] = word_at(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[t - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + kSha256Rounds[t] + w[t];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Words sum = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < sum.size(); ++i) state[i] += sum[i];
}

void sha1_block(Words& state, const std::byte* block) {
  std::array<std::uint32_t, 80> w;
  for (std::size_t t = 0; t < 16; ++t) w[t] = word_at(block + 4 * t);
  for (std::size_t t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 80; ++t) {
    const std::uint32_t mixed = t < 20   ? ((b & c) ^ (~b & d)) + 0x5a827999
                                : t < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                                : t < 60 ? ((b & c) ^ (b & d) ^ (c & d)) + 0x8f1bbcdc
                                         : (b ^ c ^ d) + 0xca62c1d6;
    const std::uint32_t next = std::rotl(a, 5) + mixed + e + w[t];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  const Words sum = {a, b, c, d, e};
  for (std::size_t i = 0; i < sum.size(); ++i) state[i] += sum[i];
}

}  // namespace

struct Hasher::Inner {
  HashKind kind;
  Words state;
  std::uint64_t bytes = 0;
  std::array<std::byte, kBlock> rest{};  // bytes % kBlock of it are filled

  void take(const std::byte* block) {
    kind == HashKind::kSha1 ? sha1_block(state, block) : sha256_block(state, block);
  }
};

Hasher::Hasher(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

std::optional<Hasher> Hasher::create(HashKind kind) {
  const Words& start = kind == HashKind::kSha1 ? kSha1Start : kSha256Start;
  return Hasher(std::make_unique<Inner>(Inner{.kind = kind, .state = start}));
}

void Hasher::add(std::span<const std::byte> bytes) {
  Inner& to = *inner_;
  while (!bytes.empty()) {
    const std::size_t filled = to.bytes % kBlock, piece = std::min(kBlock - filled, bytes.size());
    std::memcpy(to.rest.data() + filled, bytes.data(), piece);
    to.bytes += piece;
    bytes = bytes.subspan(piece);
    if (to.bytes % kBlock == 0) to.take(to.rest.data());
  }
}

std::vector<std::byte> Hasher::finish() {
  Inner& to = *inner_;
  const std::uint64_t bits = to.bytes * 8;
  // A one bit, zeros up to the end of a block, and there the length in 64 bits.
  std::array<std::byte, kBlock + 8> end{std::byte{0x80}};
  const std::size_t zeros = (2 * kBlock - 9 - to.bytes % kBlock) % kBlock;
  for (std::size_t i = 0; i < 8; ++i) end[1 + zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  add(std::span(end).first(1 + zeros + 8));
  std::vector<std::byte> digest(to.kind == HashKind::kSha1 ? 20 : 32);
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>(to.state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::optional<std::array<std::byte, 32>> sha256(std::span<const std::byte> bytes) {
  Hasher hasher = *Hasher::create(HashKind::kSha256);
  hasher.add(bytes);
  const std::vector<std::byte> whole = hasher.finish();
  std::array<std::byte, 32> digest{};
  std::ranges::copy(whole, digest.begin());
  return digest;
}

}  // namespace doppler::system
