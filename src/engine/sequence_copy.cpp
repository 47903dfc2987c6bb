#include "engine/sequence_copy.h"

#include <utility>

namespace doppler {
namespace {

Result<CacheAccess*> cache_of(Session& session) {
  if (CacheAccess* const cache = session.backend().cache()) return cache;
  return fail(ErrorCode::kUnsupported, "The {} backend does not give its cache away.",
              session.backend().name());
}

}  // namespace

Result<CachedSequence> read_sequence(Session& session, std::vector<TokenId> tokens) {
  DOPPLER_ASSIGN(CacheAccess* const cache, cache_of(session));
  CachedSequence sequence{.tokens = std::move(tokens), .cached = session.cached().size(), .bytes = {}};
  if (sequence.cached > 0) {
    DOPPLER_ASSIGN(sequence.bytes, cache->read(session.slot()));
  }
  return sequence;
}

Status write_sequence(Session& session, const CachedSequence& sequence) {
  DOPPLER_ASSIGN(CacheAccess* const cache, cache_of(session));
  session.clear();
  if (sequence.cached == 0) return {};
  DOPPLER_TRY(cache->write(session.slot(), sequence.cached, sequence.bytes));
  session.adopt(
      {sequence.tokens.begin(), sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.cached)});
  return {};
}

}  // namespace doppler
