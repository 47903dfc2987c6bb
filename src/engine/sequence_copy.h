// A session's sequence, copied out of its slot and into another one.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/cache_file.h"
#include "engine/session.h"

namespace doppler {

// Copies the slot of the session. Errors: kUnsupported for a backend without CacheAccess; those of the
// backend.
Result<CachedSequence> read_sequence(Session& session, std::vector<TokenId> tokens);
// Replaces the contents of the session's slot.
Status write_sequence(Session& session, const CachedSequence& sequence);

}  // namespace doppler
