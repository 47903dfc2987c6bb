// A sequence with its keys and values outside of a backend: copied to another slot, or kept in a file.
//
// The file: "DOPPLERC", version, type of keys and values, identity of the model, numbers of tokens and of
// those that are cached, bytes of the cache (CacheAccess::read), all little-endian in one header; then the
// token ids, the cache, and a SHA-256 of the three. Nothing of it is believed before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/types.h"
#include "engine/session.h"

namespace doppler {

struct CachedSequence {
  std::vector<TokenId> tokens;
  std::size_t cached = 0;        // of them
  std::vector<std::byte> bytes;  // of their keys and values
};

// Errors: kUnsupported for a backend without CacheAccess; its own.
Result<CachedSequence> read_sequence(Session& session, std::vector<TokenId> tokens);
// Makes the session's slot hold it.
Status write_sequence(Session& session, const CachedSequence& sequence);

// What a file must agree with.
struct CacheIdentity {
  std::uint64_t model = 0;  // of weights, cache layout and rotary tables: these depend on the context, too
  KvType type = KvType::kF32;
  std::vector<KvLayer> layers;
  std::uint32_t vocab_size = 0;
  std::uint64_t context = 0;
};
CacheIdentity cache_identity(const Backend& backend, const Weights& weights);

Status save_sequence(const std::filesystem::path& file, const CachedSequence& sequence,
                     const CacheIdentity& identity);
// Errors: kCorrupt for anything that save_sequence does not write; kMismatch for another model's file or
// another type; kLimit for more tokens than the context.
Result<CachedSequence> load_sequence(const std::filesystem::path& file, const CacheIdentity& identity);

}  // namespace doppler
