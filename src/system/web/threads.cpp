// One thread: none can be started, so locks hold nobody up and nobody waits.
#include "system/threads.h"

namespace doppler::system {

struct Mutex::Inner {};
Mutex::Mutex() = default;
Mutex::~Mutex() = default;
void Mutex::lock() {}
void Mutex::unlock() {}

struct Condition::Inner {};
Condition::Condition() = default;
Condition::~Condition() = default;
void Condition::wait(Mutex&) {}
void Condition::wait_for(Mutex&, std::chrono::milliseconds) {}
void Condition::notify_all() {}

struct Thread::Inner {};
Thread::Thread(Thread&&) noexcept = default;
Thread::~Thread() = default;
std::optional<Thread> Thread::start(std::function<void()>) {
  return std::nullopt;
}

std::uintptr_t this_thread() {
  return 1;
}

double thread_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ProcessorShare processor_share() {
  return {1, "the module has no others"};
}

}  // namespace doppler::system
