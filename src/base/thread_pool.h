// A fixed set of threads for data-parallel loops.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "system/threads.h"

namespace doppler {

// Runs one job at a time on all its threads, the caller's included. Threads spin briefly between jobs,
// because decode asks for hundreds of jobs a token, then sleep. Not reentrant; one caller at a time.
class ThreadPool {
 public:
  // `threads` counts the caller; 0 means one per hardware thread. Fewer where the system refuses more: see
  // size().
  explicit ThreadPool(std::size_t threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const { return workers_.size() + 1; }

  // Calls body(thread_index) once on each thread and returns when all are done.
  void run(const std::function<void(std::size_t)>& body);

  // Splits [0, count) into contiguous chunks of a multiple of `grain` (but the last), handed out as threads
  // ask, and calls body(begin, end) for each.
  void parallel_for(std::size_t count, std::size_t grain,
                    const std::function<void(std::size_t, std::size_t)>& body);

  // The same for bodies that own memory per thread: body(thread_index, begin, end).
  void parallel_chunks(std::size_t count, std::size_t grain,
                       const std::function<void(std::size_t, std::size_t, std::size_t)>& body);

 private:
  void work(std::size_t index);

  std::vector<system::Thread> workers_;
  system::Mutex mutex_;
  system::Condition wake_;
  const std::function<void(std::size_t)>* body_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::size_t> pending_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace doppler
