#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <thread>

#include "system/threads.h"
#include "system/windows/handles.h"

namespace doppler::system {

ProcessorShare processor_share() {
  const unsigned machine = std::max(1u, std::thread::hardware_concurrency());
  const auto counted = [](unsigned count) {
    return std::to_string(count) + (count == 1 ? " processor" : " processors");
  };
  DWORD_PTR own = 0, all = 0;
  // Both masks are 0 for a process in several groups of processors, which only very large machines have.
  if (::GetProcessAffinityMask(::GetCurrentProcess(), &own, &all) != 0 && own != 0) {
    const auto allowed = static_cast<unsigned>(std::popcount(static_cast<std::uint64_t>(own)));
    if (allowed < machine)
      return {allowed, "the process may use " + counted(allowed) + " (its affinity mask)"};
  }
  return {machine, "the machine has " + counted(machine)};
}

int looks_before_sleep() {
  return 2000;
}

double thread_seconds() {
  FILETIME created{}, ended{}, kernel{}, user{};
  if (::GetThreadTimes(::GetCurrentThread(), &created, &ended, &kernel, &user) == 0) return 0;
  const auto ticks = [](const FILETIME& time) {
    return static_cast<double>(std::uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime);
  };
  return (ticks(kernel) + ticks(user)) * 1e-7;
}

}  // namespace doppler::system
