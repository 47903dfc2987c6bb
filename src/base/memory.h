// LazyFloats: memory for floats whose pages become resident only when they are written.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "system/memory.h"

namespace doppler {

using system::Pages;

// Floats that start at zero and sit on 64-byte boundaries. Pages become resident when first written.
class LazyFloats {
 public:
  LazyFloats() = default;
  // Errors: kLimit when the system refuses.
  static Result<LazyFloats> allocate(std::uint64_t count, Pages pages = Pages::kNormal);
  LazyFloats(LazyFloats&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  LazyFloats& operator=(LazyFloats&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(count_, other.count_);
    return *this;
  }

  float* data() { return static_cast<float*>(memory_.data()); }
  const float* data() const { return static_cast<const float*>(memory_.data()); }
  std::uint64_t size() const { return count_; }

 private:
  system::ZeroedMemory memory_;
  std::uint64_t count_ = 0;
};

}  // namespace doppler
