#include "system/memory.h"

#include <cstdlib>
#include <cstring>

namespace doppler::system {
namespace {

constexpr std::uint64_t kPage = 65536;  // WebAssembly's

std::uint64_t memory_bytes() {
  return __builtin_wasm_memory_size(0) * kPage;
}

}  // namespace

// There is one kind of page, and no memory that is reserved without being there.
std::optional<ZeroedMemory> ZeroedMemory::reserve(std::uint64_t bytes, Pages) {
  constexpr std::uint64_t kAlignment = 4096;  // a page's elsewhere: what callers count on
  const std::uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded > SIZE_MAX) return std::nullopt;
  void* const address = std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded));
  if (address == nullptr) return std::nullopt;
  std::memset(address, 0, static_cast<std::size_t>(bytes));
  ZeroedMemory memory;
  memory.mapping_ = memory.data_ = address;
  memory.mapped_bytes_ = bytes;
  return memory;
}

ZeroedMemory::~ZeroedMemory() {
  std::free(mapping_);
}

void release_pages(std::span<const std::byte>) {}

// What 32-bit addresses reach. How much of it the machine has, pages are not told.
std::uint64_t available_memory() {
  return (std::uint64_t{1} << 32) - memory_bytes();
}

// A module's memory never shrinks.
std::uint64_t peak_resident_bytes() {
  return memory_bytes();
}

}  // namespace doppler::system
