// Decoders of the block types, registered in decode.cpp: values [begin, begin + out.size()) of the blocks at
// `data`. Every product in them is exact in float32 (a half has 11 bits, all integer factors of a type
// together at most 13), so only a sum with a minimum rounds, and it rounds the same on every machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "quant/blocks.h"

namespace doppler {

using Decoder = void (*)(const std::byte* data, std::uint64_t begin, std::span<float> out);

// Decoder for a type whose whole blocks `expand` decodes. A range may begin and end inside blocks: those are
// decoded apart and the part copied.
template <typename Block, std::size_t kValues, void (*expand)(const Block& block, float* out)>
void decode_blocks(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  const std::byte* next = data + begin / kValues * sizeof(Block);
  std::size_t skip = begin % kValues;
  while (!out.empty()) {
    Block block;
    std::memcpy(&block, next, sizeof(Block));
    next += sizeof(Block);
    const std::size_t count = std::min(kValues - skip, out.size());
    if (count == kValues) {
      expand(block, out.data());
    } else {
      float values[kValues];
      expand(block, values);
      std::copy_n(values + skip, count, out.data());
    }
    skip = 0;
    out = out.subspan(count);
  }
}

// clang-format off
void decode_q4_0(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q4_1(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q5_0(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q5_1(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q8_0(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq4_nl(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_mxfp4(const std::byte* data, std::uint64_t begin, std::span<float> out);

void decode_q2_k(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q3_k(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q4_k(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q5_k(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_q6_k(const std::byte* data, std::uint64_t begin, std::span<float> out);

void decode_iq1_s(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq1_m(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq2_xxs(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq2_xs(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq2_s(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq3_xxs(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq3_s(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_iq4_xs(const std::byte* data, std::uint64_t begin, std::span<float> out);

void decode_tq1_0(const std::byte* data, std::uint64_t begin, std::span<float> out);
void decode_tq2_0(const std::byte* data, std::uint64_t begin, std::span<float> out);
// clang-format on

}  // namespace doppler
