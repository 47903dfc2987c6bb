// Large zeroed memory that is only used as it is touched, and what the machine has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"

namespace doppler {

enum class Pages : std::uint8_t {
  kNormal,
  kHuge,  // asks for large pages where the system has them, for memory that is written whole and read in
          // streams
};

// Floats that start at zero and sit on 64-byte boundaries. Pages become resident when first written.
class LazyFloats {
 public:
  LazyFloats() = default;
  // Errors: kLimit when the system refuses.
  static Result<LazyFloats> allocate(std::uint64_t count, Pages pages = Pages::kNormal);
  LazyFloats(LazyFloats&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)) {}
  LazyFloats& operator=(LazyFloats&& other) noexcept;
  ~LazyFloats();

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::uint64_t size() const { return count_; }

 private:
  void* mapping_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  float* data_ = nullptr;
  std::uint64_t count_ = 0;
};

// Lets go of the whole pages inside bytes of a mapped file; they are read from the file again when touched.
// Must not be called for any other memory, whose content it would lose.
void release_pages(std::span<const std::byte> mapped);

// Bytes of memory the machine could still give (MemAvailable), or UINT64_MAX where it does not say.
std::uint64_t available_memory();

// The largest resident size this process has had, in bytes; 0 where the system does not say.
std::uint64_t peak_resident_bytes();

}  // namespace doppler
