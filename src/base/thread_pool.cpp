#include "base/thread_pool.h"

#include <algorithm>

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
  if (threads == 0) threads = system::hardware_threads();
  for (std::size_t i = 1; i < threads; ++i) {
    auto worker = system::Thread::start([this, i] { work(i); });
    if (!worker) break;  // the system has no more for us: work with those it gave
    workers_.push_back(std::move(*worker));
  }
}

ThreadPool::~ThreadPool() {
  {
    const system::Lock lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  wake_.notify_all();
  workers_.clear();  // waits for each
}

void ThreadPool::run(const std::function<void(std::size_t)>& body) {
  if (workers_.empty()) return body(0);
  body_ = &body;
  pending_ = workers_.size();
  ++generation_;
  if (sleepers_ > 0) {
    const system::Lock lock(mutex_);  // a worker between its last look and its wait holds this mutex
    wake_.notify_all();
  }
  body(0);
  for (int spins = 0; pending_ > 0; ++spins) {
    if (spins < kSpins)
      pause();
    else
      system::yield();
  }
}

void ThreadPool::work(std::size_t index) {
  std::uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; generation_ == seen && spins < kSpins; ++spins) pause();
    if (generation_ == seen) {
      const system::Lock lock(mutex_);
      ++sleepers_;
      while (generation_ == seen) wake_.wait(mutex_);
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
  parallel_chunks(count, grain, [&](std::size_t, std::size_t begin, std::size_t end) { body(begin, end); });
}

void ThreadPool::parallel_chunks(std::size_t count, std::size_t grain,
                                 const std::function<void(std::size_t, std::size_t, std::size_t)>& body) {
  grain = std::max<std::size_t>(grain, 1);
  if (count <= grain || workers_.empty()) {
    if (count > 0) body(0, 0, count);
    return;
  }
  // Each chunk is a share of what is left: long streams first, and at the end pieces so small that no thread
  // waits long for another, however unevenly the machine's other work slows them.
  std::atomic<std::size_t> next{0};
  const auto take_chunks = [&](std::size_t thread) {
    std::size_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const std::size_t share = (count - begin) / (2 * size());
      const std::size_t chunk = std::max(share / grain * grain, grain);
      const std::size_t end = std::min(begin + chunk, count);
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      body(thread, begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  };
  run(std::cref(take_chunks));  // by reference: a copy would not fit std::function's own memory
}

}  // namespace doppler
