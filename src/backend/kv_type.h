// KvType: how keys and values are stored in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace doppler {

enum class KvType : std::uint8_t {
  kF32,
  kF16,
  kQ8_0,  // signed bytes with an f16 scale for each 32 of a head's values
};

struct KvTypeInfo {
  KvType type;
  std::string_view name;
};
std::span<const KvTypeInfo> all_kv_types();
std::optional<KvType> kv_type_from_name(std::string_view name);
std::string_view kv_type_name(KvType type);

// Some positions of a head whose rows lie side by side in the cache.
struct KvRun {
  const std::uint8_t *keys = nullptr, *values = nullptr;
  std::size_t count = 0;
};

// Values of a head that share a scale in kQ8_0.
inline constexpr std::size_t kKvBlock = 32;

// Bytes of one head's keys or values of one position: kQ8_0 has its bytes first, then the scales.
constexpr std::size_t kv_row_bytes(KvType type, std::size_t head_dim) {
  switch (type) {
    case KvType::kF32:
      return head_dim * 4;
    case KvType::kF16:
      return head_dim * 2;
    case KvType::kQ8_0:
      break;
  }
  return head_dim + (head_dim + kKvBlock - 1) / kKvBlock * 2;
}

}  // namespace doppler
