#include "base/blake3.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace doppler {
namespace {

using Chain = std::array<std::uint32_t, 8>;
using Words = std::array<std::uint32_t, 16>;

// The names of the paper's section 2.
constexpr Chain kInitial = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                            0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
constexpr std::array<std::size_t, 16> kPermutation = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
constexpr std::uint32_t kChunkStart = 1, kChunkEnd = 2, kParent = 4, kRoot = 8;
constexpr std::size_t kRounds = 7;

// The message words of each round: those of the round before, permuted.
constexpr auto kSchedule = [] {
  std::array<std::array<std::size_t, 16>, kRounds> schedule{};
  for (std::size_t i = 0; i < 16; ++i) schedule[0][i] = i;
  for (std::size_t round = 1; round < kRounds; ++round)
    for (std::size_t i = 0; i < 16; ++i) schedule[round][i] = schedule[round - 1][kPermutation[i]];
  return schedule;
}();

template <std::size_t a, std::size_t b, std::size_t c, std::size_t d>
inline void mix(Words& v, std::uint32_t x, std::uint32_t y) {
  v[a] += v[b] + x;
  v[d] = std::rotr(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 12);
  v[a] += v[b] + y;
  v[d] = std::rotr(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 7);
}

// All places are known when this is compiled, so that the words stay in registers: three times as fast as
// loops.
template <std::size_t round>
inline void mix_round(Words& v, const Words& block) {
  constexpr const auto& m = kSchedule[round];
  mix<0, 4, 8, 12>(v, block[m[0]], block[m[1]]);
  mix<1, 5, 9, 13>(v, block[m[2]], block[m[3]]);
  mix<2, 6, 10, 14>(v, block[m[4]], block[m[5]]);
  mix<3, 7, 11, 15>(v, block[m[6]], block[m[7]]);
  mix<0, 5, 10, 15>(v, block[m[8]], block[m[9]]);
  mix<1, 6, 11, 12>(v, block[m[10]], block[m[11]]);
  mix<2, 7, 8, 13>(v, block[m[12]], block[m[13]]);
  mix<3, 4, 9, 14>(v, block[m[14]], block[m[15]]);
}

// The compression function, of whose 16 words only the first half is ever needed for 32 bytes.
Chain compress(const Chain& chain, const Words& block, std::uint64_t counter, std::uint32_t length,
               std::uint32_t flags) {
  Words v;
  std::ranges::copy(chain, v.begin());
  std::copy_n(kInitial.begin(), 4, v.begin() + 8);
  v[12] = static_cast<std::uint32_t>(counter);
  v[13] = static_cast<std::uint32_t>(counter >> 32);
  v[14] = length;
  v[15] = flags;
  [&]<std::size_t... round>(std::index_sequence<round...>) {
    (mix_round<round>(v, block), ...);
  }(std::make_index_sequence<kRounds>());
  Chain out;
  for (std::size_t i = 0; i < 8; ++i) out[i] = v[i] ^ v[i + 8];
  return out;
}

// Little-endian, as all of Doppler's machines are.
Words words_of(std::span<const std::byte> block) {
  Words words;
  std::memcpy(words.data(), block.data(), sizeof words);
  return words;
}

Chain join(const Chain& left, const Chain& right, std::uint32_t flags) {
  Words block;
  std::ranges::copy(left, block.begin());
  std::ranges::copy(right, block.begin() + 8);
  return compress(kInitial, block, 0, 64, kParent | flags);
}

}  // namespace

const Blake3::Chain Blake3::kStart = kInitial;

// The chunk's own value joins the subtrees as a 1 is added to a binary number: each carry is a parent.
void Blake3::end_chunk() {
  const std::uint32_t flags = kChunkEnd | (blocks_ == 0 ? kChunkStart : 0);
  Chain value = compress(chain_, words_of(block_), chunk_, kBlock, flags);
  for (std::uint64_t carries = ++chunk_; carries % 2 == 0; carries /= 2) {
    value = join(subtrees_.back(), value, 0);
    subtrees_.pop_back();
  }
  subtrees_.push_back(value);
  chain_ = kInitial;
  blocks_ = filled_ = 0;
  block_ = {};
}

void Blake3::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // A full block is taken in only when more comes: the last one of all is compressed otherwise.
    if (filled_ == kBlock && blocks_ + 1 == kChunk / kBlock) {
      end_chunk();
    } else if (filled_ == kBlock) {
      chain_ = compress(chain_, words_of(block_), chunk_, kBlock, blocks_ == 0 ? kChunkStart : 0);
      ++blocks_;
      filled_ = 0;
      block_ = {};
    }
    const std::size_t take = std::min(kBlock - filled_, bytes.size());
    std::memcpy(block_.data() + filled_, bytes.data(), take);
    filled_ += take;
    bytes = bytes.subspan(take);
  }
}

std::array<std::byte, 32> Blake3::finish() const {
  const std::uint32_t alone = subtrees_.empty() ? kRoot : 0;
  const std::uint32_t flags = kChunkEnd | (blocks_ == 0 ? kChunkStart : 0) | alone;
  Chain value = compress(chain_, words_of(block_), chunk_, static_cast<std::uint32_t>(filled_), flags);
  for (std::size_t i = subtrees_.size(); i-- > 0;) value = join(subtrees_[i], value, i == 0 ? kRoot : 0);
  std::array<std::byte, 32> digest;
  std::memcpy(digest.data(), value.data(), sizeof digest);
  return digest;
}

}  // namespace doppler
