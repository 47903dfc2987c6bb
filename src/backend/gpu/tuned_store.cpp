// Tuned shapes of earlier loads: {"shapes": {"qkv 4 1 1536 18": [16, 18, 1, 1, 0, 0], ...}}, rows, lanes,
// units, how many of them are loaded at once, pieces at a time, and a head's workgroups.
#include "backend/gpu/cache_file.h"
#include "backend/gpu/tune.h"
#include "base/json.h"

namespace doppler::gpu {
namespace {

constexpr std::size_t kNumbers = 6;  // of a shape

CacheFile file_of(const Context& context) {
  return {*context.device, CacheFile::user_folder(), "gpu"};
}

// A shape that could be run at all: whatever a file says, kernels stay within the device's limits.
bool is_possible(const Device& device, const TunedShape& tuned) {
  const GemvShape& s = tuned.shape;
  return s.rows >= 1 && s.rows <= kTileRows && (s.rows & (s.rows - 1)) == 0 && s.lanes >= 1 && s.units >= 1 &&
         s.units <= 64 && s.at_once <= s.units && s.lanes <= device.limits().workgroup_invocations &&
         s.threads() <= device.limits().workgroup_invocations && tuned.head_groups <= 65535;
}

}  // namespace

void load_tuned(Context& context) {
  const std::optional<Json> json = file_of(context).read();
  if (!json) return;
  const auto shapes = json->find("shapes");
  if (shapes == json->end() || !shapes->is_object()) return;
  for (const auto& [key, value] : shapes->items()) {
    if (!value.is_array() || value.size() != kNumbers) continue;
    std::uint32_t numbers[kNumbers] = {};
    bool good = true;
    for (std::size_t i = 0; i < kNumbers; ++i) {
      good = good && value[i].is_number_unsigned() && value[i].get<std::uint64_t>() <= 65535;
      if (good) numbers[i] = value[i].get<std::uint32_t>();
    }
    const TunedShape tuned{{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]}, numbers[5]};
    if (good && is_possible(*context.device, tuned)) context.tuned[key] = tuned;
  }
}

void store_tuned(const Context& context) {
  Json shapes = Json::object();
  for (const auto& [key, tuned] : context.tuned)
    shapes[key] = {tuned.shape.rows,    tuned.shape.lanes,  tuned.shape.units,
                   tuned.shape.at_once, tuned.shape.stream, tuned.head_groups};
  file_of(context).write({{"shapes", shapes}});
}

}  // namespace doppler::gpu
