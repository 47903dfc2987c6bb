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

constexpr std::size_t kHeader = 56;

// The hash that the format asks for, of a header whose numbers of 8 bytes count the tokens (the third), and
// the bytes of the cache and of the text (the last two).
std::string hash_of(std::span<const std::byte> content) {
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, &content[at], sizeof(value));
    return value;
  };
  const std::size_t rest = content.size() - kHeader, ids = std::min<std::uint64_t>(number(24), rest / 4) * 4;
  const std::size_t text = std::min<std::uint64_t>(number(48), rest - ids);
  const std::string hashes = doppler::sha256_hex(content.first(kHeader)) +
                             doppler::sha256_hex(content.subspan(kHeader, ids)) +
                             doppler::sha256_hex(content.subspan(kHeader + ids, rest - ids - text)) +
                             doppler::sha256_hex(content.last(text));
  return doppler::sha256_hex(std::as_bytes(std::span(hashes)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  constexpr std::size_t kHash = 64;
  if (size < kHeader + kHash) return 0;
  std::vector<std::byte> mended(bytes.begin(), bytes.end());
  const std::string hash = hash_of(bytes.first(size - kHash));
  std::memcpy(&mended[size - kHash], hash.data(), kHash);
  check(mended);
  return 0;
}
