#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

namespace doppler {
namespace {

// About 50 us of pausing: longer than the serial gaps inside a decode step, shorter than a user notices.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  try {
    for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {
    // The system has no more threads for us: work with those it gave.
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const std::function<void(std::size_t)>& body) {
  if (workers_.empty()) return body(0);
  body_ = &body;
  pending_ = workers_.size();
  ++generation_;
  if (sleepers_ > 0) {
    std::lock_guard lock(mutex_);  // a worker between its last look and its wait holds this mutex
    wake_.notify_all();
  }
  body(0);
  for (int spins = 0; pending_ > 0; ++spins) {
    if (spins < kSpins)
      pause();
    else
      std::this_thread::yield();
  }
}

void ThreadPool::work(std::size_t index) {
  std::uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; generation_ == seen && spins < kSpins; ++spins) pause();
    if (generation_ == seen) {
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, [&] { return generation_ != seen; });
      --sleepers_;
    }
    seen = generation_;
    if (stop_) return;
    (*body_)(index);
    --pending_;
  }
}

void ThreadPool::parallel_for(std::size_t count, std::size_t grain,
                              const std::function<void(std::size_t, std::size_t)>& body) {
  grain = std::max<std::size_t>(grain, 1);
  if (count <= grain || workers_.empty()) {
    if (count > 0) body(0, count);
    return;
  }
  // Four chunks a thread: enough to even out a core that is busy elsewhere, few enough to keep streams long.
  const std::size_t chunks = size() * 4;
  const std::size_t chunk = ((count + chunks - 1) / chunks + grain - 1) / grain * grain;
  std::atomic<std::size_t> next{0};
  run([&](std::size_t) {
    for (std::size_t begin = next.fetch_add(chunk); begin < count; begin = next.fetch_add(chunk)) {
      body(begin, std::min(begin + chunk, count));
    }
  });
}

}  // namespace doppler
