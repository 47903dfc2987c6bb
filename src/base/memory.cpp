#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/checked.h"
#include "base/text.h"

namespace doppler {

namespace {

constexpr std::uintptr_t kHugePage = 2 << 20;  // of x86 and, with 4 kB pages, Arm

}  // namespace

Result<LazyFloats> LazyFloats::allocate(std::uint64_t count, Pages pages) {
  // Huge pages begin at multiples of themselves.
  const std::uint64_t slack = pages == Pages::kHuge ? kHugePage : 0;
  const auto bytes = (Checked(count) * Checked(sizeof(float)) + Checked(slack)).get();
  LazyFloats out;
  if (count == 0) return out;
  void* address = bytes ? ::mmap(nullptr, *bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                        : MAP_FAILED;
  if (address == MAP_FAILED) {
    return fail(ErrorCode::kLimit,
                "The system refuses {} of memory. Lower the context, the slots or the step size.",
                bytes ? human_bytes(*bytes) : "more than 2^64 bytes");
  }
  out.mapping_ = address;
  out.mapped_bytes_ = *bytes;
  if (pages == Pages::kHuge) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    address = reinterpret_cast<void*>((at + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
    ::madvise(address, *bytes - slack, MADV_HUGEPAGE);  // a wish: without it everything works, slower
#endif
  }
  out.data_ = static_cast<float*>(address);
  out.count_ = count;
  return out;
}

LazyFloats& LazyFloats::operator=(LazyFloats&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(count_, other.count_);
  return *this;
}

LazyFloats::~LazyFloats() {
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
  std::ifstream info("/proc/meminfo");
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

}  // namespace doppler
