#include "diagnosis/compare/allowance.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <numeric>

#include "backend/routing.h"
#include "base/text.h"
#include "diagnosis/compare/allowance_recurrent.h"
#include "model/activation.h"
#include "model/alibi.h"
#include "quant/error.h"
#include "system/threads.h"

namespace doppler::diagnosis {
namespace {

// Half a unit in the last place of float32, as a share of the value: the largest error of one operation.
constexpr double kEps = 5.9604644775390625e-8;  // 2^-24
// The same for float16.
constexpr double kHalfEps = 4.8828125e-4;  // 2^-11
// Below this, float16 loses digits one by one, and GPUs may round to zero.
constexpr double kHalfSmallest = 6.103515625e-5;  // 2^-14
// Some roundings in a row: conversions, products, the result itself, a function of a few units; twice what
// was measured (8, in transformers' norms and softcapped attention).
constexpr double kFew = 16;
// tanh and exp of the vector kernels and of GPUs: absolute error as a share of the largest value, measured at
// up to 6 kEps on the cpu backend and on llvmpipe.
constexpr double kFunction = 32;
// Of the hundred million values of a long prompt, healthy ones reach six deviations.
constexpr double kDeviations = 8;
// Eight deviations of rounding to the nearest of equal steps, each step's error being uniform: 8 / sqrt(12).
constexpr double kOfStep = 2.309401076758503;
// Eight deviations of an error that is uniform within +- its bound: 8 / sqrt(3).
constexpr double kOfBound = 4.618802153517006;
// Where there is one rounding, its bound is hard and is reached: some headroom for what comes after.
constexpr double kHeadroom = 1.5;
// Steps of 8-bit codes on either side of zero.
constexpr double kCodes = 127;
// Values that share the scale of their 8-bit codes, in activations and in the cache alike.
constexpr std::size_t kBlock = 32;
// Below this, float32 has no full precision, and GPUs may round to zero.
constexpr double kSmallest = 1.2e-38;

// A sum of n products in float32, as a share of the factors' norms. Kernels sum in 16 strands or more, so
// that an error carries on for n / 16 additions, each half a unit of a partial sum that is at most the norms'
// product (Cauchy-Schwarz): sqrt(n) / 4 if all signs agree. kFew is for the strands' own sum.
double sum_rounding(std::size_t n) {
  return kEps * (kFew + std::sqrt(static_cast<double>(n)) / 4);
}

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

double largest_magnitude(std::span<const float> x) {
  double largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

std::span<const float> row(const OpSetup::Rows& rows, std::size_t t) {
  return std::span(rows.data).subspan(t * rows.width, rows.width);
}

// The squared step of each block of 8-bit codes.
std::vector<double> squared_steps(std::span<const float> x) {
  std::vector<double> steps;
  for (std::size_t b = 0; b < x.size(); b += kBlock) {
    const double step = largest_magnitude(x.subspan(b, std::min(kBlock, x.size() - b))) / kCodes;
    steps.push_back(step * step);
  }
  return steps;
}

// Where blocks share the scale of the largest of them, each has its step.
constexpr std::size_t kBlocksOfWide = 8;
void share_steps(std::span<double> steps) {
  for (std::size_t b = 0; b < steps.size(); b += kBlocksOfWide) {
    const auto wide = steps.subspan(b, std::min(kBlocksOfWide, steps.size() - b));
    std::ranges::fill(wide, std::ranges::max(wide));
  }
}

// The largest error of rounding a value of that size to float16.
double half_error(double size) {
  return size < kHalfSmallest ? size : kHalfEps * size;
}

// The rounding of keys and values in the backend's cache, for one position.
struct CacheRounding {
  KvType type;
  // Of q . k.
  double score(std::span<const float> q, std::span<const float> k) const {
    if (type == KvType::kF32) return 0;
    double sum = 0;
    if (type == KvType::kF16) {
      for (std::size_t i = 0; i < k.size(); ++i) sum += std::pow(q[i] * half_error(std::abs(k[i])), 2);
      return kOfBound * std::sqrt(sum);
    }
    const std::vector<double> steps = squared_steps(k);
    for (std::size_t i = 0; i < k.size(); ++i) sum += static_cast<double>(q[i]) * q[i] * steps[i / kBlock];
    // The scale is a float16: another error in each step of the code.
    double scales = 0;
    for (std::size_t i = 0; i < k.size(); ++i)
      scales += std::abs(q[i]) * of_scale(std::abs(k[i]), std::sqrt(steps[i / kBlock]));
    return kOfStep * std::sqrt(sum) + scales;
  }
  // Bounds the error of every value in v.
  void value(std::span<const float> v, std::span<double> bounds) const {
    for (std::size_t b = 0; b < v.size(); b += kBlock) {
      const auto block = v.subspan(b, std::min(kBlock, v.size() - b));
      const double step = largest_magnitude(block) / kCodes;
      for (std::size_t i = 0; i < block.size(); ++i) {
        const double size = std::abs(static_cast<double>(block[i]));
        const double bound = type == KvType::kF32   ? 0
                             : type == KvType::kF16 ? half_error(size)
                                                    : step / 2 + of_scale(size, step);
        bounds[b + i] = kHeadroom * bound;
      }
    }
  }
  // Of a value in 8-bit codes, by its scale's rounding.
  static double of_scale(double size, double step) { return step > 0 ? size / step * half_error(step) : 0; }
};

class Bounds {
 public:
  Bounds(const OpSetup& setup, const Arithmetic& arithmetic, reference::Threads& threads)
      : s_(setup), arithmetic_(arithmetic), threads_(threads), out_(setup.tokens() * setup.width) {}

  Result<std::vector<float>> compute() {
    switch (s_.kind) {
      case OpKind::kEmbed:
        DOPPLER_TRY(embed());
        break;
      case OpKind::kRmsNorm:
        DOPPLER_TRY(rms_norm());
        break;
      case OpKind::kMatmul:
        DOPPLER_TRY(matmul());
        break;
      case OpKind::kRope:
        rope();
        break;
      case OpKind::kAttention:
        DOPPLER_TRY(attention());
        break;
      case OpKind::kAdd:
        // The sum's rounding; a term that a fused kernel adds before it rounds it; and that rounding itself.
        each([scale = std::abs(std::get<AddParams>(s_.params).scale)](double a, double b) {
          return 3 * kEps * (std::abs(a) + scale * std::abs(b));
        });
        break;
      case OpKind::kGated:
        gated();
        break;
      case OpKind::kSoftcap:
        softcap();
        break;
      case OpKind::kColumns:
      case OpKind::kTimeStep:
      case OpKind::kDecay:
      case OpKind::kConvolution:
      case OpKind::kDeltaRule:
      case OpKind::kScan:
      case OpKind::kChannelScan:
        DOPPLER_TRY(recurrent());
        break;
      case OpKind::kScale:
        DOPPLER_TRY(scale());
        break;
      case OpKind::kHeadMatmul:
        DOPPLER_TRY(head_matmul());
        break;
      case OpKind::kMix:
        mix();
        break;
      case OpKind::kMatchRms:
      case OpKind::kCutoff:
        by_row();
        break;
      case OpKind::kScaleQuery:  // a logarithm and a product
        scale_query();
        break;
      case OpKind::kChoose:
        DOPPLER_TRY(choose());
        break;
      case OpKind::kWeigh:
        DOPPLER_TRY(weigh());
        break;
      case OpKind::kSpread:
        for (std::size_t i = 0; i < out_.size(); ++i) {
          const std::size_t width = s_.inputs[0].width, place = i / width;
          const std::size_t from = place / s_.inputs[1].width * width + i % width;
          set(i,
              2 * kEps * std::abs(static_cast<double>(s_.inputs[0].data[from]) * s_.inputs[1].data[place]));
        }
        break;
      case OpKind::kExpertMatmul:
        DOPPLER_TRY(expert_matmul());
        break;
      case OpKind::kExpertSum:
        expert_sum();
        break;
      default:  // kSelect and kJoin copy; fused ops have no setups
        break;
    }
    return std::move(out_);
  }

 private:
  void set(std::size_t i, double bound) { out_[i] = static_cast<float>(bound + kSmallest); }

  // The difference of a weight's values from those of the judged run, as a share of their root mean square.
  double stored_error(const TensorView& weight) const {
    return arithmetic_.other_weights ? std::hypot(storage_error(weight.dtype), arithmetic_.other_error) : 0;
  }
  // The same with what products round of them and of the activations: a half has eleven bits.
  double weight_error() const {
    const double half = arithmetic_.half_products ? 0x1p-11 * std::numbers::sqrt2 : 0;
    return std::hypot(half, stored_error(s_.weights[0]));
  }

  template <typename Function>
  void each(Function function) {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      // A gate alone is multiplied with nothing.
      const double b = s_.inputs.size() > 1 ? s_.inputs[1].data[i] : 1;
      set(i, function(s_.inputs[0].data[i], b));
    }
  }

  // Tokens beyond a table of fewer rows than the vocabulary has read its first.
  std::uint64_t row_of(std::int32_t id) const {
    return static_cast<std::uint64_t>(id) < s_.weights[0].rows() ? static_cast<std::uint64_t>(id) : 0;
  }

  Status scale() {
    std::vector<float> weight(s_.weights[0].cols());
    DOPPLER_TRY(decode_f32(s_.weights[0], 0, weight));
    for (std::size_t i = 0; i < out_.size(); ++i)
      set(i, kFew * kEps * std::abs(static_cast<double>(s_.inputs[0].data[i]) * weight[i % weight.size()]));
    return {};
  }

  Status head_matmul() {
    const auto& p = std::get<HeadMatmulParams>(s_.params);
    const std::size_t cols = s_.weights[0].cols(), takes = p.transposed ? p.rows : cols,
                      x = s_.inputs[0].width;
    const std::size_t gives = p.transposed ? cols : p.rows, to = s_.width / p.heads;
    std::vector<float> matrix(p.rows * cols);
    for (std::size_t h = 0; h < p.heads; ++h) {
      DOPPLER_TRY(decode_f32(s_.weights[0], (h * p.stride + p.begin) * cols, matrix));
      for (std::size_t o = 0; o < to; ++o) {
        double squares = 0;
        for (std::size_t i = 0; i < takes && o < gives; ++i)
          squares +=
              std::pow(static_cast<double>(p.transposed ? matrix[i * cols + o] : matrix[o * cols + i]), 2);
        for (std::size_t t = 0; t < s_.tokens(); ++t) {
          const auto part = row(s_.inputs[0], t).subspan(x == takes ? 0 : h * (x / p.heads), takes);
          // An error of that share in each weight, independent of each other.
          const double format = kDeviations * stored_error(s_.weights[0]) / std::sqrt(takes);
          set(t * s_.width + h * to + o, (sum_rounding(takes) + format) * std::sqrt(squares) * norm(part));
        }
      }
    }
    return {};
  }

  void mix() {
    const auto& p = std::get<MixParams>(s_.params);
    const std::size_t each = s_.width / p.streams, x = s_.inputs[1].width, parts = x / each;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const std::size_t t = i / s_.width, j = i % s_.width / each, d = i % each;
      double size = std::abs(static_cast<double>(s_.inputs[0].data[i]));
      for (std::size_t part = 0; part < parts; ++part) {
        const double c = s_.inputs.size() > 2 ? s_.inputs[2].data[(t * p.streams + j) * parts + part] : 0;
        size += (std::abs(p.offset) + std::abs(c)) *
                std::abs(static_cast<double>(s_.inputs[1].data[t * x + part * each + d]));
      }
      set(i, kFew * kEps * size);
    }
  }

  // What a row's statistic gives each of its values: of a cut, a share of the row's spread.
  void by_row() {
    const bool cut = s_.kind == OpKind::kCutoff;
    const std::size_t dim = s_.width / (cut ? 1 : s_.heads);
    for (std::size_t begin = 0; begin < out_.size(); begin += dim) {
      const auto part = std::span(s_.inputs[0].data).subspan(begin, dim);
      const double own = norm(part) / std::sqrt(static_cast<double>(dim));
      double factor = 1 + (cut ? std::abs(std::get<CutoffParams>(s_.params).deviations) : 0);
      if (!cut) {
        const auto like = row(s_.inputs[1], begin / s_.width);
        factor = norm(like) / std::sqrt(static_cast<double>(like.size())) / std::max(own, kSmallest);
      }
      for (std::size_t i = 0; i < dim; ++i) {
        const double size = std::abs(static_cast<double>(part[i])) + (cut ? own : 0);
        set(begin + i, sum_rounding(dim) * size * factor);
      }
    }
  }

  // Decoding scale * code + minimum in another order loses some units of the block's largest value.
  Status embed() {
    const double scale = std::abs(std::get<EmbedParams>(s_.params).scale);
    std::vector<float> row(s_.width), place(s_.width);
    const auto moved = [&](const TensorView& table, std::span<const float> values, double error) {
      return (is_quantised(table.dtype) ? 2 * kEps * largest_magnitude(values) : 0) +
             kDeviations * error * norm(values) / std::sqrt(static_cast<double>(s_.width));
    };
    for (std::size_t t = 0; t < s_.tokens(); ++t) {
      DOPPLER_TRY(decode_f32(s_.weights[0], row_of(s_.ids[t]) * s_.width, row));
      double decoding = scale * moved(s_.weights[0], row, weight_error());
      if (s_.weights.size() > 1) {
        DOPPLER_TRY(decode_f32(s_.weights[1], static_cast<std::uint64_t>(s_.positions[t]) * s_.width, place));
        decoding += moved(s_.weights[1], place, stored_error(s_.weights[1]));
      }
      for (std::size_t i = 0; i < s_.width; ++i) {
        const double size =
            scale * std::abs(static_cast<double>(row[i])) + std::abs(static_cast<double>(place[i]));
        set(t * s_.width + i, kFew * kEps * size + decoding);
      }
    }
    return {};
  }

  // Every factor is rounded, and the mean of squares by half its sum's error (the root halves it).
  Status rms_norm() {
    const auto& p = std::get<NormParams>(s_.params);
    const std::size_t dim = p.span == NormSpan::kProjection ? s_.width : s_.width / s_.heads;
    std::vector<float> weight(s_.weights.empty() ? dim : s_.weights[0].cols()), bias(weight.size(), 0.0f);
    if (!s_.weights.empty()) DOPPLER_TRY(decode_f32(s_.weights[0], 0, weight));
    if (!s_.biases.empty() && s_.biases[0]) DOPPLER_TRY(decode_f32(*s_.biases[0], 0, bias));
    const std::span<const float> in = s_.inputs[0].data;
    for (std::size_t begin = 0; begin < in.size(); begin += dim) {
      const auto part = in.subspan(begin, dim);
      const double squares = norm(part) * norm(part) / static_cast<double>(dim);
      // What is left without the mean is smaller, and its errors are those of the values with it.
      double mean = 0, spread = 0;
      if (p.kind == NormKind::kLayer) {
        mean = std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(dim);
        spread = norm(part) / std::sqrt(static_cast<double>(dim));
      }
      const double inverse = 1 / std::sqrt(std::max(squares - mean * mean, 0.0) + p.eps);
      for (std::size_t i = 0; i < dim; ++i) {
        const std::size_t own = (begin + i) % weight.size();
        const double factor = s_.weights.empty()
                                  ? std::abs(p.factor)
                                  : std::abs(static_cast<double>(weight[own])) + std::abs(p.weight_offset);
        set(begin + i,
            sum_rounding(dim) * (std::abs(static_cast<double>(part[i])) + spread) * inverse * factor +
                kFew * kEps * std::abs(static_cast<double>(bias[own])));
      }
    }
    return {};
  }

  // Of a row of the op's activations, which may have had one scale for 256 values.
  std::vector<double> squared_steps_of(std::span<const float> x) const {
    std::vector<double> steps = squared_steps(x);
    const bool wide = arithmetic_.wide_blocks_from != 0 && s_.tokens() >= arithmetic_.wide_blocks_from &&
                      dtype_info(s_.weights[0].dtype).block_values == kBlock * kBlocksOfWide;
    if (wide) share_steps(steps);
    return steps;
  }

  // Float sums; where activations become 8-bit codes, an error of a step's share in each, times its weight.
  Status matmul() {
    const std::size_t cols = s_.inputs[0].width, blocks = (cols + kBlock - 1) / kBlock, tokens = s_.tokens();
    const bool eight_bits = arithmetic_.eight_bit_products && is_quantised(s_.weights[0].dtype);
    const double format = weight_error();
    std::vector<double> lengths, steps;
    for (std::size_t t = 0; t < tokens; ++t) {
      lengths.push_back(norm(row(s_.inputs[0], t)));
      std::vector<double> of_token = squared_steps_of(row(s_.inputs[0], t));
      for (std::size_t b = 0; b < blocks; ++b) {
        const double activations = eight_bits ? kOfStep * kOfStep * of_token[b] : 0;
        // An error of that share in each weight of a block, independent of each other.
        const auto x = row(s_.inputs[0], t).subspan(b * kBlock, std::min(kBlock, cols - b * kBlock));
        const double weights = std::pow(kDeviations * format * norm(x), 2) / static_cast<double>(x.size());
        of_token[b] = activations + weights;
      }
      steps.insert(steps.end(), of_token.begin(), of_token.end());
    }
    std::vector<float> bias(s_.width);
    if (!s_.biases.empty() && s_.biases[0]) DOPPLER_TRY(decode_f32(*s_.biases[0], 0, bias));
    system::Mutex mutex;
    Status first;
    threads_.run(s_.width, 1, std::uint64_t{s_.width} * cols, [&](std::size_t begin, std::size_t end) {
      std::vector<float> weights(cols);
      std::vector<double> squares(blocks);
      for (std::size_t r = begin; r < end; ++r) {
        if (const Status decoded = decode_f32(s_.weights[0], r * cols, weights); !decoded) {
          const system::Lock lock(mutex);
          first = decoded;
          return;
        }
        for (std::size_t b = 0; b < blocks; ++b) {
          double sum = 0;
          for (std::size_t i = b * kBlock; i < std::min(cols, (b + 1) * kBlock); ++i)
            sum += static_cast<double>(weights[i]) * weights[i];
          squares[b] = sum;
        }
        const double length = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
        for (std::size_t t = 0; t < tokens; ++t) {
          double bound =
              sum_rounding(cols) * length * lengths[t] + 2 * kEps * std::abs(static_cast<double>(bias[r]));
          if (eight_bits || format > 0) {
            double sum = 0;
            for (std::size_t b = 0; b < blocks; ++b) sum += squares[b] * steps[t * blocks + b];
            bound += std::sqrt(sum);
          }
          set(t * s_.width + r, bound);
        }
      }
    });
    return first;
  }

  Status recurrent() {
    DOPPLER_ASSIGN(const std::vector<double> bounds, recurrent_bounds(s_, threads_));
    for (std::size_t i = 0; i < bounds.size(); ++i) set(i, bounds[i]);
    return {};
  }

  // The angle is a float32 product, so its error grows with it; the frequency's logarithm costs some more.
  void rope() {
    const auto layout = std::get<RopeParams>(s_.params).layout;
    const std::size_t dim = s_.width / s_.heads, pairs = s_.rope.inverse_frequency.size();
    const std::size_t begin = std::get<RopeParams>(s_.params).begin;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const std::size_t in_head = i % dim, first = i - in_head + begin, token = i / s_.width;
      if (in_head < begin || in_head - begin >= 2 * pairs) {
        set(i, 0);  // passes through
        continue;
      }
      const std::size_t d = in_head - begin;
      const bool halves = layout == RopeLayout::kHalf;
      const std::size_t pair = layout == RopeLayout::kInterleaved ? d / 2 : d % pairs;
      const std::size_t one = halves ? pair : 2 * pair, other = halves ? pair + pairs : 2 * pair + 1;
      const double angle = std::abs(s_.positions[token] * s_.rope.inverse_frequency[pair]);
      const double length = std::hypot(s_.inputs[0].data[first + one], s_.inputs[0].data[first + other]) *
                            std::abs(s_.rope.magnitude);
      set(i, kFew * kEps * (1 + angle) * length);
    }
  }

  Result<std::vector<float>> first_weight() const {
    std::vector<float> values;
    if (s_.weights.empty()) return values;
    values.resize(s_.weights[0].cols());
    DOPPLER_TRY(decode_f32(s_.weights[0], 0, values));
    return values;
  }

  // Equal, but where two scores are so near that rounding may turn their order round.
  Status choose() {
    const RouterSpec& router = std::get<RouteParams>(s_.params).router;
    DOPPLER_ASSIGN(const std::vector<float> correction, first_weight());
    for (std::size_t t = 0; t < s_.tokens(); ++t) {
      std::vector<double> scores = choice_scores(router, row(s_.inputs[0], t), correction);
      std::ranges::sort(scores, std::greater());
      // The scores' exponentials lose units with the size of the logits.
      const double near = kFunction * kEps * (1 + largest_magnitude(row(s_.inputs[0], t)));
      bool turns = false;
      for (std::size_t i = 0; i < s_.width && i + 1 < scores.size(); ++i)
        turns = turns || scores[i] - scores[i + 1] <= near * (1 + std::abs(scores[i]));
      for (std::size_t i = 0; i < s_.width; ++i)
        set(t * s_.width + i, turns ? static_cast<double>(scores.size()) : 0.25);
    }
    return {};
  }

  // An exponential, which loses units with its argument's size, and some sums of a few.
  Status weigh() {
    const RouterSpec& router = std::get<RouteParams>(s_.params).router;
    DOPPLER_ASSIGN(const std::vector<float> scales, first_weight());
    std::vector<float> weights(s_.width);
    for (std::size_t t = 0; t < s_.tokens(); ++t) {
      const auto logits = row(s_.inputs[0], t);
      weigh_experts(router, logits, row(s_.inputs[1], t), scales, weights);
      const double share = kFunction * kEps * (1 + 2 * largest_magnitude(logits));
      for (std::size_t i = 0; i < s_.width; ++i)
        set(t * s_.width + i, share * std::abs(static_cast<double>(weights[i])));
    }
    return {};
  }

  void expert_sum() {
    const auto& p = std::get<ExpertSumParams>(s_.params);
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const std::size_t t = i / s_.width, c = i % s_.width;
      double size = p.adds ? std::abs(static_cast<double>(s_.inputs.back().data[i])) : 0;
      for (std::size_t k = 0; k < p.chosen; ++k) {
        const double weight = p.weighted ? s_.inputs[1].data[t * p.chosen + k] : 1;
        size += std::abs(weight * s_.inputs[0].data[(t * p.chosen + k) * s_.width + c]);
      }
      set(i, (2 + p.chosen) * kEps * size);
    }
  }

  // As matmul(), each chosen expert for its own rows.
  Status expert_matmul() {
    const auto& p = std::get<ExpertParams>(s_.params);
    const std::size_t cols = s_.weights[0].cols(), rows = s_.width / p.chosen;
    const bool own_rows = s_.inputs[0].width != cols;
    const bool eight_bits = arithmetic_.eight_bit_products && is_quantised(s_.weights[0].dtype);
    const double format = weight_error();
    std::vector<float> weights(cols), bias(rows);
    for (std::size_t e = 0; e < s_.weights.size(); ++e) {
      std::ranges::fill(bias, 0.0f);
      if (!s_.biases.empty() && s_.biases[e]) DOPPLER_TRY(decode_f32(*s_.biases[e], 0, bias));
      std::vector<std::size_t> places;
      for (std::size_t i = 0; i < s_.tokens() * p.chosen; ++i) {
        if (s_.inputs[1].data[i] == static_cast<float>(e)) places.push_back(i);
      }
      const auto row_at = [&](std::size_t place) {
        return std::span(s_.inputs[0].data).subspan((own_rows ? place : place / p.chosen) * cols, cols);
      };
      std::vector<std::vector<double>> steps;
      for (const std::size_t place : places) steps.push_back(squared_steps_of(row_at(place)));
      for (std::size_t r = 0; r < rows && !places.empty(); ++r) {
        DOPPLER_TRY(decode_f32(s_.weights[e], r * cols, weights));
        const double length = norm(weights);
        for (std::size_t i = 0; i < places.size(); ++i) {
          const std::size_t place = places[i];
          const auto x = row_at(place);
          double bound =
              sum_rounding(cols) * length * norm(x) + 2 * kEps * std::abs(static_cast<double>(bias[r]));
          double sum = 0;
          for (std::size_t b = 0; (eight_bits || format > 0) && b < cols; b += kBlock) {
            const std::size_t count = std::min(kBlock, cols - b);
            const double squared_step = eight_bits ? steps[i][b / kBlock] : 0;
            const double size = norm(std::span(weights).subspan(b, count));
            const double share = kDeviations * format * norm(x.subspan(b, count));
            sum +=
                size * size * (kOfStep * kOfStep * squared_step + share * share / static_cast<double>(count));
          }
          bound += std::sqrt(sum);
          set(place * rows + r, bound);
        }
      }
    }
    return {};
  }

  // Where gates and ups are cut, nothing but the cut ones count.
  void shaped(const GatedParams& p) {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      double gate = s_.inputs[0].data[i], up = s_.inputs[1].data[i];
      if (p.clamp > 0) gate = std::min(gate, p.clamp), up = std::clamp(up, -p.clamp, p.clamp);
      const double glu = std::abs(activate(p.activation, gate, p.xielu, p.alpha));
      set(i,
          kEps * (kFunction + 4 * std::abs(p.alpha * gate)) * glu * (std::abs(up) + std::abs(p.up_offset)));
    }
  }

  void gated() {
    const auto& p = std::get<GatedParams>(s_.params);
    if (!p.is_plain()) return shaped(p);
    if (s_.inputs.size() == 2 && s_.inputs[0].width != s_.width) {  // one gate for a row
      for (std::size_t i = 0; i < out_.size(); ++i) {
        const double gate = activate(p.activation, s_.inputs[0].data[i / s_.width]);
        set(i, kFunction * kEps * std::abs(gate * s_.inputs[1].data[i]));
      }
      return;
    }
    each([&p](double gate, double up) {
      if (p.activation == Activation::kSigmoid)
        return kEps * (kFunction + 4 * std::abs(gate)) * std::abs(up / (1 + std::exp(-gate)));
      if (p.activation == Activation::kXielu)
        return kFunction * kEps *
               ((p.xielu.alpha_n + p.xielu.beta + p.xielu.alpha_p * std::abs(gate)) * std::abs(gate));
      // exp loses units with its argument's size; silu stays proportional to it. The tail of gelu is a
      // difference from 1, whose error is a share of 1.
      if (p.activation == Activation::kIdentity) return kFew * kEps * std::abs(gate * up);
      if (p.activation == Activation::kSigmoid) return kFunction * kEps * std::abs(up);  // a share of 1
      if (p.activation != Activation::kSilu) return kFunction * kEps * std::abs(gate * up);
      const double silu = gate / (1 + std::exp(-gate));
      return kEps * (kFunction + 4 * std::abs(gate)) * std::abs(silu * up);
    });
  }

  // A tanh made of exponentials loses a share of 1, whatever its argument: GPUs have such.
  static double softcap_error(double cap, double x) {
    return cap > 0 ? kFunction * kEps * std::abs(x) + kFew * kEps * cap : 0;
  }

  void softcap() {
    const auto& p = std::get<SoftcapParams>(s_.params);
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const double x = s_.inputs[0].data[i] * p.scale;
      set(i, softcap_error(p.hard ? 0 : p.cap, x) + (p.scale == 1 ? 0 : kFew * kEps * std::abs(x)));
    }
  }

  void scale_query() {
    const auto& p = std::get<PositionScale>(s_.params);
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const double factor = std::abs(position_factor(p, s_.positions[i / s_.width]));
      set(i, kFunction * kEps * factor * std::abs(static_cast<double>(s_.inputs[0].data[i])));
    }
  }

  // What tensor cores add to a score: queries in halves, which are multiplied with the keys; and to a share,
  // as exp() gives it: its rounding before it is multiplied with a value.
  bool attends_halves() const { return arithmetic_.half_products && arithmetic_.kv == KvType::kF16; }
  double query_error(std::span<const float> q, std::span<const float> k) const {
    return attends_halves() ? CacheRounding{KvType::kF16}.score(k, q) : 0;
  }
  double share_error(double share) const { return attends_halves() ? half_error(share) : 0; }
  // What parts of the positions add to an output whose terms have that sum of sizes.
  double parts_error(double size) const { return arithmetic_.half_parts ? half_error(size) : 0; }

  Status attention() {
    const auto& a = std::get<AttentionParams>(s_.params);
    DOPPLER_ASSIGN(sinks_, first_weight());
    threads_.run(s_.tokens() * a.heads, 1, out_.size() * s_.tokens(),
                 [&](std::size_t begin, std::size_t end) {
                   for (std::size_t i = begin; i < end; ++i)
                     attend(a, i / a.heads, static_cast<std::uint32_t>(i % a.heads));
                 });
    return {};
  }

  bool sees(const AttentionParams& a, std::size_t t, std::size_t p) const {
    if (s_.sees) return s_.sees(t, p);
    const auto position = static_cast<std::size_t>(s_.positions[t]);
    return p <= position && p >= a.first_seen(position);
  }

  // An error of a score moves its share of the output by that share of the way between its value and the
  // output: d out = sum p (v - out) ds. The values' own errors come in by their shares.
  void attend(const AttentionParams& a, std::size_t t, std::uint32_t h) {
    const std::uint32_t kv_head = s_.head_map.empty() ? h / (a.heads / a.kv_heads) : s_.head_map[h];
    const auto head = [&](const OpSetup::Rows& rows, std::size_t r, std::size_t index) {
      return std::span(rows.data).subspan(r * rows.width + index * a.head_dim, a.head_dim);
    };
    const CacheRounding cache{arithmetic_.kv};
    const std::span<const float> q = head(s_.inputs[0], t, h);
    struct Seen {
      double score, error;
      std::size_t position;
    };
    std::vector<Seen> seen;
    double largest = sinks_.empty() ? -HUGE_VAL : sinks_[h];
    for (std::size_t p = 0; p < s_.inputs[1].data.size() / s_.inputs[1].width; ++p) {
      if (!sees(a, t, p)) continue;
      const std::span<const float> k = head(s_.inputs[1], p, kv_head);
      double score = 0;
      for (std::size_t d = 0; d < a.head_dim; ++d) score += static_cast<double>(q[d]) * k[d];
      score *= a.scale;
      double error = std::abs(a.scale) *
                     (sum_rounding(a.head_dim) * norm(q) * norm(k) + cache.score(q, k) + query_error(q, k));
      if (a.softcap > 0) {
        error += softcap_error(a.softcap, score);
        score = a.softcap * std::tanh(score / a.softcap);
      }
      if (a.alibi.max_bias > 0) {
        const double bias = alibi_bias(a.alibi, alibi_slopes(a.alibi, a.heads)[h], p,
                                       static_cast<std::uint64_t>(s_.positions[t]));
        error += kFunction * kEps * (std::abs(score) + std::abs(bias));
        score += bias;
      }
      seen.push_back({score, error, p});
      largest = std::max(largest, score);
    }
    double total = sinks_.empty() ? 0 : std::exp(sinks_[h] - largest), worst = 0;
    for (Seen& one : seen) {
      one.error += kEps * (kFew + 4 * std::abs(one.score - largest));  // rounding of exp and its argument
      one.score = std::exp(one.score - largest);
      total += one.score;
      worst = std::max(worst, one.error);
    }
    std::vector<double> out(a.head_dim), sizes(a.head_dim), moved(a.head_dim), bounds(a.head_dim);
    for (const Seen& one : seen) {
      const std::span<const float> v = head(s_.inputs[2], one.position, kv_head);
      cache.value(v, bounds);
      for (std::size_t d = 0; d < a.head_dim; ++d) {
        out[d] += one.score / total * v[d];
        sizes[d] += one.score / total * std::abs(static_cast<double>(v[d]));
        moved[d] += one.score / total * bounds[d];
      }
    }
    // Beyond first order: an error of a score changes the shares by its exponential.
    const double stretch = std::exp(std::min(2 * worst, 4.0));
    for (const Seen& one : seen) {
      const std::span<const float> v = head(s_.inputs[2], one.position, kv_head);
      for (std::size_t d = 0; d < a.head_dim; ++d) {
        moved[d] +=
            (stretch * one.score * one.error + share_error(one.score)) / total * std::abs(v[d] - out[d]);
      }
    }
    for (std::size_t d = 0; d < a.out_dim(); ++d) {
      set(t * s_.width + h * a.out_dim() + d,
          moved[d] + parts_error(sizes[d]) + sum_rounding(seen.size()) * sizes[d]);
    }
  }

  const OpSetup& s_;
  const Arithmetic& arithmetic_;
  reference::Threads& threads_;
  std::vector<float> out_;
  std::vector<float> sinks_;  // of an attention: one for each head, whose value is 0; or none
};

}  // namespace

constexpr std::string_view kHalfParts = "parts in halves";

std::map<std::string, std::string> arithmetic_metadata(const Arithmetic& arithmetic) {
  const std::string_view activations =
      arithmetic.eight_bit_products ? arithmetic.half_products ? "8 bits beside quantised weights, halves"
                                                               : "8 bits beside quantised weights"
      : arithmetic.half_products    ? "halves"
                                    : "float32";
  return {{"activations", std::string(activations)},
          {"kv_type", std::string(kv_type_name(arithmetic.kv))},
          {"attention", std::string(arithmetic.half_parts ? kHalfParts : "float32")},
          {"wide_blocks_from", std::to_string(arithmetic.wide_blocks_from)}};
}

Arithmetic arithmetic_from(const std::map<std::string, std::string>& metadata) {
  Arithmetic arithmetic;
  if (const auto found = metadata.find("activations"); found != metadata.end())
    arithmetic.eight_bit_products = found->second.starts_with("8 bits"),
    arithmetic.half_products = found->second.ends_with("halves");
  if (const auto found = metadata.find("wide_blocks_from"); found != metadata.end()) {
    const std::string& tokens = found->second;
    std::from_chars(tokens.data(), tokens.data() + tokens.size(), arithmetic.wide_blocks_from);
  }
  if (const auto found = metadata.find("attention"); found != metadata.end())
    arithmetic.half_parts = found->second == kHalfParts;
  if (const auto found = metadata.find("kv_type"); found != metadata.end()) {
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
      if (found->second == kv_type_name(type)) arithmetic.kv = type;
    }
  }
  return arithmetic;
}

std::string describe_weights(const Weights& weights) {
  std::map<std::string_view, std::size_t> counts;
  for (const TensorView& tensor : weights.tensors()) ++counts[dtype_name(tensor.dtype)];
  std::vector<std::string> types;
  for (const auto& [type, count] : counts) types.push_back(fmt::format("{} x {}", type, count));
  return join(types, ", ");
}

Arithmetic arithmetic_of(const Recording& recording, const Weights& weights) {
  const auto& metadata = recording.tensors.metadata();
  Arithmetic arithmetic = arithmetic_from(metadata);
  const auto found = metadata.find("weights");
  const std::string ours = describe_weights(weights), theirs = found == metadata.end() ? "" : found->second;
  if (theirs == ours) return arithmetic;
  // Of floats in 16 bits the recording's model had the same: they are what was trained.
  const bool quantised =
      std::ranges::any_of(weights.tensors(), [](const TensorView& w) { return is_quantised(w.dtype); });
  for (const DTypeInfo& info : all_dtypes()) {
    if (is_quantised(info.type) && fmt::format(", {} ", theirs).contains(fmt::format(", {} ", info.name)))
      arithmetic.other_error = std::max(arithmetic.other_error, storage_error(info.type));
  }
  arithmetic.other_weights = quantised || arithmetic.other_error > 0;
  return arithmetic;
}

Result<std::vector<float>> allowance(const OpSetup& setup, const Arithmetic& arithmetic,
                                     reference::Threads& threads) {
  DOPPLER_TRY(check_setup(setup));
  return Bounds(setup, arithmetic, threads).compute();
}

}  // namespace doppler::diagnosis
