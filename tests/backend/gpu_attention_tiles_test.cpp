// Attention of many tokens at once, over a cache that holds them already.
#include "backend/gpu/attention_shape.h"
#include "backend/gpu/context.h"
#include "backend/gpu/half_attention.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

struct AttentionCase {
  std::uint32_t dim, heads, kv_heads, window, capacity;
  bool half, softcap;
  std::vector<std::uint32_t> slots, positions;  // by token
  float q_size = 2;                             // how far scores lie apart
  bool unseen_are_no_numbers = false;           // also of what a ring holds
};

class AttentionTiles : public BatchKernels {
 protected:
  // With `parts` the positions are dealt out, and their results put together.
  static void check(const AttentionCase& c, AttentionShape shape,
                    const std::optional<PromptParts>& parts = std::nullopt) {
    shape.unrolled = c.dim == 34;  // written out, kernels take a software adapter's compiler long
    const auto cut = cut_attention(device_->limits(), shape, c.dim);
    if (!cut) return;
    ShaderValues values;
    add_attention_cut(values, shape, *cut);
    double allowed = 5e-6 * c.q_size;
    std::string name = shape.name();
    if (parts) {
      values["PARTED"] = 1;
      values["PART"] = parts->part;
      values["MOST_SPLITS"] = parts->places;
      if (c.half) allowed += 8.0 / 4096;  // the parts' means, below 8, are kept as halves
      name += fmt::format(" in {} parts from {} positions on", parts->places, parts->part);
    }
    check(c, "attention_tiled.wgsl", name, shape.tokens, std::move(values), allowed, 1e-5 * c.q_size);
  }

  // On tensor cores, or with loops for them. Halves round a query's values and a share by one in 2^12 at
  // most.
  static void check(const AttentionCase& c, const HalfAttention& shape) {
    if (!half_attention_fits(device_->limits(), shape, {.head_dim = c.dim, .window = c.window})) return;
    ShaderValues values = {{"DIM", c.dim}};
    add_half_attention(*device_, values, shape);
    const double score = c.q_size / 512;
    check(c, "attention_half.wgsl", shape.name(), shape.tokens(), std::move(values), score + 1.0 / 2048,
          score);
  }

  static void check(const AttentionCase& c, const std::string& file, const std::string& name,
                    std::uint32_t tile, ShaderValues values, double allowed, double allowed_score) {
    SCOPED_TRACE(fmt::format("{}: head size {}, {} tokens, window {}, {}, {}", file, c.dim, c.slots.size(),
                             c.window, c.half ? "f16" : "f32", name));
    const std::size_t tokens = c.slots.size(), slots = 1 + *std::max_element(c.slots.begin(), c.slots.end());
    const std::uint32_t longest = 1 + *std::max_element(c.positions.begin(), c.positions.end());
    const double scale = 1 / std::sqrt(c.dim), cap = 3;
    const auto parts = static_cast<std::uint32_t>(values.contains("PARTED") ? values["MOST_SPLITS"] : 0);
    const std::size_t q_stride = c.heads * c.dim + 6, q_offset = 2,
                      out_stride = c.heads * c.dim + (parts > 0 ? 8 : 3), out_offset = parts > 0 ? 4 : 1;
    const std::vector<float> q = random_floats(tokens * q_stride, c.q_size, 1);
    const std::size_t cached = slots * c.kv_heads * c.capacity * c.dim;
    std::vector<float> k = random_floats(cached, 1, 2), v = random_floats(cached, 1, 3);
    // What no token has filled is no number.
    std::vector<bool> filled(slots * c.capacity, false);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint32_t last = c.positions[t];
      const std::uint32_t held = c.unseen_are_no_numbers ? c.window : c.capacity;
      for (std::uint32_t p = last + 1 > held ? last + 1 - held : 0; p <= last; ++p)
        filled[c.slots[t] * c.capacity + p % c.capacity] = true;
    }
    const auto row = [&](std::size_t slot, std::size_t head, std::size_t position) {
      return ((slot * c.kv_heads + head) * c.capacity + position % c.capacity) * c.dim;
    };
    for (std::size_t slot = 0; slot < slots; ++slot) {
      for (std::size_t p = 0; p < c.capacity; ++p) {
        for (std::size_t h = 0; h < c.kv_heads && !filled[slot * c.capacity + p]; ++h) {
          std::fill_n(&k[row(slot, h, p)], c.dim, NAN);
          std::fill_n(&v[row(slot, h, p)], c.dim, NAN);
        }
      }
    }
    const auto cache = [&](std::vector<float>& floats) {
      if (!c.half) return upload(floats);
      std::vector<std::uint16_t> halves;
      for (float& value : floats) {
        halves.push_back(f32_to_f16(value));
        value = f16_to_f32(halves.back());
      }
      return upload(halves);
    };
    const Buffer keys = cache(k), values_buffer = cache(v), q_buffer = upload(q);
    std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(tokens), 0, longest, 0};
    words.insert(words.end(), c.slots.begin(), c.slots.end());
    words.insert(words.end(), c.positions.begin(), c.positions.end());
    const Buffer step = upload(words);
    const std::size_t floats = tokens * out_stride, score_floats = tokens * c.heads * longest;
    const Buffer out = guarded(floats), scores = guarded(score_floats);
    values.merge(ShaderValues{{"KV_HALF", c.half ? 1 : 0},
                              {"DIM", c.dim},
                              {"HEADS", c.heads},
                              {"KV_HEADS", c.kv_heads},
                              {"CAPACITY", c.capacity},
                              {"WINDOW", c.window},
                              {"CHUNKED", 0},
                              {"SINKS", 0},
                              {"SCALE_BITS", float_bits(scale)},
                              {"SOFTCAP", c.softcap ? 1 : 0},
                              {"ALIBI", 0},
                              {"EMIT_SCORES", 1},
                              {"Q_STRIDE", static_cast<std::int64_t>(q_stride)},
                              {"Q_OFFSET", static_cast<std::int64_t>(q_offset)},
                              {"COUNT", 0},
                              {"SLOTS", 4},
                              {"POSITIONS", static_cast<std::int64_t>(4 + tokens)}});
    if (c.softcap) values["SOFTCAP_BITS"] = float_bits(cap);
    const ShaderValues where = {{"OUT_STRIDE", static_cast<std::int64_t>(out_stride)},
                                {"OUT_OFFSET", static_cast<std::int64_t>(out_offset)}};
    const auto tiles = static_cast<std::uint32_t>((tokens + tile - 1) / tile);
    std::vector<Bound> buffers = {{"step", step},
                                  {"q", q_buffer},
                                  {"keys", keys},
                                  {"values", values_buffer},
                                  within("scores", scores, score_floats)};
    if (parts == 0) {
      values.insert(where.begin(), where.end());
      buffers.push_back(within("out", out, floats));
      run(file, values, buffers, {c.heads, tiles, 1});
    } else {
      const std::size_t marked = tokens * c.heads * parts;
      const Buffer means = guarded(marked * c.dim / (c.half ? 2 : 1)), marks = guarded(marked * 2);
      buffers.push_back(within("parts", means, marked * c.dim / (c.half ? 2 : 1)));
      buffers.push_back(within("marks", marks, marked * 2));
      run(file, values, buffers, {c.heads, tiles, parts});
      ShaderValues together = where;
      for (const char* shared :
           {"KV_HALF", "DIM", "WINDOW", "CHUNKED", "SINKS", "POSITIONS", "PARTED", "PART", "MOST_SPLITS"}) {
        together[shared] = values[shared];
      }
      together.merge(ShaderValues{
          {"THREADS", 32}, {"WIDTH", c.heads * c.dim}, {"PARTS", 1}, {"FLOATS", 1}, {"BLOCKS", 0}});
      run("attention_combine.wgsl", together,
          {{"step", step},
           within("parts", means, marked * c.dim / (c.half ? 2 : 1)),
           within("marks", marks, marked * 2),
           within("out", out, floats)},
          {(c.heads * c.dim / 4 + 31) / 32, static_cast<std::uint32_t>(tokens), 1});
    }
    const std::vector<float> got = read(out, floats), got_scores = read(scores, score_floats);
    double worst = 0, worst_score = 0;
    std::size_t strays = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint32_t last = c.positions[t],
                          first = c.window != 0 && last + 1 > c.window ? last + 1 - c.window : 0;
      for (std::size_t h = 0; h < c.heads; ++h) {
        const std::size_t kv_head = h / (c.heads / c.kv_heads);
        std::vector<double> shares;
        double total = 0;
        for (std::uint32_t p = first; p <= last; ++p) {
          double score = 0;
          for (std::size_t d = 0; d < c.dim; ++d)
            score += static_cast<double>(q[t * q_stride + q_offset + h * c.dim + d]) *
                     k[row(c.slots[t], kv_head, p) + d];
          score *= scale;
          if (c.softcap) score = cap * std::tanh(score / cap);
          worst_score = std::max(worst_score, std::abs(got_scores[(t * c.heads + h) * longest + p] - score));
          shares.push_back(std::exp(score));
          total += shares.back();
        }
        for (std::uint32_t p = 0; p < longest; ++p) {
          const bool seen = p >= first && p <= last;
          strays +=
              !seen && std::bit_cast<std::uint32_t>(got_scores[(t * c.heads + h) * longest + p]) != kGuard;
        }
        for (std::size_t d = 0; d < c.dim; ++d) {
          double sum = 0;
          for (std::uint32_t p = first; p <= last; ++p)
            sum += shares[p - first] * v[row(c.slots[t], kv_head, p) + d];
          const double error = std::abs(got[t * out_stride + out_offset + h * c.dim + d] - sum / total);
          worst = std::isfinite(error) ? std::max(worst, error) : HUGE_VAL;
        }
      }
      for (std::size_t i = 0; i < out_stride; ++i) {
        const bool outside = i < out_offset || i >= out_offset + c.heads * c.dim;
        strays += outside && std::bit_cast<std::uint32_t>(got[t * out_stride + i]) != kGuard;
      }
    }
    EXPECT_LT(worst, allowed);
    EXPECT_LT(worst_score, allowed_score);
    EXPECT_EQ(strays, 0u);
  }

  // A prompt of `count` tokens after `before` others.
  static void add(AttentionCase& c, std::uint32_t slot, std::uint32_t before, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      c.slots.push_back(slot);
      c.positions.push_back(before + i);
    }
  }

  // Cases for either kernel: a prompt for any head size, and one that goes on; several sequences in a step,
  // whose runs meet in tiles; windows in a ring: far along, from its beginning, and a tile's second sequence
  // at another place.
  static AttentionCase prompt(std::uint32_t dim, bool half) {
    AttentionCase c{dim, 2, 1, 0, 64, half, false, {}, {}};
    add(c, 0, 0, 37);
    return c;
  }
  static AttentionCase going_on() {
    AttentionCase c{64, 4, 2, 0, 160, true, false, {}, {}};
    add(c, 0, 80, 70);
    return c;
  }
  static AttentionCase several_sequences(bool half) {
    AttentionCase c{32, 2, 2, 0, 96, half, true, {}, {}};
    add(c, 2, 50, 3);
    add(c, 0, 0, 40);
    add(c, 1, 95, 1);
    add(c, 2, 53, 20);
    add(c, 0, 40, 2);
    add(c, 2, 73, 1);  // between two runs of another sequence in a tile
    add(c, 0, 42, 3);
    return c;
  }
  static AttentionCase window(float q_size = 2) {
    AttentionCase c{32, 4, 1, 20, 20 + 40 - 1, true, false, {}, {}, q_size};
    add(c, 0, 111, 40);
    return c;
  }
  static AttentionCase window_from_its_beginning(bool half) {
    AttentionCase c{32, 4, 1, 20, 20 + 50 - 1, half, false, {}, {}};
    add(c, 1, 0, 50);
    return c;
  }
  static AttentionCase window_behind_no_numbers() {
    AttentionCase c{32, 2, 1, 20, 64, true, false, {}, {}};
    add(c, 0, 43, 17);
    c.unseen_are_no_numbers = true;
    return c;
  }
  static AttentionCase two_windows() {
    AttentionCase c{32, 4, 1, 20, 20 + 40 - 1, true, false, {}, {}};
    add(c, 0, 130, 19);
    add(c, 1, 40, 21);
    return c;
  }
};

TEST_F(AttentionTiles, OfAnyHeadSize) {
  for (const std::uint32_t dim : {16u, 34u, 80u, 256u}) {
    const auto shape = choose_attention_shape(device_->limits(), dim);
    ASSERT_TRUE(shape.has_value());
    check(prompt(dim, dim % 3 != 0), *shape);
  }
}

TEST_F(AttentionTiles, OfAnyCut) {
  for (const AttentionShape& shape : attention_shapes()) check(going_on(), shape);
}

TEST_F(AttentionTiles, OfSeveralSequencesInAStep) {
  for (const bool half : {false, true}) {
    check(several_sequences(half), AttentionShape{32, 16, 4});
    check(several_sequences(half), AttentionShape{8, 16, 2});
  }
}

TEST_F(AttentionTiles, OfWindowsInARing) {
  check(window(), AttentionShape{16, 16, 2});
  check(window_from_its_beginning(false), AttentionShape{32, 16, 4});
  check(two_windows(), AttentionShape{16, 16, 2});
}

// Of a part alone and of many, the last with all that is left; where several sequences meet in a tile, each
// with parts of its own; of windows, whose parts are kept in a ring.
TEST_F(AttentionTiles, InParts) {
  for (const std::uint32_t places : {1u, 3u, 4u}) check(going_on(), {32, 16, 4}, PromptParts{32, places});
  check(prompt(256, false), {16, 32, 4}, PromptParts{8, 4});
  for (const bool half : {false, true}) check(several_sequences(half), {8, 16, 2}, PromptParts{16, 4});
  check(window(), {16, 16, 2}, PromptParts{16, 4});
  check(window_from_its_beginning(false), {32, 16, 4}, PromptParts{16, 5});
  check(two_windows(), {16, 16, 2}, PromptParts{16, 4});
  check(window_behind_no_numbers(), {16, 16, 2}, PromptParts{16, 4});
}

// What choose_prompt_parts() gives room for is what a tile's tokens see, at any place.
TEST(PromptParts, HaveAPlaceForAllThatATileSees) {
  const std::uint32_t tile = 16;
  for (const std::uint32_t window : {1u, 255u, 256u, 257u, 512u, 1024u}) {
    const auto parts = choose_prompt_parts({.heads = 4, .head_dim = 64, .window = window}, tile, 512, 4096);
    ASSERT_TRUE(parts.has_value()) << window;
    std::uint32_t most = 0;
    for (std::uint32_t begin = 0; begin < 3 * window; ++begin) {
      const std::uint32_t first = begin + 1 > window ? begin + 1 - window : 0, last = begin + tile - 1;
      most = std::max(most, last / parts->part - first / parts->part + 1);
    }
    EXPECT_GE(parts->places, most) << window;
    EXPECT_LE(parts->places, most + 1) << window;
  }
  // Positions double from part to part; where eight do not reach, the last is open.
  const AttentionParams all{.heads = 4, .head_dim = 64};
  EXPECT_EQ(choose_prompt_parts(all, tile, 512, 256)->places, 1u);
  EXPECT_EQ(choose_prompt_parts(all, tile, 512, 257)->places, 2u);
  EXPECT_EQ(choose_prompt_parts(all, tile, 512, 1024)->places, 3u);
  EXPECT_EQ(choose_prompt_parts(all, tile, 512, 1 << 20)->places, 8u);
  // Heads enough for every processor; heads that are no vectors of four; a window of more parts than are put
  // together.
  EXPECT_FALSE(choose_prompt_parts({.heads = 32, .head_dim = 64}, 32, 512, 4096).has_value());
  EXPECT_FALSE(choose_prompt_parts({.heads = 4, .head_dim = 34}, tile, 512, 4096).has_value());
  EXPECT_FALSE(
      choose_prompt_parts({.heads = 4, .head_dim = 64, .window = 4096}, tile, 512, 8192).has_value());
}

// Further than an exponential reaches: only a row's own maximum will do.
TEST_F(AttentionTiles, OfScoresFarApart) {
  check(window(100), AttentionShape{16, 16, 2});
  check(window(100), AttentionShape{16, 16, 2}, PromptParts{16, 4});
}

class HalfAttentionTiles : public AttentionTiles {
 protected:
  void SetUp() override {
    if (!device_->features().f16) GTEST_SKIP() << "the adapter has no f16";
  }
};

TEST_F(HalfAttentionTiles, OfAnyHeadSize) {
  for (const std::uint32_t dim : {16u, 80u, 128u, 256u}) {
    check(prompt(dim, true), HalfAttention{1, 4});
  }
}

TEST_F(HalfAttentionTiles, OfAnyCut) {
  for (const HalfAttention& shape : half_attentions()) check(going_on(), shape);
}

TEST_F(HalfAttentionTiles, OfSeveralSequencesInAStep) {
  check(several_sequences(true), HalfAttention{1, 4});
  check(several_sequences(true), HalfAttention{2, 4});
}

TEST_F(HalfAttentionTiles, OfWindowsInARing) {
  check(window(), HalfAttention{1, 4});
  check(window_from_its_beginning(true), HalfAttention{2, 4});
  check(two_windows(), HalfAttention{1, 4});
}

// Of the first block of a window only what the sequence sees may be read as a value: the rest may never have
// been its.
TEST_F(HalfAttentionTiles, BehindPositionsThatNobodyMayRead) {
  check(window_behind_no_numbers(), HalfAttention{1, 4});
}

TEST_F(HalfAttentionTiles, OfScoresFarApart) {
  check(window(100), HalfAttention{1, 4});
}

}  // namespace
}  // namespace doppler::gpu
