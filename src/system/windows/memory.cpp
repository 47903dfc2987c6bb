#include "system/memory.h"

#include "system/windows/handles.h"
// after windows.h
#include <psapi.h>

namespace doppler::system {

// Committed at once, since Windows has nothing between reserved and committed that a write would turn into
// the other; pages become resident when first written all the same. Large pages need a privilege that users
// lack, and are resident at once, so they are never asked for.
std::optional<ZeroedMemory> ZeroedMemory::reserve(std::uint64_t bytes, Pages) {
  void* const address = ::VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (address == nullptr) return std::nullopt;
  ZeroedMemory memory;
  memory.mapping_ = memory.data_ = address;
  memory.mapped_bytes_ = bytes;
  return memory;
}

ZeroedMemory::~ZeroedMemory() {
  if (mapping_ != nullptr) ::VirtualFree(mapping_, 0, MEM_RELEASE);
}

void release_pages(std::span<const std::byte> mapped) {
  SYSTEM_INFO info{};
  ::GetSystemInfo(&info);
  const std::uintptr_t page = info.dwPageSize;
  const auto at = reinterpret_cast<std::uintptr_t>(mapped.data());
  const std::uintptr_t begin = (at + page - 1) / page * page, end = (at + mapped.size()) / page * page;
  // Unlocking pages that are not locked takes them out of the working set (VirtualUnlock's documentation).
  if (begin < end) ::VirtualUnlock(reinterpret_cast<void*>(begin), end - begin);
}

std::uint64_t available_memory() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return ::GlobalMemoryStatusEx(&status) != 0 ? status.ullAvailPhys : UINT64_MAX;
}

std::uint64_t peak_resident_bytes() {
  PROCESS_MEMORY_COUNTERS counters{};
  return ::GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof counters) != 0
             ? counters.PeakWorkingSetSize
             : 0;
}

}  // namespace doppler::system
