// Memory by pages, and how much of it the machine has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace doppler::system {

enum class Pages : std::uint8_t {
  kNormal,
  kHuge,  // asks for large pages where the system has them, for memory that is written whole and read in
          // streams
};

// Zeroed bytes on a page's boundary that become resident when first written.
class ZeroedMemory {
 public:
  ZeroedMemory() = default;
  // Nothing when the system refuses. `bytes` is at least 1.
  static std::optional<ZeroedMemory> reserve(std::uint64_t bytes, Pages pages);
  ZeroedMemory(ZeroedMemory&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  ZeroedMemory& operator=(ZeroedMemory&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~ZeroedMemory();

  void* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  void* data_ = nullptr;  // in the mapping, where a huge page may begin
};

// Lets go of the whole pages inside bytes of a mapped file; they are read from the file again when touched.
// Must not be called for any other memory, whose content it would lose.
void release_pages(std::span<const std::byte> mapped);

// Bytes of memory the machine could still give, or UINT64_MAX where it does not say.
std::uint64_t available_memory();

// The largest resident size this process has had, in bytes; 0 where the system does not say.
std::uint64_t peak_resident_bytes();

}  // namespace doppler::system
