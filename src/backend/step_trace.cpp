#include "backend/step_trace.h"

#include <algorithm>

#include "backend/kv_cache.h"
#include "base/json.h"
#include "base/log.h"

namespace doppler {

void trace_kv(const Plan& plan, const BackendOptions& options, std::uint32_t slot, std::uint64_t start,
              std::uint64_t tokens) {
  const std::int64_t step = trace_step();
  const std::uint64_t length = start + tokens;
  const Json whole = {{"slot", slot}, {"kvLen", length}, {"startPos", start}, {"numTokens", tokens}};
  trace(Category::kKv, -1,
        fmt::format("slot={} kvLen={} startPos={} numTokens={} context={}", slot, length, start, tokens,
                    options.context),
        step, whole.dump());
  for (std::size_t i = 0; i < plan.kv_layers.size(); ++i) {
    if (!trace_wanted(Category::kKv, static_cast<int>(i), step)) continue;
    const KvLayer& layer = plan.kv_layers[i];
    const std::uint64_t capacity = kv_capacity(layer, options.context, options.max_step_tokens);
    const std::uint64_t held = std::min(length, capacity);
    // The newest token attends to its window, the others of the cache are room for the tokens of a step.
    const std::uint64_t seen = layer.window == 0 ? length : std::min<std::uint64_t>(length, layer.window);
    Json data = whole;
    data.update({{"held", held}, {"capacity", capacity}, {"window", layer.window}, {"seen", seen}});
    trace(
        Category::kKv, static_cast<int>(i),
        fmt::format("kvLen={} startPos={} numTokens={} seen={} held={} of {}{}", length, start, tokens, seen,
                    held, capacity, layer.window == 0 ? "" : fmt::format(", window={}", layer.window)),
        step, data.dump());
  }
}

}  // namespace doppler
