// A fixed set of threads for data-parallel loops.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "system/threads.h"

namespace doppler {

// Runs one loop at a time on its threads, the caller's included. A loop is handed out in chunks, and the
// caller waits only for threads that have taken one: a thread that the system does not run when a loop begins
// is not missed. Between loops threads spin briefly, because decode asks for hundreds of loops a token, then
// sleep; so does a caller that waits for a last chunk. Not reentrant; one caller at a time.
class ThreadPool {
 public:
  // `threads` counts the caller; 0 means what system::processor_share() allows. Fewer where the system
  // refuses more: see size().
  explicit ThreadPool(std::size_t threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const { return workers_.size() + 1; }

  // So many threads, 1 to size(), take part in the loops from now on; the others sleep.
  void use(std::size_t threads);
  std::size_t used() const { return used_; }

  // Splits [0, count) into contiguous chunks of a multiple of `grain` (but the last), handed out as threads
  // ask, and calls body(begin, end) for each.
  void parallel_for(std::size_t count, std::size_t grain,
                    const std::function<void(std::size_t, std::size_t)>& body);

  // The same for bodies that own memory per thread: body(thread_index, begin, end), with indices below
  // size().
  void parallel_chunks(std::size_t count, std::size_t grain,
                       const std::function<void(std::size_t, std::size_t, std::size_t)>& body);

 private:
  struct Worker;
  using Body = std::function<void(std::size_t thread)>;

  void run(const Body& body);
  void wait_for(std::uint64_t joined);
  void work(Worker& worker, std::size_t index);
  std::uint64_t next_loop(Worker& worker, std::size_t index, std::uint64_t seen);
  bool join(std::uint64_t gate);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t used_ = 1;
  const Body* body_ = nullptr;  // of the loop that is open; read by threads that have joined it
  // The present loop: its number, how many threads are asked, whether more may join, and how many have.
  std::atomic<std::uint64_t> gate_{0};
  std::atomic<std::uint64_t> left_{0};  // threads that have joined the loop and are done
  std::atomic<bool> caller_sleeps_{false};
  system::Mutex done_mutex_;
  system::Condition done_;
  std::atomic<bool> stop_{false};
};

}  // namespace doppler
