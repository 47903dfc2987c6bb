// Any bytes as a saved sequence, as they are and with their hash put right: an error, or a sequence that fits
// the model.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cache_access.h"
#include "base/sha256.h"
#include "engine/cache_file.h"

namespace {

using doppler::CacheIdentity;

// Two layers, one with a window, as the seeds have it.
const CacheIdentity kIdentity = {
    .model = 0x0123456789abcdef,
    .type = doppler::KvType::kF32,
    .layers = {{.kv_heads = 1, .head_dim = 2, .window = 0}, {.kv_heads = 1, .head_dim = 2, .window = 2}},
    .vocab_size = 10,
    .context = 8};

void check(std::span<const std::byte> bytes) {
  const auto sequence = doppler::parse_sequence(bytes, "sequence", kIdentity);
  if (!sequence) {
    if (sequence.error().message.empty() || sequence.error().message.size() > 2000) std::abort();
    return;
  }
  if (sequence->tokens.size() > kIdentity.context || sequence->cached > sequence->tokens.size()) std::abort();
  if (sequence->bytes.size() != doppler::cache_bytes(kIdentity.layers, kIdentity.type, sequence->cached))
    std::abort();
  if (!std::ranges::all_of(sequence->tokens, [](int id) { return id >= 0 && id < 10; })) std::abort();
}

// The hash that the format asks for, of a header of 48 bytes whose third number of 8 bytes counts the tokens.
std::string hash_of(std::span<const std::byte> content) {
  std::uint64_t tokens = 0;
  std::memcpy(&tokens, &content[24], sizeof(tokens));
  const std::size_t rest = content.size() - 48, ids = std::min<std::uint64_t>(tokens, rest / 4) * 4;
  const std::string hashes = doppler::sha256_hex(content.first(48)) +
                             doppler::sha256_hex(content.subspan(48, ids)) +
                             doppler::sha256_hex(content.subspan(48 + ids));
  return doppler::sha256_hex(std::as_bytes(std::span(hashes)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  constexpr std::size_t kHash = 64;
  if (size < 48 + kHash) return 0;
  std::vector<std::byte> mended(bytes.begin(), bytes.end());
  const std::string hash = hash_of(bytes.first(size - kHash));
  std::memcpy(&mended[size - kHash], hash.data(), kHash);
  check(mended);
  return 0;
}
