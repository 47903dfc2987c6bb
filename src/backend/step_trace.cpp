#include "backend/step_trace.h"

#include <algorithm>

#include "backend/cache_extent.h"
#include "base/json.h"
#include "base/log.h"

namespace doppler {

void trace_kv(const Plan& plan, const BackendOptions& options, const Appended& appended) {
  const auto& [slot, start, tokens, step] = appended;
  const std::uint64_t length = start + tokens;
  const Json whole = {{"slot", slot}, {"kvLen", length}, {"startPos", start}, {"numTokens", tokens}};
  trace(Category::kKv, -1,
        fmt::format("slot={} kvLen={} startPos={} numTokens={} context={}", slot, length, start, tokens,
                    options.context),
        step, whole.dump());
  for (std::size_t i = 0; i < plan.kv_layers.size(); ++i) {
    if (!trace_wanted(Category::kKv, static_cast<int>(i), step)) continue;
    const KvLayer& layer = plan.kv_layers[i];
    if (layer.kv_heads == 0) continue;
    const std::uint64_t capacity = kv_capacity(layer, options.context, ring_reach(options));
    const std::uint64_t held = std::min(length, capacity);
    // The newest token attends to its window, the others of the cache are room for the tokens of a step.
    const AttentionParams attention{.window = layer.window, .chunked = layer.chunked};
    const std::uint64_t seen = length == 0 ? 0 : length - attention.first_seen(length - 1);
    Json data = whole;
    data.update({{"held", held}, {"capacity", capacity}, {"window", layer.window}, {"seen", seen}});
    trace(
        Category::kKv, static_cast<int>(i),
        fmt::format("kvLen={} startPos={} numTokens={} seen={} held={} of {}{}", length, start, tokens, seen,
                    held, capacity, layer.window == 0 ? "" : fmt::format(", window={}", layer.window)),
        step, data.dump());
  }
}

void trace_kv(const Plan& plan, const BackendOptions& options, const StepInput& input,
              std::span<const std::uint64_t> lengths) {
  if (!trace_wanted(Category::kKv, -1, input.trace_step)) return;
  for (std::size_t slot = 0; slot < lengths.size(); ++slot) {
    const auto tokens = std::ranges::count(input.slots, static_cast<std::int32_t>(slot));
    if (tokens == 0) continue;
    trace_kv(plan, options,
             {static_cast<std::uint32_t>(slot), lengths[slot], static_cast<std::uint64_t>(tokens),
              input.trace_step});
  }
}

}  // namespace doppler
