#include "backend/cpu/cpu_backend.h"
namespace doppler {
Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec&, const Weights&, const BackendOptions&) {
  return fail(ErrorCode::kUnsupported, "not yet");
}
}  // namespace doppler
