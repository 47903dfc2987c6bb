#include "system/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace doppler::system {
namespace {

constexpr std::uintptr_t kHugePage = 2 << 20;  // of x86 and, with 4 kB pages, Arm

}  // namespace

std::optional<ZeroedMemory> ZeroedMemory::reserve(std::uint64_t bytes, Pages pages) {
  // Huge pages begin at multiples of themselves.
  const std::uint64_t slack = pages == Pages::kHuge ? kHugePage : 0;
  if (bytes > UINT64_MAX - slack) return std::nullopt;
  void* address = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return std::nullopt;
  ZeroedMemory memory;
  memory.mapping_ = address;
  memory.mapped_bytes_ = bytes + slack;
  if (pages == Pages::kHuge) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    address = reinterpret_cast<void*>((at + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
    ::madvise(address, bytes, MADV_HUGEPAGE);  // a wish: without it everything works, slower
#endif
  }
  memory.data_ = address;
  return memory;
}

ZeroedMemory::~ZeroedMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_bytes_);
}

void release_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(mapped.data());
  const std::uintptr_t begin = (at + page - 1) / page * page, end = (at + mapped.size()) / page * page;
  // Advice: a system that does not take it loses nothing but memory.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::uint64_t available_memory() {
  std::ifstream info("/proc/meminfo");  // MemAvailable, on Linux
  std::string key;
  std::uint64_t kilobytes = 0;
  while (info >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    info.ignore(64, '\n');
  }
  return UINT64_MAX;
}

std::uint64_t peak_resident_bytes() {
  struct rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // Linux counts kilobytes
}

}  // namespace doppler::system
