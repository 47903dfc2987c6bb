// The self-check of attention: of the kernels that go through a sequence's positions, and of those that put
// the results of its parts together.
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/self_check_attention.h"
#include "backend/gpu/shader_values.h"
#include "backend/gpu/split_attention.h"
#include "base/float16.h"
#include "model/alibi.h"
#include "plan/plan.h"

namespace doppler::gpu {
namespace {

// alibi.wgsl, as model/alibi.h has it.
double alibi_of(const Values& v, std::size_t head, std::size_t key, std::size_t position) {
  if (v["ALIBI"] == 0) return 0;
  const AlibiSpec alibi = {.max_bias = v.number("ALIBI_STEP_BITS") * static_cast<double>(v["ALIBI_HEADS"]),
                           .scale = v.number("ALIBI_SCALE_BITS"),
                           .rounded = v["ALIBI_ROUNDED"] != 0};
  const double slope = alibi_slopes(alibi, static_cast<std::uint32_t>(v["HEADS"]))[head];
  return alibi_bias(alibi, slope, key, position);
}

}  // namespace

// Of a product that is scaled already.
double score_of(const Values& v, double score, std::size_t head, std::size_t key, std::size_t position) {
  if (v["SOFTCAP"] != 0) score = v.number("SOFTCAP_BITS") * std::tanh(score / v.number("SOFTCAP_BITS"));
  return score + alibi_of(v, head, key, position);
}

AttentionParams seen_by(const Values& v) {
  return {.window = static_cast<std::uint32_t>(v["WINDOW"]), .chunked = v["CHUNKED"] != 0};
}

// splits.wgsl: positions of a split of so many.
std::size_t split_positions(const Values& v, std::size_t length) {
  return kSplitPositions * ceil_div(length, kSplitPositions * v["MOST_SPLITS"]);
}

void add_cached(const Values& v, const char* name, std::vector<float>& numbers, Case& c) {
  if (v["KV_HALF"] == 0) return c.input(name, numbers);
  std::vector<std::uint32_t>& words = c.inputs[name];
  words.resize(numbers.size() / 2);
  for (std::size_t i = 0; i < words.size() * 2; ++i) {
    if (numbers[i] == 0) continue;  // as most of a large cache is
    const std::uint16_t half = f32_to_f16(numbers[i]);
    words[i / 2] |= std::uint32_t{half} << (16 * (i % 2));
    numbers[i] = f16_to_f32(half);
  }
}

Weighed weigh(std::span<const double> scores, std::size_t dim,
              const std::function<const float*(std::size_t)>& value_of) {
  Weighed w{.top = *std::ranges::max_element(scores), .sums = std::vector<double>(dim, 0)};
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double share = std::exp(scores[i] - w.top);
    const float* value = value_of(i);
    for (std::size_t d = 0; d < dim; ++d) w.sums[d] += share * value[d];
    w.total += share;
  }
  return w;
}

void add_part_outputs(const Values& v, std::size_t tokens, Case& c) {
  const std::size_t parts = tokens * v["HEADS"] * v["MOST_SPLITS"];
  const bool half = v["KV_HALF"] != 0;
  c.outputs["parts"] = parts * v["DIM"] / (half ? 2 : 1);
  c.outputs["marks"] = parts * 2;
  if (half) c.halves.insert("parts");
}

namespace {

// prompt_parts.wgsl: the part of a prompt's position, and where a part is kept.
std::size_t part_of(const Values& v, std::size_t position) {
  const std::size_t number = position / v["PART"];
  return v["WINDOW"] != 0 ? number : std::min<std::size_t>(std::bit_width(number), v["MOST_SPLITS"] - 1);
}
std::size_t place_of(const Values& v, std::size_t part) {
  return v["WINDOW"] != 0 ? part % v["MOST_SPLITS"] : part;
}

// Where the results that the token at `position` needs are kept: the parts of a prompt, or splits.wgsl's.
std::vector<std::size_t> places_seen(const Values& v, std::size_t position) {
  const std::size_t first = seen_by(v).first_seen(position);
  std::vector<std::size_t> places;
  if (v["PARTED"] != 0) {
    for (std::size_t part = part_of(v, first); part <= part_of(v, position); ++part)
      places.push_back(place_of(v, part));
    return places;
  }
  const std::size_t length = position + 1 - first, each = split_positions(v, length);
  for (std::size_t split = 0; split < ceil_div(length, each); ++split) places.push_back(split);
  return places;
}

// combined.wgsl: results of parts of an attention, put together, of tokens far from each other.
std::vector<double> combined_rows(const Values& v, std::size_t tokens, Sequence& sequence, Case& c) {
  constexpr std::size_t kPosition = 1000, kApart = 300;
  const std::size_t width = v["WIDTH"], dim = v["DIM"], heads = width / dim, most = v["MOST_SPLITS"];
  std::vector<float> parts = sequence.numbers(tokens * heads * most * dim);
  std::vector<float> marks = sequence.numbers(tokens * heads * most * 2);
  for (std::size_t i = 1; i < marks.size(); i += 2) marks[i] = std::abs(marks[i]) + 1;
  add_cached(v, "parts", parts, c);
  c.input("marks", marks);
  const std::vector<float> sinks = sequence.numbers(v["SINKS"] != 0 ? heads : 0);
  if (!sinks.empty()) c.input("sinks", sinks);
  std::vector<std::uint32_t>& step = c.inputs["step"];
  step.assign(v["POSITIONS"] + tokens, 0);
  std::vector<double> x(tokens * width);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t position = kPosition + t * kApart;
    step[v["POSITIONS"] + t] = static_cast<std::uint32_t>(position);
    const std::vector<std::size_t> places = places_seen(v, position);
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t head = i / dim;
      double total = sinks.empty() ? 0 : std::exp(static_cast<double>(sinks[head])), sum = 0;
      for (const std::size_t place : places) {
        const std::size_t at = (t * heads + head) * most + place;
        const double weight = marks[2 * at + 1] * std::exp(static_cast<double>(marks[2 * at]));
        total += weight;
        sum += parts[at * dim + i % dim] * weight;
      }
      x[t * width + i] = sum / total;
    }
  }
  return x;
}

// What a check runs an attention on: keys and values of the first `fit` heads that share them, and queries.
struct Attended {
  std::size_t fit = 0, end = 0, tokens = 0;  // positions [0, end), of which the last ones are the tokens'
  std::vector<float> keys, values, q, sinks;
  std::vector<std::size_t> rows;  // of the cache, by head * end + position
};

Attended attended(const Values& v, Sequence& sequence, Case& c) {
  Attended a;
  const std::size_t dim = v["DIM"], capacity = v["CAPACITY"], kv_heads = v["KV_HEADS"];
  const bool paged = v["PAGE_TABLE"] != 0;
  const std::size_t head_bytes = capacity * dim * (v["KV_HALF"] != 0 ? 2 : 4);
  // Heads of a cache that is too large: those of its first ones.
  a.fit = std::clamp<std::size_t>(kMostCacheBytes / std::max<std::size_t>(head_bytes, 1), 1, kv_heads);
  // Two tiles of positions and a bit, if the cache holds them, behind a part where there are parts; so many
  // may be beyond a window.
  const std::size_t most = paged ? capacity * v["PAGE_ROW"] : capacity;
  const std::size_t tile_positions = v["RT"] != 0 ? 64 : v["BQ"] != 0 ? 4 * v["LANES"] : v["THREADS"];
  const std::size_t tile_tokens = v["RT"] != 0 ? 16 * v["RT"] : v["BQ"];
  a.end = std::min<std::size_t>(most, v["PART"] + 2 * tile_positions + 3);
  a.tokens = tile_tokens != 0 ? std::min<std::size_t>(a.end, tile_tokens - 1) : 1;
  // The pages in which positions lie come in the wrong order.
  const std::size_t blocks = paged ? (a.end + capacity - 1) / capacity : 1;
  for (std::size_t head = 0; head < a.fit; ++head) {
    for (std::size_t p = 0; p < a.end; ++p)
      a.rows.push_back(((blocks - 1 - p / capacity) * kv_heads + head) * capacity + p % capacity);
  }
  const std::size_t rows = paged              ? blocks * kv_heads * capacity
                           : a.fit < kv_heads ? (a.fit - 1) * capacity + a.end
                                              : a.fit * capacity;
  // Numbers where the positions lie, zeros in the rest of the ring.
  a.keys.resize(rows * dim), a.values.resize(rows * dim);
  for (const std::size_t row : a.rows) {
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i)
      a.keys[i] = sequence.number(), a.values[i] = sequence.number();
  }
  add_cached(v, "keys", a.keys, c);
  add_cached(v, "values", a.values, c);
  a.q = sequence.numbers(v["Q_OFFSET"] + (a.tokens - 1) * v["Q_STRIDE"] + v["HEADS"] * dim);
  c.input("q", a.q);
  a.sinks = sequence.numbers(v["SINKS"] != 0 ? v["HEADS"] : 0);
  if (!a.sinks.empty()) c.input("sinks", a.sinks);
  std::vector<std::uint32_t>& step = c.inputs["step"];
  const std::size_t last = a.tokens - 1;
  step.assign(std::max({v["SLOTS"] + last, v["POSITIONS"] + last, v["PAGE_TABLE"] + blocks}) + 1, 0);
  for (std::size_t t = 0; t < a.tokens; ++t)
    step[v["POSITIONS"] + t] = static_cast<std::uint32_t>(a.end - a.tokens + t);
  for (std::size_t i = 0; paged && i < blocks; ++i)
    step[v["PAGE_TABLE"] + i] = static_cast<std::uint32_t>(blocks - 1 - i);
  step[2] = std::max(step[2], static_cast<std::uint32_t>(a.end));
  if (tile_tokens != 0) step[v["COUNT"]] = static_cast<std::uint32_t>(a.tokens);
  return a;
}

}  // namespace

Activations combined_activations(const Values& v, Sequence& sequence, Case& c) {
  return left_by_prologue(v, combined_rows(v, 1, sequence, c));
}

// Of two tokens.
Case combine_case(const Values& v) {
  constexpr std::size_t kTokens = 2;
  constexpr double kAllowed = 1e-4;  // a part left out is a share of a quarter or so
  const std::size_t width = v["WIDTH"];
  const bool floats = v["FLOATS"] != 0, blocks = v["BLOCKS"] != 0;
  Sequence sequence;
  Case c;
  const std::vector<double> x = combined_rows(v, kTokens, sequence, c);
  const std::size_t padded = blocks ? v["UNITS_K"] * 64 : width, vectors_each = v["THREADS"] / v["PARTS"];
  c.groups = {ceil_div(padded / 4, vectors_each), kTokens, 1};
  if (floats) c.outputs["out"] = v["OUT_OFFSET"] + (kTokens - 1) * v["OUT_STRIDE"] + width;
  if (blocks) {
    c.outputs["out8"] = kTokens * padded / 4;
    c.outputs["outs"] = kTokens * padded / 16;
    c.wide = v["WIDE"] != 0;
  }
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t i = 0; i < padded; ++i) {
      const double value = i < width ? x[t * width + i] : 0;
      if (floats && i < width)
        c.expected.push_back({v["OUT_OFFSET"] + t * v["OUT_STRIDE"] + i, value, kAllowed, "out"});
      if (blocks) c.expected.push_back({t * padded + i, value, kAllowed, "out8"});
    }
  }
  return c;
}

// For one token; of kernels in tiles for a workgroup's, all but one of them.
Case attention_case(const Values& v) {
  const bool in_halves = v["RT"] != 0, parted = v["PARTED"] != 0;
  const std::size_t dim = v["DIM"], all_heads = v["HEADS"], shared_by = all_heads / v["KV_HEADS"],
                    value_dim = v["VALUE_DIM"] != 0 ? v["VALUE_DIM"] : dim, places = v["MOST_SPLITS"];
  Sequence sequence;
  Case c;
  const Attended a = attended(v, sequence, c);
  const std::size_t tokens = a.tokens, heads = shared_by * a.fit, out_stride = v["OUT_STRIDE"];
  const AttentionParams seen = seen_by(v);
  const float scale = v.number("SCALE_BITS");
  c.groups = {static_cast<std::uint32_t>(heads), 1, parted ? static_cast<std::uint32_t>(places) : 1};
  if (parted) {
    add_part_outputs(v, tokens, c);
  } else {
    c.outputs["out"] = v["OUT_OFFSET"] + (tokens - 1) * out_stride + all_heads * value_dim;
  }
  // Of many rows a prime apart.
  for (std::size_t n = 0; n < tokens * heads; n += tokens * heads > 32 ? 7 : 1) {
    const std::size_t t = n / heads, h = n % heads;
    const std::size_t* const rows = &a.rows[h / shared_by * a.end];
    const std::size_t position = a.end - tokens + t, begin = seen.first_seen(position);
    std::vector<double> scores;
    double largest_squares = 0;  // of the products that are a score
    for (std::size_t p = begin; p <= position; ++p) {
      double score = 0, squares = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        const double product = static_cast<double>(a.q[v["Q_OFFSET"] + t * v["Q_STRIDE"] + h * dim + d]) *
                               a.keys[rows[p] * dim + d];
        score += product, squares += product * product;
      }
      largest_squares = std::max(largest_squares, squares);
      scores.push_back(score_of(v, score * scale, h, p, position));
    }
    // Values are at most one; a position left out is a share of 1/300 or so, ten times what is allowed.
    // Halves round a query's values, and with them a score, and a share by one in 2^11 each.
    const double allowed = in_halves ? (8 * scale * std::sqrt(largest_squares) + 1) / 2048 : 1e-4;
    // All positions, or part by part.
    for (std::size_t first = begin, last; first <= position; first = last + 1) {
      last = first;
      while (last < position && (!parted || part_of(v, last + 1) == part_of(v, first))) ++last;
      const std::span here = std::span(scores).subspan(first - begin, last + 1 - first);
      const Weighed w =
          weigh(here, value_dim, [&](std::size_t i) { return &a.values[rows[first + i] * dim]; });
      const double sink = a.sinks.empty() ? 0 : std::exp(a.sinks[h] - w.top), total = w.total + sink;
      if (!parted) {
        for (std::size_t d = 0; d < value_dim; ++d)
          c.expected.push_back(
              {v["OUT_OFFSET"] + t * out_stride + h * value_dim + d, w.sums[d] / total, allowed});
        continue;
      }
      const std::size_t place = (t * all_heads + h) * places + place_of(v, part_of(v, first));
      c.expected.push_back({2 * place, w.top, 1e-4 * (1 + std::abs(w.top)), "marks"});
      c.expected.push_back({2 * place + 1, total, 1e-3 * total, "marks"});
      for (std::size_t d = 0; d < value_dim; ++d) {
        const double mean = w.sums[d] / total, rounded = v["KV_HALF"] != 0 ? std::abs(mean) / 1024 : 0;
        c.expected.push_back({place * dim + d, mean, allowed + rounded, "parts"});
      }
    }
  }
  return c;
}

}  // namespace doppler::gpu
