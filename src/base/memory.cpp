#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

#include "base/checked.h"
#include "base/text.h"

namespace doppler {

Result<LazyFloats> LazyFloats::allocate(std::uint64_t count) {
  const auto bytes = (Checked(count) * Checked(sizeof(float))).get();
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
  out.data_ = static_cast<float*>(address);
  out.count_ = count;
  return out;
}

LazyFloats& LazyFloats::operator=(LazyFloats&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(count_, other.count_);
  return *this;
}

LazyFloats::~LazyFloats() {
  if (data_ != nullptr) ::munmap(data_, count_ * sizeof(float));
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
