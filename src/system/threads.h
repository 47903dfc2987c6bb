// Threads, mutexes and conditions. On a system without threads none can be started, and locks are free.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace doppler::system {

class Mutex {
 public:
  Mutex();
  ~Mutex();
  void lock();
  void unlock();

 private:
  friend class Condition;
  struct Inner;
  const std::unique_ptr<Inner> inner_;
};
using Lock = std::lock_guard<Mutex>;

class Condition {
 public:
  Condition();
  ~Condition();
  // Lets go of the mutex, which the caller holds, until notified (or for no reason), then takes it again.
  void wait(Mutex& held);
  // The same, for at most this long.
  void wait_for(Mutex& held, std::chrono::milliseconds most);
  void notify_all();

 private:
  struct Inner;
  const std::unique_ptr<Inner> inner_;
};

class Thread {
 public:
  // Nothing where the system refuses more threads.
  static std::optional<Thread> start(std::function<void()> body);
  Thread(Thread&&) noexcept;
  Thread& operator=(Thread&&) = delete;
  ~Thread();  // waits for its end

 private:
  struct Inner;
  explicit Thread(std::unique_ptr<Inner> inner);
  std::unique_ptr<Inner> inner_;
};

// A number that no other running thread has.
std::uintptr_t this_thread();
// How long this thread has run, in seconds: without the time in which it waited, or others ran in its place.
double thread_seconds();
// How often a thread that pauses between looks again before it sleeps: for about 50 us, which is longer than
// the serial gaps inside a decode step and shorter than a user notices.
int looks_before_sleep();

struct ProcessorShare {
  unsigned count = 1;  // threads of this process that can run at once; at least 1
  std::string why;     // what gives that number: "the machine has 2 processors"
};
// From the machine, and from what it leaves this process: its affinity mask, and the control groups of Linux.
ProcessorShare processor_share();

}  // namespace doppler::system
