#include "bench/bytes.h"

#include <algorithm>

namespace doppler::bench {

std::uint64_t weight_bytes(const Plan& plan, const Weights& weights, const Op& op, std::uint64_t tokens) {
  std::uint64_t bytes = 0, times = 1;
  // Of experts the op names the first: a token reads those it is sent to, several tokens at most all.
  if (const auto* p = std::get_if<ExpertParams>(&op.params))
    times = std::min<std::uint64_t>(p->experts, p->chosen * tokens);
  for (const WeightId id : op.weights) {
    const TensorView& tensor = weights[id];
    bytes += op.kind == OpKind::kEmbed
                 ? tensor.data.size() / std::max<std::uint64_t>(plan.vocab_size, 1) * tokens
                 : tensor.data.size() * times;
  }
  return bytes;
}

std::uint64_t cache_bytes(const KvLayer& layer, KvType type, std::uint64_t position) {
  const std::uint64_t tokens =
      layer.window == 0 ? position + 1 : std::min<std::uint64_t>(layer.window, position + 1);
  // A state is read and written.
  const std::uint64_t states = 2 * layer.recurrent_values() * sizeof(float);
  return (layer.has_values ? 2 : 1) * tokens * layer.kv_heads * kv_row_bytes(type, layer.head_dim) + states;
}

std::uint64_t token_bytes(const Plan& plan, const Weights& weights, KvType type, std::uint64_t position) {
  std::uint64_t bytes = 0;
  for (const Op& op : plan.ops) bytes += weight_bytes(plan, weights, op, 1);
  for (const Op& op : plan.ops) {
    // A layer's cache may serve several.
    if (const auto* a = std::get_if<AttentionParams>(&op.params))
      bytes += cache_bytes(plan.kv_layers[a->cache_of(op.layer)], type, position);
  }
  return bytes;
}

}  // namespace doppler::bench
