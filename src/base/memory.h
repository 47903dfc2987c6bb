// Large zeroed memory that is only used as it is touched, and what the machine has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"

namespace doppler {

// Floats that start at zero and sit on 64-byte boundaries. Pages become resident when first written.
class LazyFloats {
 public:
  LazyFloats() = default;
  // Errors: kLimit when the system refuses.
  static Result<LazyFloats> allocate(std::uint64_t count);
  LazyFloats(LazyFloats&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  LazyFloats& operator=(LazyFloats&& other) noexcept;
  ~LazyFloats();

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::uint64_t size() const { return count_; }

 private:
  float* data_ = nullptr;
  std::uint64_t count_ = 0;
};

// Bytes of memory the machine could still give (MemAvailable), or UINT64_MAX where it does not say.
std::uint64_t available_memory();

// The largest resident size this process has had, in bytes; 0 where the system does not say.
std::uint64_t peak_resident_bytes();

}  // namespace doppler
