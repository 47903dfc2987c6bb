#include "backend/continuer.h"

namespace doppler {

Result<std::vector<TokenId>> continue_to_end(Continuer& continuer, const Continuation& continuation,
                                             std::uint64_t length) {
  DOPPLER_TRY(continuer.continue_sequence(continuation));
  std::vector<TokenId> tokens;
  for (;;) {
    DOPPLER_ASSIGN(const auto some, continuer.next_tokens());
    if (some.empty()) break;
    tokens.insert(tokens.end(), some.begin(), some.end());
  }
  DOPPLER_TRY(continuer.stop_sequence(length + tokens.size()));
  return tokens;
}

}  // namespace doppler
