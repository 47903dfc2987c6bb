// Random numbers and random blocks of any type, for tests of products.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "quant/tensor.h"

namespace doppler::testing {

inline std::vector<float> random_floats(std::size_t count, float scale, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// Random bytes make wild numbers: a float and the places where a block has its scales get sane ones. Offsets:
// ggml's block structs.
inline void set_scales(DType dtype, std::byte* block, std::mt19937& random) {
  std::vector<std::size_t> halves;
  switch (dtype) {
    case DType::kF32: {
      const float value = (static_cast<float>(random() % 2000) - 1000.0f) / 1e4f;
      std::memcpy(block, &value, 4);
      break;
    }
    case DType::kBF16:
      block[1] = static_cast<std::byte>((std::to_integer<unsigned>(block[1]) & 0x80) | 0x3d);
      break;
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      halves = {0, 2};
      break;
    case DType::kQ2_K:
      halves = {80, 82};
      break;
    case DType::kQ3_K:
      halves = {108};
      break;
    case DType::kQ6_K:
      halves = {208};
      break;
    case DType::kMXFP4:
      block[0] = static_cast<std::byte>(120 + random() % 8);
      break;
    default:
      halves = {0};
  }
  for (const std::size_t at : halves) {
    const float scale = (static_cast<float>(random() % 2000) - 1000.0f) / 5e4f;
    const std::uint16_t half = f32_to_f16(scale);
    std::memcpy(block + at, &half, 2);
  }
}

// The bytes of so many values: any codes, scales small enough for sums of any of them.
inline std::vector<std::byte> random_blocks(DType dtype, std::size_t values, unsigned seed) {
  const DTypeInfo& info = dtype_info(dtype);
  const std::size_t block_bytes = info.block_bits / 8;
  std::vector<std::byte> bytes(values / info.block_values * block_bytes);
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) set_scales(dtype, &bytes[at], random);
  return bytes;
}

// Makes rows of BF16 differ in size, as a model's do: each is 1 to 1/16 of what it was. Values are no smaller
// than 2^-100.
inline void vary_rows(DType dtype, std::size_t rows, std::vector<std::byte>& bytes) {
  if (dtype != DType::kBF16) return;
  for (std::size_t i = 0; i < bytes.size() / 2; ++i) {
    std::uint16_t value;
    std::memcpy(&value, &bytes[2 * i], 2);
    value = static_cast<std::uint16_t>(value - (i / (bytes.size() / 2 / rows) % 5 << 7));
    std::memcpy(&bytes[2 * i], &value, 2);
  }
}

}  // namespace doppler::testing
