#include "calls.h"

namespace doppler::web {

std::span<const Call> diagnosis_calls() {
  return {};
}

}  // namespace doppler::web
