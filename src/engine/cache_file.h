// A sequence with its keys and values outside of a backend, and the file that keeps it.
//
// The file: "DOPPLERC", version, type of keys and values, identity of the model, number of tokens, number of
// cached ones, bytes of the cache (CacheAccess::read), bytes of the text, all little-endian in one header;
// then the token ids, the cache, the text, and the SHA-256 of the four parts' SHA-256, all as hexadecimal
// digits. Loading checks all of it before it uses any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/types.h"

namespace doppler {

struct CachedSequence {
  std::vector<TokenId> tokens;
  std::size_t cached = 0;        // how many of them have keys and values
  std::vector<std::byte> bytes;  // of their keys and values
  std::string text = {};         // the caller's own, kept beside: of a conversation, its messages
};

// The properties of model and backend that a file must share.
struct CacheIdentity {
  std::uint64_t model = 0;  // hash of weights, cache layout and rotary tables, which depend on the context
  KvType type = KvType::kF32;
  std::vector<KvLayer> layers;
  std::uint32_t vocab_size = 0;
  std::uint64_t context = 0;
};
CacheIdentity cache_identity(const Backend& backend, const Weights& weights);

Status save_sequence(const std::filesystem::path& file, const CachedSequence& sequence,
                     const CacheIdentity& identity);
// Errors: kCorrupt for any content that save_sequence does not write; kMismatch for another model's file or
// another KV type; kLimit for more tokens than the context.
Result<CachedSequence> load_sequence(const std::filesystem::path& file, const CacheIdentity& identity);
// The same of a file's bytes, whose errors name `file`.
Result<CachedSequence> parse_sequence(std::span<const std::byte> bytes, const std::filesystem::path& file,
                                      const CacheIdentity& identity);

}  // namespace doppler
