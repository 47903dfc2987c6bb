// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2020): the
// plain hash of 32 bytes, for content that others named by it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace doppler {

// A hash of bytes that come in pieces.
class Blake3 {
 public:
  void add(std::span<const std::byte> bytes);
  // May be called at any time; more may be added afterwards.
  std::array<std::byte, 32> finish() const;

 private:
  using Chain = std::array<std::uint32_t, 8>;  // a chaining value
  static constexpr std::size_t kBlock = 64, kChunk = 1024;

  void end_chunk();

  // The chunk that is being filled, of which the blocks before the one in `block_` are in `chain_`.
  static const Chain kStart;
  Chain chain_ = kStart;
  std::array<std::byte, kBlock> block_{};
  std::size_t filled_ = 0, blocks_ = 0;  // bytes of `block_`; blocks that are in `chain_`
  std::uint64_t chunk_ = 0;              // number of the chunk
  std::vector<Chain> subtrees_;          // whole subtrees to the left, the largest first
};

}  // namespace doppler
