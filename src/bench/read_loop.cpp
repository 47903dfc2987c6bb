#include "bench/read_loop.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace doppler::bench {
Result<std::unique_ptr<ReadLoop>> ReadLoop::create(std::size_t threads, std::uint64_t bytes) {
  std::unique_ptr<ReadLoop> loop(new ReadLoop(threads));
  DOPPLER_ASSIGN(loop->buffer_, LazyFloats::allocate(bytes / sizeof(float)));
  float* data = loop->buffer_.data();
  // Written once: pages that were never written all map to the same zero page.
  loop->pool_.parallel_for(loop->buffer_.size(), 1 << 20, [&](std::size_t begin, std::size_t end) {
    std::fill(data + begin, data + end, 1.0f);
  });
  return loop;
}

double ReadLoop::pass() {
  const auto* words = reinterpret_cast<const std::uint64_t*>(buffer_.data());
  const std::size_t count = buffer_.size() / 2;
  constexpr std::size_t kApart = 8;  // sums of two threads on different cache lines
  std::vector<std::uint64_t> sums(pool_.size() * kApart);
  const auto start = std::chrono::steady_clock::now();
  // 4 MB: long streams, and few enough to be shared out evenly.
  pool_.parallel_chunks(count, 1 << 19, [&](std::size_t thread, std::size_t begin, std::size_t end) {
    std::uint64_t sum[8] = {};
    for (std::size_t i = begin; i + 8 <= end; i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    for (const std::uint64_t s : sum) sums[thread * kApart] += s;
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::uint64_t s : sums) checksum_ += s;
  return static_cast<double>(buffer_.size() * sizeof(float)) / seconds;
}

}  // namespace doppler::bench
