// Threads of a module: workers that the page has started beforehand, each with an instance of the module on
// the same memory, and with a place of its own here where it waits for a body. The first thread is the one
// that the page calls; it alone has files and whatever else a page lends, so others let it call what they
// need.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace doppler::system::web {

constexpr std::uint32_t kMostThreads = 32;  // one bit each in the sets of those that wait

// Where this thread's number stands; 0 is the first. The weak definition is that of modules with one thread,
// which must have no thread_local variables: LLVM 19's linker adds their base twice there.
std::uint32_t& thread_number();

// --- what the module's exports for threads are made of (web/threads.cpp)

// From now on there are so many threads, the first included.
void set_threads(std::uint32_t count);
// The life of thread `number`, whose stack ends at `stack_end`: waits for bodies and runs them.
[[noreturn]] void serve_as_thread(std::uint32_t number, const std::byte* stack_end);
// A thread has stopped and its work will never be done: whoever waits for it ends, with this text for the
// page.
void fail_thread(const char* why, std::size_t length);

// A mutex that needs no memory of its own, for the heap itself.
class RawMutex {
 public:
  void lock();
  void unlock();

 private:
  std::atomic<std::uint32_t> held_{0}, waiting_{0};
};

// Runs call(with) on the first thread, which looks for such wishes whenever it waits.
void call_on_first_thread(void (*call)(void*), void* with);

template <typename F>
auto on_first_thread(const F& function) {
  if (thread_number() == 0) return function();
  struct Wish {
    const F& function;
    decltype(function()) result;
  } wish{function, {}};
  call_on_first_thread(
      [](void* with) {
        auto& asked = *static_cast<Wish*>(with);
        asked.result = asked.function();
      },
      &wish);
  return wish.result;
}

}  // namespace doppler::system::web
