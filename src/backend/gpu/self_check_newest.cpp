// The self-check of what newest tokens attend with, and of what turns a step's heads and writes them to the
// cache.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "backend/gpu/self_check_attention.h"
#include "backend/gpu/shader_values.h"
#include "backend/gpu/split_attention.h"

namespace doppler::gpu {
namespace {

// (cos, sin) of rope_angle.wgsl's two tables, rows of pairs.
class Angles {
 public:
  Angles(const Values& v, Sequence& sequence, Case& c) : pairs_(v["PAIRS"]), high_rows_(v["HIGH_ROWS"]) {
    // Of no pairs what is bound is not used.
    const std::size_t count = std::max<std::size_t>((high_rows_ + 256) * pairs_, 4);
    for (std::size_t i = 0; i < count; ++i) {
      const float angle = 3 * sequence.number();
      table_.push_back(std::cos(angle));
      table_.push_back(std::sin(angle));
    }
    c.input("angles", table_);
  }
  std::pair<double, double> of(std::size_t position, std::size_t pair) const {
    const float* high = &table_[2 * ((position >> 8) * pairs_ + pair)];
    const float* low = &table_[2 * ((high_rows_ + (position & 255)) * pairs_ + pair)];
    return {static_cast<double>(high[0]) * low[0] - static_cast<double>(high[1]) * low[1],
            static_cast<double>(high[1]) * low[0] + static_cast<double>(high[0]) * low[1]};
  }

 private:
  std::size_t pairs_, high_rows_;
  std::vector<float> table_;
};

// A head of a token as attention_decode.wgsl prepares it: its norm (`weights`, or null), and turned.
std::vector<double> prepared_head(const Values& v, std::span<const float> x, const float* weights,
                                  const Angles& angles, std::size_t position) {
  std::vector<double> own(x.begin(), x.end());
  if (weights != nullptr) {
    double squares = 0;
    for (const double value : own) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(own.size()) + v.number("EPS_BITS"));
    for (std::size_t d = 0; d < own.size(); ++d) own[d] *= weights[d] * factor;
  }
  std::vector<double> turned = own;
  const std::size_t pairs = v["PAIRS"];
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const bool neighbours = v["INTERLEAVED"] != 0;
    const std::size_t first = neighbours ? 2 * pair : pair, second = neighbours ? first + 1 : pair + pairs;
    const auto [c, s] = angles.of(position, pair);
    turned[first] = own[first] * c - own[second] * s;
    turned[second] = own[second] * c + own[first] * s;
  }
  return turned;
}

// Where the newest tokens of some sequences lie in a cache; where that has no room for several, the same
// token stands in a step as often. Of a cache with more than `most_bytes` it is the first heads'.
class Newest {
 public:
  // With `wanted` positions of the first one's, or as many as there is room for.
  Newest(const Values& v, std::size_t tokens, std::size_t wanted, std::uint64_t most_bytes)
      : v_(v),
        tokens_(tokens),
        capacity_(v["CAPACITY"]),
        kv_heads_(v["KV_HEADS"]),
        paged_(v["PAGE_TABLE"] != 0) {
    const std::size_t fit_rows = most_bytes / (v["DIM"] * (v["KV_HALF"] != 0 ? 2 : 4));
    const std::size_t most = paged_ ? capacity_ * v["PAGE_ROW"] : capacity_;
    heads_ = paged_ ? kv_heads_ : std::clamp<std::size_t>(fit_rows / capacity_, 1, kv_heads_);
    apart_ = tokens > 1 && (paged_ || tokens * kv_heads_ * capacity_ <= fit_rows);
    end_ = std::min({most, wanted, std::max<std::size_t>(fit_rows / (tokens * kv_heads_), 71)});
    blocks_ = paged_ ? ceil_div(end_, capacity_) : 1;
  }
  std::size_t tokens() const { return tokens_; }
  std::size_t sequences() const { return apart_ ? tokens_ : 1; }
  std::size_t heads() const { return heads_; }
  std::size_t end() const { return end_; }
  std::size_t position(std::size_t token) const { return end_ - 1 - (apart_ ? token * (end_ / 3) : 0); }
  std::size_t rows() const {
    return heads_ < kv_heads_ ? (heads_ - 1) * capacity_ + end_
                              : sequences() * blocks_ * kv_heads_ * capacity_;
  }
  std::size_t row(std::size_t token, std::size_t head, std::size_t position) const {
    return ((first_block(token) + page(position / capacity_)) * kv_heads_ + head) * capacity_ +
           position % capacity_;
  }
  void describe(std::vector<std::uint32_t>& step) const {
    step.assign(std::max({v_["SLOTS"] + tokens_, v_["POSITIONS"] + tokens_,
                          v_["PAGE_TABLE"] + tokens_ * v_["PAGE_ROW"], v_["ALONE_ROW"] + v_["PAGE_ROW"]}),
                0);
    for (std::size_t i = 0; v_["ALONE_ROW"] != 0 && i < blocks_; ++i)
      step[v_["ALONE_ROW"] + i] = static_cast<std::uint32_t>(page(i));
    for (std::size_t t = 0; t < tokens_; ++t) {
      const std::size_t slot = apart_ ? t : 0;
      step[v_["SLOTS"] + t] = static_cast<std::uint32_t>(slot);
      step[v_["POSITIONS"] + t] = static_cast<std::uint32_t>(position(t));
      for (std::size_t i = 0; paged_ && i < blocks_; ++i)
        step[v_["PAGE_TABLE"] + slot * v_["PAGE_ROW"] + i] =
            static_cast<std::uint32_t>(first_block(t) + page(i));
    }
  }

 private:
  std::size_t first_block(std::size_t token) const { return apart_ ? token * blocks_ : 0; }
  // The pages come in the wrong order.
  std::size_t page(std::size_t number) const { return paged_ ? blocks_ - 1 - number : 0; }

  const Values& v_;
  std::size_t tokens_, capacity_, kv_heads_;
  bool paged_;
  std::size_t heads_ = 0, end_ = 0, blocks_ = 0;
  bool apart_ = false;
};

// Their queries, keys and values as a product leaves them, `stride` floats a token.
class NewestHeads {
 public:
  NewestHeads(const Values& v, const Newest& newest, std::size_t stride, Sequence& sequence, Case& c)
      : v_(v), stride_(stride) {
    const std::size_t dim = v["DIM"], shared = v["KV_HEADS"] * dim;
    const std::size_t row =
        std::max({v["Q_OFFSET"] + v["HEADS"] * dim, v["K_OFFSET"] + shared, v["V_OFFSET"] + shared});
    qkv_ = sequence.numbers((newest.tokens() - 1) * stride + row);
    for (std::size_t t = newest.sequences(); t < newest.tokens(); ++t)
      std::copy_n(qkv_.begin(), row, qkv_.begin() + static_cast<std::ptrdiff_t>(t * stride));
    c.input("qkv", qkv_);
  }
  std::span<const float> at(std::size_t token, const char* offset, std::size_t head) const {
    const std::size_t dim = v_["DIM"];
    return std::span<const float>(qkv_).subspan(token * stride_ + v_[offset] + head * dim, dim);
  }

 private:
  const Values& v_;
  std::size_t stride_;
  std::vector<float> qkv_;
};

// The cache is an input that the kernel writes, too.
void expect_written(const Values& v, Case& c) {
  for (const char* name : {"keys", "values"}) {
    c.written.insert(name);
    if (v["KV_HALF"] != 0) c.halves.insert(name);
  }
}

void expect_appended(const Values& v, std::size_t row, const std::vector<double>& key,
                     std::span<const float> value, Case& c) {
  const double share = v["KV_HALF"] != 0 ? 1.0 / 1024 : 1e-5;
  for (std::size_t d = 0; d < key.size(); ++d) {
    c.expected.push_back({row * key.size() + d, key[d], 1e-5 + share * std::abs(key[d]), "keys"});
    c.expected.push_back({row * key.size() + d, value[d], 1e-5 + share * std::abs(value[d]), "values"});
  }
}

// Bytes of cache of a check of what only writes it, all heads of it: 4,096 positions of an 8B model.
constexpr std::uint64_t kMostWrittenBytes = 8 << 20;
constexpr std::size_t kTokensWritten = 2, kPositionsWritten = 300;

}  // namespace

bool covers_rope(const Values& v) {
  return v["TPH"] != 0 && v["EMIT"] == 0 &&
         Newest(v, kTokensWritten, kPositionsWritten, kMostWrittenBytes).heads() == v["KV_HEADS"];
}

Case rope_append_case(const Values& v) {
  const std::size_t dim = v["DIM"], kv_heads = v["KV_HEADS"], all_heads = v["HEADS"];
  const Newest newest(v, kTokensWritten, kPositionsWritten, kMostWrittenBytes);
  Sequence sequence;
  Case c;
  for (const char* name : {"keys", "values"})
    c.inputs[name].resize(newest.rows() * dim / (v["KV_HALF"] != 0 ? 2 : 1));
  expect_written(v, c);
  const NewestHeads heads(v, newest, v["QKV_STRIDE"], sequence, c);
  const bool norm = v["NORM"] != 0;
  const std::vector<float> q_weights = sequence.numbers(norm ? dim : 0),
                           k_weights = sequence.numbers(norm ? dim : 0);
  if (norm) c.input("q_weight", q_weights), c.input("k_weight", k_weights);
  const Angles angles(v, sequence, c);
  newest.describe(c.inputs["step"]);
  c.outputs["q_out"] = v["Q_OUT_OFFSET"] + (newest.tokens() - 1) * v["Q_OUT_STRIDE"] + all_heads * dim;
  c.groups = {ceil_div(all_heads + 2 * kv_heads, v["HPW"]), static_cast<std::uint32_t>(newest.tokens()), 1};
  for (std::size_t t = 0; t < newest.tokens(); ++t) {
    const std::size_t position = newest.position(t);
    for (std::size_t h = 0; h < all_heads; ++h) {
      const std::vector<double> query =
          prepared_head(v, heads.at(t, "Q_OFFSET", h), norm ? q_weights.data() : nullptr, angles, position);
      const std::size_t to = v["Q_OUT_OFFSET"] + t * v["Q_OUT_STRIDE"] + h * dim;
      for (std::size_t d = 0; d < dim; ++d)
        c.expected.push_back({to + d, query[d], 1e-5 * (1 + std::abs(query[d])), "q_out"});
    }
    for (std::size_t h = 0; h < kv_heads; ++h) {
      const std::vector<double> key =
          prepared_head(v, heads.at(t, "K_OFFSET", h), norm ? k_weights.data() : nullptr, angles, position);
      expect_appended(v, newest.row(t, h, position), key, heads.at(t, "V_OFFSET", h), c);
    }
  }
  return c;
}

Case decode_attention_case(const Values& v) {
  const std::size_t dim = v["DIM"], kv_heads = v["KV_HEADS"], all_heads = v["HEADS"],
                    places = v["MOST_SPLITS"], shared_by = all_heads / kv_heads;
  const bool half = v["KV_HALF"] != 0, many = v["MANY"] != 0;
  const auto set_to = [&](const char* name, std::size_t otherwise) {
    return v.has(name) ? static_cast<std::size_t>(v[name]) : otherwise;
  };
  const bool appends = set_to("APPEND", 1) != 0, attends = set_to("ATTEND", 1) != 0;
  const std::size_t workgroups = set_to("WORKGROUPS", places);
  // More positions than splits of the smallest size hold: as in a long sequence, each then takes several
  // rounds.
  const Newest newest(v, many ? 2 : 1, kSplitPositions * (places + 1) + 7, kMostCacheBytes);
  const std::size_t tokens = newest.tokens(), fit = newest.heads();
  Sequence sequence;
  Case c;
  std::vector<float> keys(newest.rows() * dim), values(keys.size());
  for (std::size_t t = 0; t < newest.sequences(); ++t) {
    for (std::size_t n = 0; n < fit * newest.end() * dim; ++n) {
      const std::size_t i = newest.row(t, n / dim / newest.end(), n / dim % newest.end()) * dim + n % dim;
      keys[i] = sequence.number(), values[i] = sequence.number();
    }
  }
  add_cached(v, "keys", keys, c);
  add_cached(v, "values", values, c);
  expect_written(v, c);
  const NewestHeads heads(v, newest, many ? v["QKV_STRIDE"] : 0, sequence, c);
  const bool norm = v["QK_NORM"] != 0;
  const std::vector<float> weights = sequence.numbers(norm ? 2 * dim : 0);
  if (norm) c.input("qk_weights", weights);
  const Angles angles(v, sequence, c);
  newest.describe(c.inputs["step"]);
  if (attends) {
    add_part_outputs(v, tokens, c);
  } else {  // bound, and left alone
    c.outputs["parts"] = c.outputs["marks"] = dim;
  }
  c.groups = {attends ? static_cast<std::uint32_t>(workgroups) : 1,
              static_cast<std::uint32_t>(fit * shared_by / v["HEADS_EACH"]),
              static_cast<std::uint32_t>(tokens)};

  // Halves round the new key to one of two neighbours, and with it its score; a position left out is a share
  // of a sixtieth or so.
  const double off = half ? 2e-3 : 1e-4;
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t position = newest.position(t), begin = seen_by(v).first_seen(position);
    for (std::size_t kv = 0; kv < fit; ++kv) {
      const std::vector<double> key =
          prepared_head(v, heads.at(t, "K_OFFSET", kv), norm ? &weights[dim] : nullptr, angles, position);
      const std::span<const float> value = heads.at(t, "V_OFFSET", kv);
      if (appends) expect_appended(v, newest.row(t, kv, position), key, value, c);
      for (std::size_t h = kv * shared_by; attends && h < (kv + 1) * shared_by; ++h) {
        const std::vector<double> query =
            prepared_head(v, heads.at(t, "Q_OFFSET", h), norm ? weights.data() : nullptr, angles, position);
        const std::size_t each = split_positions(v, position + 1 - begin);
        for (std::size_t first = begin; first <= position; first += each) {
          const std::size_t last = std::min(position, first + each - 1);
          std::vector<double> scores;
          for (std::size_t p = first; p <= last; ++p) {
            double score = 0;
            const float* cached = &keys[newest.row(t, kv, p) * dim];
            for (std::size_t d = 0; d < dim; ++d) score += query[d] * (p == position ? key[d] : cached[d]);
            scores.push_back(score_of(v, score * v.number("SCALE_BITS"), h, p, position));
          }
          const Weighed w = weigh(scores, dim, [&](std::size_t i) {
            return first + i == position ? value.data() : &values[newest.row(t, kv, first + i) * dim];
          });
          const std::size_t place = (t * all_heads + h) * places + (first - begin) / each;
          c.expected.push_back({2 * place, w.top, off * (1 + std::abs(w.top)), "marks"});
          c.expected.push_back({2 * place + 1, w.total, 5 * off * w.total, "marks"});
          for (std::size_t d = 0; d < dim; ++d)
            c.expected.push_back({place * dim + d, w.sums[d] / w.total, off, "parts"});
        }
      }
    }
  }
  return c;
}

}  // namespace doppler::gpu
