#include "base/thread_pool.h"

#include <algorithm>
#include <optional>

namespace doppler {
namespace {

// The parts of the gate, from the lowest bit: threads that have joined, closed, threads asked, number of the
// loop.
constexpr std::uint64_t kJoined = 0xffff, kClosed = 1 << 16;
constexpr int kAskedShift = 17, kLoopShift = 32;
constexpr std::size_t kMostThreads = 1 << 15;  // what `asked` holds

std::uint64_t loop_of(std::uint64_t gate) {
  return gate >> kLoopShift;
}
std::size_t asked_of(std::uint64_t gate) {
  return (gate >> kAskedShift) & (kMostThreads - 1);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::Worker {
  system::Mutex mutex;
  system::Condition wake;
  std::atomic<bool> sleeps{false};
  std::optional<system::Thread> thread;
};

ThreadPool::ThreadPool(std::size_t threads) {
  if (threads == 0) threads = system::processor_share().count;
  for (std::size_t i = 1; i < std::min(threads, kMostThreads - 1); ++i) {
    auto worker = std::make_unique<Worker>();
    auto thread = system::Thread::start([this, i, &own = *worker] { work(own, i); });
    if (!thread) break;  // the system has no more for us: work with those it gave
    worker->thread.emplace(std::move(*thread));
    workers_.push_back(std::move(worker));
  }
  used_ = size();
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  for (const auto& worker : workers_) {
    {
      const system::Lock lock(worker->mutex);
    }  // between its last look and its sleep a worker holds it
    worker->wake.notify_all();
  }
  for (const auto& worker : workers_) worker->thread.reset();  // waits for its end
}

void ThreadPool::use(std::size_t threads) {
  used_ = std::clamp<std::size_t>(threads, 1, size());
}

// The orders: whoever goes to sleep says so before a last look at what it waits for, whoever changes that
// looks afterwards whether somebody sleeps. Both need the one order of sequential consistency.
void ThreadPool::run(const Body& body) {
  body_ = &body;
  left_.store(0, std::memory_order_relaxed);
  gate_.store((loop_of(gate_.load(std::memory_order_relaxed)) + 1) << kLoopShift | std::uint64_t{used_}
                                                                                       << kAskedShift);
  for (std::size_t i = 0; i + 1 < used_; ++i) {
    Worker& worker = *workers_[i];
    if (!worker.sleeps.load()) continue;
    {
      const system::Lock lock(worker.mutex);
    }
    worker.wake.notify_all();
  }
  body(0);
  wait_for(gate_.fetch_or(kClosed, std::memory_order_acq_rel) & kJoined);
}

void ThreadPool::wait_for(std::uint64_t joined) {
  for (int left = system::looks_before_sleep(); left > 0; --left) {
    if (left_.load(std::memory_order_acquire) == joined) return;
    pause();
  }
  const system::Lock lock(done_mutex_);
  caller_sleeps_.store(true);
  while (left_.load() != joined) done_.wait(done_mutex_);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

// Waits for a loop after the one it has seen that asks this thread; returns the gate, or any once the pool
// ends.
std::uint64_t ThreadPool::next_loop(Worker& worker, std::size_t index, std::uint64_t seen) {
  const auto asks = [&](std::uint64_t gate) { return loop_of(gate) != seen && index < asked_of(gate); };
  std::uint64_t gate = 0;
  for (int left = system::looks_before_sleep(); left > 0; --left) {
    gate = gate_.load(std::memory_order_acquire);
    if (asks(gate) || stop_.load(std::memory_order_relaxed)) return gate;
    pause();
  }
  const system::Lock lock(worker.mutex);
  worker.sleeps.store(true);
  while (!asks(gate = gate_.load()) && !stop_.load()) worker.wake.wait(worker.mutex);
  worker.sleeps.store(false, std::memory_order_relaxed);
  return gate;
}

bool ThreadPool::join(std::uint64_t gate) {
  const std::uint64_t loop = loop_of(gate);
  while (loop_of(gate) == loop && (gate & kClosed) == 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      return true;
  }
  return false;
}

void ThreadPool::work(Worker& worker, std::size_t index) {
  std::uint64_t seen = 0;
  for (;;) {
    const std::uint64_t gate = next_loop(worker, index, seen);
    if (stop_.load()) return;
    seen = loop_of(gate);
    if (!join(gate)) continue;
    (*body_)(index);
    left_.fetch_add(1);
    if (!caller_sleeps_.load()) continue;
    {
      const system::Lock lock(done_mutex_);
    }
    done_.notify_all();
  }
}

void ThreadPool::parallel_for(std::size_t count, std::size_t grain,
                              const std::function<void(std::size_t, std::size_t)>& body) {
  parallel_chunks(count, grain, [&](std::size_t, std::size_t begin, std::size_t end) { body(begin, end); });
}

void ThreadPool::parallel_chunks(std::size_t count, std::size_t grain,
                                 const std::function<void(std::size_t, std::size_t, std::size_t)>& body) {
  grain = std::max<std::size_t>(grain, 1);
  if (count <= grain || used_ == 1) {
    if (count > 0) body(0, 0, count);
    return;
  }
  // Each chunk is a share of what is left: long streams first, and at the end pieces so small that no thread
  // waits long for another, however unevenly the machine's other work slows them.
  std::atomic<std::size_t> next{0};
  const auto take_chunks = [&](std::size_t thread) {
    std::size_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const std::size_t share = (count - begin) / (2 * used_);
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
