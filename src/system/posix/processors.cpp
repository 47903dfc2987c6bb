#include <time.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "system/posix/quota.h"
#include "system/threads.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace doppler::system {
namespace {

// Processors that the affinity mask allows; 0 where there is none.
unsigned allowed_processors() {
#if defined(__linux__)
  // Machines with more than 1024 processors need a larger mask, which the system says by an error.
  for (int most = 1024; most <= 1 << 16; most *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(static_cast<unsigned>(most));
    if (mask == nullptr) return 0;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<unsigned>(most));
    const bool known = ::sched_getaffinity(0, bytes, mask) == 0;
    const int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (known) return static_cast<unsigned>(count);
  }
#endif
  return 0;
}

std::string text_of(const char* file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string counted(unsigned count) {
  return std::to_string(count) + (count == 1 ? " processor" : " processors");
}

}  // namespace

ProcessorShare processor_share() {
  const unsigned machine = std::max(1u, std::thread::hardware_concurrency());
  ProcessorShare share{machine, "the machine has " + counted(machine)};
  if (const unsigned allowed = allowed_processors(); allowed > 0 && allowed <= share.count) {
    const bool fewer = allowed < share.count;
    share.count = allowed;
    if (fewer) share.why = "the process may use " + counted(allowed) + " (its affinity mask)";
  }
  const auto quota = processor_quota("/sys/fs/cgroup", text_of("/proc/self/cgroup"));
  if (quota && std::ceil(*quota) < share.count) {
    share.count = std::max(1u, static_cast<unsigned>(std::ceil(*quota)));
    std::string number = std::to_string(*quota);
    number.resize(number.find('.') + 3);
    share.why = "its control group may use the time of " + number + " processors";
  }
  return share;
}

int looks_before_sleep() {
  return 2000;
}

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace doppler::system
