#include "backend/gpu/attention_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace doppler::gpu {
namespace {

// For heads wider than 128: rows of many values leave room for few tokens, and few tokens give enough
// workgroups.
constexpr AttentionShape kAttentionShapes[] = {{16, 32, 4}, {32, 32, 4}, {32, 16, 4},
                                               {16, 16, 2}, {16, 16, 4}, {8, 16, 2}};
// The order for narrow heads, of which models have more.
constexpr AttentionShape kNarrowShapes[] = {{32, 16, 4}, {16, 16, 2}, {8, 16, 2}};

// Workgroups of a step from which on its positions stay together: one for each of an H100's processors. With
// fewer, each going through all positions before its tokens, the last ones keep the rest waiting. A prompt of
// 512 on an H100, whole and in parts: Gemma 3 1B (128 workgroups) 39,600 and 40,000 tok/s, Qwen3 0.6B (256)
// 51,400 and 49,400.
constexpr std::uint32_t kEnoughWorkgroups = 132;
// Positions of a part: two tiles of the widest cut, half of what the last tokens of a step of 512 see.
constexpr std::uint32_t kPartPositions = 256;
// What a thread of attention_combine.wgsl puts together.
constexpr std::uint32_t kMostPlaces = 8;

}  // namespace

std::string AttentionShape::name() const {
  return fmt::format("{} x {}, {} each{}", tokens, 4 * lanes, rows_each, unrolled ? "" : " loop");
}

std::span<const AttentionShape> attention_shapes() {
  return kAttentionShapes;
}

std::optional<AttentionCut> cut_attention(const Limits& limits, const AttentionShape& shape,
                                          std::uint32_t head_dim) {
  if (head_dim % 2 != 0) return std::nullopt;
  const std::uint32_t width = head_dim % 4 == 0 ? 4 : 2, columns = head_dim / width,
                      threads = shape.threads();
  AttentionCut cut;
  for (cut.chunk = 8; columns % cut.chunk != 0;) --cut.chunk;
  cut.column_threads = std::max(std::min(std::bit_ceil(columns), threads), threads / shape.tokens);
  // Threads that share a column have whole tokens.
  if (threads % cut.column_threads != 0 || shape.tokens % (threads / cut.column_threads) != 0)
    return std::nullopt;
  const std::uint32_t row_bytes = width * 4;
  cut.bytes = shape.tokens * columns * row_bytes + cut.chunk * (4 * shape.lanes + 1) * row_bytes +
              shape.tokens * shape.lanes * (16 + 4) + shape.tokens * 8;
  if (cut.bytes > limits.workgroup_bytes || threads > limits.workgroup_invocations) return std::nullopt;
  return cut;
}

void add_attention_cut(ShaderValues& values, const AttentionShape& shape, const AttentionCut& cut) {
  values["BQ"] = shape.tokens;
  values["LANES"] = shape.lanes;
  values["RQ"] = shape.rows_each;
  values["KC"] = cut.chunk;
  values["CT"] = cut.column_threads;
  values["UNROLLED"] = shape.unrolled ? 1 : 0;
}

std::optional<PromptParts> choose_prompt_parts(const AttentionParams& a, std::uint32_t tile,
                                               std::uint32_t tokens, std::uint64_t positions) {
  if (a.head_dim % 4 != 0 || a.heads * ((tokens + tile - 1) / tile) >= kEnoughWorkgroups) return std::nullopt;
  if (a.window == 0) {
    std::uint32_t places = 1;
    while (places < kMostPlaces && std::uint64_t{kPartPositions} << (places - 1) < positions) ++places;
    return PromptParts{kPartPositions, places};
  }
  // As many parts as a window and a tile of tokens begin in, wherever they lie.
  const std::uint64_t places = (std::uint64_t{a.window} + tile - 2) / kPartPositions + 2;
  if (places > kMostPlaces) return std::nullopt;
  return PromptParts{kPartPositions, static_cast<std::uint32_t>(places)};
}

std::optional<AttentionShape> choose_attention_shape(const Limits& limits, std::uint32_t head_dim) {
  const std::span<const AttentionShape> shapes = head_dim > 128
                                                     ? std::span<const AttentionShape>(kAttentionShapes)
                                                     : std::span<const AttentionShape>(kNarrowShapes);
  for (const AttentionShape& shape : shapes) {
    if (cut_attention(limits, shape, head_dim)) return shape;
  }
  return std::nullopt;
}

}  // namespace doppler::gpu
