#include "base/memory.h"

#include "base/checked.h"
#include "base/text.h"

namespace doppler {

Result<LazyFloats> LazyFloats::allocate(std::uint64_t count, Pages pages) {
  LazyFloats out;
  if (count == 0) return out;
  const auto bytes = (Checked(count) * Checked(sizeof(float))).get();
  auto memory = bytes ? system::ZeroedMemory::reserve(*bytes, pages) : std::nullopt;
  if (!memory) {
    return fail(ErrorCode::kLimit,
                "The system refuses {} of memory. Lower the context, the slots or the step size.",
                bytes ? human_bytes(*bytes) : "more than 2^64 bytes");
  }
  out.memory_ = std::move(*memory);
  out.count_ = count;
  return out;
}

}  // namespace doppler
