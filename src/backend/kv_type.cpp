#include "backend/kv_type.h"

namespace doppler {
namespace {

constexpr KvTypeInfo kKvTypes[] = {{KvType::kF32, "f32"}, {KvType::kF16, "f16"}, {KvType::kQ8_0, "q8_0"}};

}  // namespace

std::span<const KvTypeInfo> all_kv_types() {
  return kKvTypes;
}
std::string_view kv_type_name(KvType type) {
  return kKvTypes[static_cast<std::size_t>(type)].name;
}
std::optional<KvType> kv_type_from_name(std::string_view name) {
  for (const KvTypeInfo& info : kKvTypes) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

}  // namespace doppler
