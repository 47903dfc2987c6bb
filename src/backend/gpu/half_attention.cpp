#include "backend/gpu/half_attention.h"

#include <fmt/format.h>

#include <algorithm>

namespace doppler::gpu {
namespace {

constexpr HalfAttention kHalfAttentions[] = {{4, 8}, {2, 8}, {1, 4}, {4, 4}, {2, 4}};
constexpr std::uint32_t kMostChunk = 128, kPositions = 64;
// Of these the first so many are chosen from: an H100 was slower with the others at every head size (64, 128
// and 256).
constexpr std::size_t kHalfAttentionsChosen = 3;
// Workgroups that keep a large GPU busy: one for each of its processors.
constexpr std::uint32_t kHalfAttentionGroups = 132;

// Dims of a head that pass through workgroup memory at a time.
std::uint32_t half_attention_chunk(std::uint32_t head_dim) {
  std::uint32_t chunk = kMostChunk;
  while (head_dim % chunk != 0) chunk -= 16;
  return chunk;
}

}  // namespace

// The arrays of attention_half.wgsl: queries, a chunk, shares, scores and totals.
std::uint32_t HalfAttention::workgroup_bytes(std::uint32_t head_dim) const {
  constexpr std::uint32_t kPad = 16;
  return tokens() * (head_dim * 2 + kPad) + kPositions * (half_attention_chunk(head_dim) * 2 + kPad) +
         tokens() * (kPositions * 2 + kPad) + row_tiles * 4 * 256 * 4 + tokens() * 4;
}

std::string HalfAttention::name() const {
  return fmt::format("{} tokens, {} subgroups", tokens(), subgroups);
}

std::span<const HalfAttention> half_attentions() {
  return kHalfAttentions;
}

bool half_attention_fits(const Limits& limits, const HalfAttention& shape, const AttentionParams& a) {
  return a.head_dim > 0 && a.head_dim % 16 == 0 && a.value_dim == 0 &&
         shape.workgroup_bytes(a.head_dim) <= limits.workgroup_bytes &&
         shape.threads() <= limits.workgroup_invocations;
}

std::optional<HalfAttention> choose_half_attention(const Limits& limits, const AttentionParams& a,
                                                   std::uint32_t tokens) {
  std::optional<HalfAttention> last;
  for (const HalfAttention& shape : std::span(kHalfAttentions).first(kHalfAttentionsChosen)) {
    if (!half_attention_fits(limits, shape, a)) continue;
    last = shape;
    const std::uint32_t groups = (tokens + shape.tokens() - 1) / shape.tokens() * a.heads;
    if (groups >= kHalfAttentionGroups) break;
  }
  return last;
}

bool attends_halves(const Context& context, const Op& attention) {
  const auto& a = std::get<AttentionParams>(attention.params);
  const KvBuffers& kv = context.kv[a.cache_of(attention.layer)];
  // A cache of floats was asked for, or comes with weights in floats.
  return context.options.kv_type == KvType::kF16 && kv.values &&
         choose_half_attention(context.device->limits(), a, 1).has_value();
}

void add_half_attention(const Device& device, ShaderValues& values, const HalfAttention& shape) {
  values["COOP"] = device.features().tiles == Tiles::kDevice ? 1 : 0;
  values["RT"] = shape.row_tiles;
  values["NS"] = shape.subgroups;
  values["CHUNK"] = half_attention_chunk(static_cast<std::uint32_t>(values["DIM"]));
}

}  // namespace doppler::gpu
