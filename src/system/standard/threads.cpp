#include "system/threads.h"

#include <condition_variable>
#include <system_error>
#include <thread>

namespace doppler::system {

struct Mutex::Inner {
  std::mutex mutex;
};
Mutex::Mutex() : inner_(std::make_unique<Inner>()) {}
Mutex::~Mutex() = default;
void Mutex::lock() {
  inner_->mutex.lock();
}
void Mutex::unlock() {
  inner_->mutex.unlock();
}

struct Condition::Inner {
  std::condition_variable condition;
};
Condition::Condition() : inner_(std::make_unique<Inner>()) {}
Condition::~Condition() = default;
void Condition::wait(Mutex& held) {
  std::unique_lock lock(held.inner_->mutex, std::adopt_lock);
  inner_->condition.wait(lock);
  lock.release();  // the caller holds it again
}
void Condition::wait_for(Mutex& held, std::chrono::milliseconds most) {
  std::unique_lock lock(held.inner_->mutex, std::adopt_lock);
  inner_->condition.wait_for(lock, most);
  lock.release();
}
void Condition::notify_all() {
  inner_->condition.notify_all();
}

struct Thread::Inner {
  std::thread thread;
};
Thread::Thread(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Thread::Thread(Thread&&) noexcept = default;
Thread::~Thread() {
  if (inner_) inner_->thread.join();
}

std::optional<Thread> Thread::start(std::function<void()> body) {
  try {
    return Thread(std::make_unique<Inner>(std::thread(std::move(body))));
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

std::uintptr_t this_thread() {
  thread_local char own;  // each thread has one, at an address of its own
  return reinterpret_cast<std::uintptr_t>(&own);
}

}  // namespace doppler::system
