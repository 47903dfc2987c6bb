// The yardstick: how fast a plain loop on the same threads reads memory that is in no CPU cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace doppler::bench {

class ReadLoop {
 public:
  // Errors: kLimit when there is no memory for the buffer.
  static Result<std::unique_ptr<ReadLoop>> create(std::size_t threads, std::uint64_t bytes = kBytes);
  // Far beyond any L3, small enough for a machine with 4 GB.
  static constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;

  // Reads the whole buffer once; returns bytes per second.
  double pass();
  std::size_t threads() const { return pool_.size(); }

 private:
  explicit ReadLoop(std::size_t threads) : pool_(threads) {}

  ThreadPool pool_;
  LazyFloats buffer_;
  std::uint64_t checksum_ = 0;  // of all bytes read, so that no compiler removes the reads
};

}  // namespace doppler::bench
