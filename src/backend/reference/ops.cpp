#include "backend/reference/ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "backend/reference/column_ops.h"
#include "backend/reference/recurrent_ops.h"
#include "backend/routing.h"
#include "model/activation.h"
#include "model/alibi.h"
#include "system/threads.h"

namespace doppler::reference {
namespace {

// Multiplications below which waking a thread (some 50 us) costs more than it saves.
constexpr std::uint64_t kWorthThreads = 1 << 17;

// Tokens that one pass over a weight row serves, and rows that one pass over the tokens serves: 16 sums in
// double fill half the vector registers of the smallest machine (SSE2), the factors the rest.
constexpr std::size_t kTokens = 8, kRows = 2;

// The first error of several threads.
class FirstError {
 public:
  void keep(const Status& status) {
    if (status) return;
    const system::Lock lock(mutex_);
    if (!error_) error_ = status.error();
  }
  Status take() {
    if (error_) return std::unexpected(std::move(*error_));
    return {};
  }

 private:
  system::Mutex mutex_;
  std::optional<Error> error_;
};

// Tokens beyond a table of fewer rows than the vocabulary has read its first.
std::uint64_t row_of(const TensorView& table, std::int32_t id) {
  return static_cast<std::uint64_t>(id) < table.rows() ? static_cast<std::uint64_t>(id) : 0;
}

Status embed(const OpCall& call) {
  const TensorView& table = *call.weights[0];
  const double scale = std::get<EmbedParams>(call.params).scale;
  const Output& out = call.outputs[0];
  const TensorView* positions = call.weights.size() > 1 ? call.weights[1] : nullptr;
  std::vector<float> row(out.width), place(positions != nullptr ? out.width : 0);
  for (std::size_t t = 0; t < call.ids.size(); ++t) {
    DOPPLER_TRY(decode_f32(table, row_of(table, call.ids[t]) * out.width, row));
    if (positions != nullptr)
      DOPPLER_TRY(decode_f32(*positions, static_cast<std::uint64_t>(call.positions[t]) * out.width, place));
    for (std::size_t i = 0; i < out.width; ++i) {
      const double added = positions != nullptr ? place[i] : 0;
      out.data[t * out.width + i] = static_cast<float>(row[i] * scale + added);
    }
  }
  return {};
}

Status rms_norm(const OpCall& call) {
  const auto& p = std::get<NormParams>(call.params);
  const std::span<const float> in = call.inputs[0].data;
  const Output& out = call.outputs[0];
  const std::size_t dim = p.span == NormSpan::kProjection ? out.width : out.width / out.heads;
  // One for all heads of a row, or one for each.
  std::vector<float> weight(call.weights.empty() ? dim : call.weights[0]->cols()), bias;
  if (!call.weights.empty()) DOPPLER_TRY(decode_f32(*call.weights[0], 0, weight));
  if (!call.biases.empty() && call.biases[0] != nullptr) {
    bias.resize(weight.size());
    DOPPLER_TRY(decode_f32(*call.biases[0], 0, bias));
  }
  for (std::size_t begin = 0; begin < in.size(); begin += dim) {
    const std::span<const float> part = in.subspan(begin, dim);
    double mean = 0, sum = 0;
    if (p.kind == NormKind::kLayer)
      mean = std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(dim);
    for (const float x : part) sum += (x - mean) * (x - mean);
    const double inverse = 1 / std::sqrt(sum / static_cast<double>(dim) + p.eps);
    const std::size_t own = begin % weight.size();
    for (std::size_t i = 0; i < dim; ++i) {
      const double factor = call.weights.empty() ? p.factor : weight[own + i] + p.weight_offset;
      const double scaled = (part[i] - mean) * inverse * factor;
      out.data[begin + i] = static_cast<float>(bias.empty() ? scaled : scaled + bias[own + i]);
    }
  }
  return {};
}

// kTokens tokens side by side, column after column, so that the sums of one row need no gathering.
std::vector<double> interleave(const Input& in, std::size_t tokens) {
  const std::size_t blocks = (tokens + kTokens - 1) / kTokens;
  std::vector<double> x(blocks * in.width * kTokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    double* to = &x[t / kTokens * in.width * kTokens + t % kTokens];
    for (std::size_t c = 0; c < in.width; ++c) to[c * kTokens] = in.data[t * in.width + c];
  }
  return x;
}

// sums[r][t] += rows[r] . x[t], each in the order of columns.
void multiply(const float* rows, const double* x, std::size_t cols, double (&sums)[kRows][kTokens]) {
  double a[kTokens], b[kTokens];
  std::copy_n(sums[0], kTokens, a);
  std::copy_n(sums[1], kTokens, b);
  for (std::size_t c = 0; c < cols; ++c) {
    const double first = rows[c], second = rows[cols + c];
    for (std::size_t t = 0; t < kTokens; ++t) a[t] += first * x[c * kTokens + t];
    for (std::size_t t = 0; t < kTokens; ++t) b[t] += second * x[c * kTokens + t];
  }
  std::copy_n(a, kTokens, sums[0]);
  std::copy_n(b, kTokens, sums[1]);
}

Status multiply_rows(const TensorView& weight, std::span<const float> bias, std::span<const double> x,
                     std::size_t tokens, const Output& out, std::size_t begin, std::size_t end) {
  const std::size_t cols = weight.cols();
  std::vector<float> rows(kRows * cols);
  for (std::size_t r = begin; r < end; r += kRows) {
    const std::size_t count = std::min(kRows, end - r);  // beyond it lies an old row, whose sums are not used
    DOPPLER_TRY(decode_f32(weight, r * cols, std::span(rows).first(count * cols)));
    for (std::size_t first = 0; first < tokens; first += kTokens) {
      double sums[kRows][kTokens];
      for (std::size_t i = 0; i < kRows; ++i) {
        std::fill_n(sums[i], kTokens, i < count ? static_cast<double>(bias[r + i]) : 0.0);
      }
      multiply(rows.data(), &x[first * cols], cols, sums);
      for (std::size_t t = 0; t < std::min(kTokens, tokens - first); ++t) {
        for (std::size_t i = 0; i < count; ++i) {
          out.data[(first + t) * out.width + r + i] = static_cast<float>(sums[i][t]);
        }
      }
    }
  }
  return {};
}

// Some rows of x, multiplied by one matrix.
Status multiply_all(const Input& in, const TensorView& weight, const TensorView* bias_tensor,
                    const Output& out, Threads& threads) {
  const std::size_t tokens = in.width == 0 ? 0 : in.data.size() / in.width;
  if (tokens == 0) return {};
  const std::vector<double> x = interleave(in, tokens);
  std::vector<float> bias(out.width, 0.0f);
  if (bias_tensor != nullptr) DOPPLER_TRY(decode_f32(*bias_tensor, 0, bias));
  FirstError error;
  threads.run(out.width, kRows, std::uint64_t{out.width} * in.width * tokens,
              [&](std::size_t begin, std::size_t end) {
                error.keep(multiply_rows(weight, bias, x, tokens, out, begin, end));
              });
  return error.take();
}

Status decode_whole(const std::vector<const TensorView*>& weights, std::vector<float>& values) {
  if (weights.empty()) return {};
  values.resize(element_count(weights[0]->shape).value_or(0));
  return decode_f32(*weights[0], 0, values);
}

std::span<const float> row_of(const Input& in, std::size_t t) {
  return in.data.subspan(t * in.width, in.width);
}

Status route(const OpCall& call) {
  const RouterSpec& router = std::get<RouteParams>(call.params).router;
  std::vector<float> weight;
  DOPPLER_TRY(decode_whole(call.weights, weight));
  const Output& out = call.outputs[0];
  for (std::size_t t = 0; t < out.data.size() / out.width; ++t) {
    const std::span<float> to = out.data.subspan(t * out.width, out.width);
    if (call.kind == OpKind::kChoose)
      choose_experts(router, row_of(call.inputs[0], t), weight, to);
    else
      weigh_experts(router, row_of(call.inputs[0], t), row_of(call.inputs[1], t), weight, to);
  }
  return {};
}

// Expert by expert: the rows that are sent to it, together.
Status expert_matmul(const OpCall& call, Threads& threads) {
  const auto& p = std::get<ExpertParams>(call.params);
  const Input &x = call.inputs[0], &ids = call.inputs[1];
  const std::size_t tokens = ids.data.size() / p.chosen;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const std::size_t cols = call.weights[i]->cols(), rows = call.outputs[i].width / p.chosen;
    const bool own_rows = x.width != cols;  // a part of x for each of the token's experts
    for (std::size_t e = 0; e < p.experts; ++e) {
      std::vector<std::size_t> places;  // token x chosen + place
      std::vector<float> in;
      for (std::size_t at = 0; at < tokens * p.chosen; ++at) {
        if (ids.data[at] != static_cast<float>(e)) continue;
        const std::size_t from = own_rows ? at * cols : at / p.chosen * cols;
        in.insert(in.end(), &x.data[from], &x.data[from] + cols);
        places.push_back(at);
      }
      std::vector<float> out(places.size() * rows);
      const TensorView* bias = call.biases.empty() ? nullptr : call.biases[i];
      DOPPLER_TRY(multiply_all({in, cols}, call.weights[i][e], bias == nullptr ? nullptr : bias + e,
                               {out, rows, 1}, threads));
      for (std::size_t n = 0; n < places.size(); ++n)
        std::copy_n(&out[n * rows], rows, &call.outputs[i].data[places[n] * rows]);
    }
  }
  return {};
}

Status spread(const OpCall& call) {
  const Input &x = call.inputs[0], &weights = call.inputs[1];
  for (std::size_t i = 0; i < weights.data.size(); ++i) {
    const std::span<const float> row = row_of(x, i / weights.width);
    for (std::size_t c = 0; c < x.width; ++c)
      call.outputs[0].data[i * x.width + c] =
          static_cast<float>(static_cast<double>(row[c]) * weights.data[i]);
  }
  return {};
}

Status expert_sum(const OpCall& call) {
  const auto& p = std::get<ExpertSumParams>(call.params);
  const Output& out = call.outputs[0];
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const std::size_t t = i / out.width, c = i % out.width;
    double sum = p.adds ? call.inputs.back().data[i] : 0;
    for (std::size_t k = 0; k < p.chosen; ++k) {
      const double weight = p.weighted ? call.inputs[1].data[t * p.chosen + k] : 1;
      sum += weight * call.inputs[0].data[(t * p.chosen + k) * out.width + c];
    }
    out.data[i] = static_cast<float>(sum);
  }
  return {};
}

Status matmul(const OpCall& call, Threads& threads) {
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    DOPPLER_TRY(multiply_all(call.inputs[0], *call.weights[i], call.biases.empty() ? nullptr : call.biases[i],
                             call.outputs[i], threads));
  }
  return {};
}

// The two dims of a pair, as they are read and as they are left.
struct Pair {
  std::size_t from[2], to[2];
};
Pair pair_of(RopeLayout layout, std::size_t i, std::size_t pairs) {
  const Pair halves = {{i, i + pairs}, {i, i + pairs}}, neighbours = {{2 * i, 2 * i + 1}, {2 * i, 2 * i + 1}};
  if (layout == RopeLayout::kHalf) return halves;
  return layout == RopeLayout::kInterleaved ? neighbours : Pair{{2 * i, 2 * i + 1}, {i, i + pairs}};
}

Status rope(const OpCall& call) {
  const auto& p = std::get<RopeParams>(call.params);
  const RopeTable& table = *call.rope;
  const std::span<const float> in = call.inputs[0].data;
  const Output& out = call.outputs[0];
  std::copy(in.begin(), in.end(), out.data.begin());  // dims besides the rotary ones pass through
  const std::size_t dim = out.width / out.heads, pairs = table.inverse_frequency.size();
  for (std::size_t t = 0; t < call.positions.size(); ++t) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const auto [cos, sin] = table.turn(call.positions[t], i);
      const Pair pair = pair_of(p.layout, i, pairs);
      for (std::size_t h = 0; h < out.heads; ++h) {
        const std::size_t at = t * out.width + h * dim + p.begin;
        const double x = in[at + pair.from[0]], y = in[at + pair.from[1]];
        out.data[at + pair.to[0]] = static_cast<float>(x * cos - y * sin);
        out.data[at + pair.to[1]] = static_cast<float>(y * cos + x * sin);
      }
    }
  }
  return {};
}

// One head of one token.
class Attender {
 public:
  Attender(const OpCall& call, std::span<const float> sinks)
      : call_(call), a_(std::get<AttentionParams>(call.params)), sinks_(sinks) {
    if (a_.alibi.max_bias > 0) slopes_ = alibi_slopes(a_.alibi, a_.heads);
  }

  void attend(std::size_t t, std::uint32_t h) {
    find_visible(t);
    const std::uint32_t kv_head = call_.head_map.empty() ? h / (a_.heads / a_.kv_heads) : call_.head_map[h];
    const std::size_t at = (t * a_.heads + h) * a_.head_dim;
    const std::span<const float> q = call_.inputs[0].data;
    double largest = sinks_.empty() ? -std::numeric_limits<double>::infinity() : sinks_[h];
    scores_.resize(visible_.size());
    for (std::size_t i = 0; i < visible_.size(); ++i) {
      const float* key = call_.cache->key(t, kv_head, visible_[i]);
      double score = 0;
      for (std::size_t d = 0; d < a_.head_dim; ++d) score += static_cast<double>(q[at + d]) * key[d];
      score *= a_.scale;
      if (a_.softcap > 0) score = a_.softcap * std::tanh(score / a_.softcap);
      score += bias(t, h, visible_[i]);
      if (!call_.scores.empty()) {
        call_.scores[(t * a_.heads + h) * call_.longest + visible_[i]] = static_cast<float>(score);
      }
      scores_[i] = score;
      largest = std::max(largest, score);
    }
    double total = sinks_.empty() ? 0 : std::exp(sinks_[h] - largest);
    const std::size_t dim = a_.out_dim(), to = (t * a_.heads + h) * dim;
    sum_.assign(dim, 0.0);
    for (std::size_t i = 0; i < visible_.size(); ++i) {
      const double weight = std::exp(scores_[i] - largest);
      total += weight;
      const float* value = call_.cache->value(t, kv_head, visible_[i]);
      for (std::size_t d = 0; d < dim; ++d) sum_[d] += weight * value[d];
    }
    for (std::size_t d = 0; d < dim; ++d) {
      call_.outputs[0].data[to + d] = visible_.empty() ? 0 : static_cast<float>(sum_[d] / total);
    }
  }

 private:
  double bias(std::size_t t, std::uint32_t h, std::uint64_t key) const {
    if (slopes_.empty()) return 0;
    return alibi_bias(a_.alibi, slopes_[h], key, static_cast<std::uint64_t>(call_.positions[t]));
  }

  void find_visible(std::size_t t) {
    visible_.clear();
    if (call_.sees) {
      for (std::size_t p = 0; p < call_.keys; ++p) {
        if (call_.sees(t, p)) visible_.push_back(p);
      }
      return;
    }
    const auto position = static_cast<std::uint64_t>(call_.positions[t]);
    for (std::uint64_t p = a_.first_seen(position); p <= position; ++p) visible_.push_back(p);
  }

  const OpCall& call_;
  const AttentionParams& a_;
  std::span<const float> sinks_;        // one for each head, or none
  std::vector<std::uint64_t> visible_;  // positions
  std::vector<double> scores_, sum_;
  std::vector<double> slopes_;  // of ALiBi, one for each head, or none
};

Status attention(const OpCall& call, Threads& threads) {
  const auto& a = std::get<AttentionParams>(call.params);
  const std::size_t tokens = call.positions.size();
  if (tokens == 0) return {};
  const auto longest =
      1 + static_cast<std::uint64_t>(*std::max_element(call.positions.begin(), call.positions.end()));
  std::vector<float> sinks;
  DOPPLER_TRY(decode_whole(call.weights, sinks));
  const std::uint64_t work = tokens * a.heads * longest * a.head_dim;
  threads.run(tokens * a.heads, 1, work, [&](std::size_t begin, std::size_t end) {
    Attender attender(call, sinks);
    for (std::size_t i = begin; i < end; ++i)
      attender.attend(i / a.heads, static_cast<std::uint32_t>(i % a.heads));
  });
  return {};
}

template <typename Function>
Status each(const OpCall& call, Function function) {
  const std::span<const float> a = call.inputs[0].data;
  const std::span<float> out = call.outputs[0].data;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(function(a[i], call.inputs[1].data[i]));
  }
  return {};
}

// The gate may be one value for each row.
Status gated(const OpCall& call) {
  const auto& p = std::get<GatedParams>(call.params);
  const Output& out = call.outputs[0];
  const std::size_t share = call.inputs[0].width == 1 ? out.width : 1;
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    double gate = call.inputs[0].data[i / share];
    double up = call.inputs.size() > 1 ? call.inputs[1].data[i] : 1;
    if (p.clamp > 0) {
      gate = std::min(gate, p.clamp);
      up = std::clamp(up, -p.clamp, p.clamp);
    }
    out.data[i] = static_cast<float>(activate(p.activation, gate, p.xielu, p.alpha) * (up + p.up_offset));
  }
  return {};
}

Status select(const OpCall& call) {
  const std::size_t width = call.outputs[0].width;
  for (std::size_t i = 0; i < call.wanted.size(); ++i) {
    std::copy_n(&call.inputs[0].data[call.wanted[i] * width], width, &call.outputs[0].data[i * width]);
  }
  return {};
}

Status columns(const OpCall& call) {
  const Input& in = call.inputs[0];
  const Output& out = call.outputs[0];
  for (std::size_t t = 0; t * out.width < out.data.size(); ++t) {
    float* to = &out.data[t * out.width];
    for (const ColumnRange& range : std::get<ColumnsParams>(call.params).ranges) {
      for (std::size_t i = 0; i < std::size_t{range.groups} * range.width; ++i) {
        const std::size_t group = i / range.width, within = range.first + i % range.width;
        const double x = in.data[t * in.width + group * (in.width / range.groups) + within];
        *to++ = static_cast<float>(x * range.scale);
      }
    }
  }
  return {};
}

Status time_step(const OpCall& call) {
  const auto& p = std::get<TimeStepParams>(call.params);
  const Output& out = call.outputs[0];
  std::vector<float> bias(out.width);
  DOPPLER_TRY(decode_f32(*call.weights[0], 0, bias));
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const double x = static_cast<double>(call.inputs[0].data[i]) + bias[i % out.width];
    const double step = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    out.data[i] = static_cast<float>(std::clamp(step, p.low, p.high));
  }
  return {};
}

Status decay(const OpCall& call) {
  const Output& out = call.outputs[0];
  std::vector<float> rate(out.width);
  DOPPLER_TRY(decode_f32(*call.weights[0], 0, rate));
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const double x = call.inputs[0].data[i];
    out.data[i] = static_cast<float>(x * -std::exp(static_cast<double>(rate[i % out.width])));
  }
  return {};
}

Status softcap(const OpCall& call) {
  const auto& p = std::get<SoftcapParams>(call.params);
  const std::span<const float> in = call.inputs[0].data;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double x = in[i] * p.scale;
    const double capped =
        p.hard ? (std::isnan(x) ? x : std::clamp(x, -p.cap, p.cap)) : p.cap * std::tanh(x / p.cap);
    call.outputs[0].data[i] = static_cast<float>(p.cap > 0 ? capped : x);
  }
  return {};
}

Status scale_query(const OpCall& call) {
  const auto& p = std::get<PositionScale>(call.params);
  const Output& out = call.outputs[0];
  for (std::size_t t = 0; t < call.positions.size(); ++t) {
    const double factor = position_factor(p, call.positions[t]);
    for (std::size_t i = t * out.width; i < (t + 1) * out.width; ++i)
      out.data[i] = static_cast<float>(call.inputs[0].data[i] * factor);
  }
  return {};
}

}  // namespace

void Threads::run(std::size_t count, std::size_t grain, std::uint64_t work,
                  const std::function<void(std::size_t, std::size_t)>& body) {
  if (work < kWorthThreads || count_ == 1) return body(0, count);
  if (!pool_) pool_ = std::make_unique<ThreadPool>(count_);
  pool_->parallel_for(count, grain, body);
}

Status run_op(const OpCall& call, Threads& threads) {
  switch (call.kind) {
    case OpKind::kEmbed:
      return embed(call);
    case OpKind::kRmsNorm:
      return rms_norm(call);
    case OpKind::kMatmul:
      return matmul(call, threads);
    case OpKind::kRope:
      return rope(call);
    case OpKind::kAttention:
      return attention(call, threads);
    case OpKind::kAdd:
      return each(call, [scale = std::get<AddParams>(call.params).scale](double a, double b) {
        return a + scale * b;
      });
    case OpKind::kGated:
      return gated(call);
    case OpKind::kChoose:
    case OpKind::kWeigh:
      return route(call);
    case OpKind::kSpread:
      return spread(call);
    case OpKind::kExpertMatmul:
      return expert_matmul(call, threads);
    case OpKind::kExpertSum:
      return expert_sum(call);
    case OpKind::kSelect:
      return select(call);
    case OpKind::kSoftcap:
      return softcap(call);
    case OpKind::kColumns:
      return columns(call);
    case OpKind::kTimeStep:
      return time_step(call);
    case OpKind::kDecay:
      return decay(call);
    case OpKind::kConvolution:
    case OpKind::kDeltaRule:
    case OpKind::kScan:
    case OpKind::kChannelScan:
      return run_recurrent_op(call, threads);
    case OpKind::kScaleQuery:
      return scale_query(call);
    case OpKind::kScale:
    case OpKind::kJoin:
    case OpKind::kHeadMatmul:
    case OpKind::kMix:
    case OpKind::kMatchRms:
    case OpKind::kCutoff:
      return run_column_op(call, threads);
    case OpKind::kGatedMatmul:
    case OpKind::kCount:
      break;
  }
  return fail(ErrorCode::kInternal, "The reference backend does not run the fused op {}.",
              op_name(call.kind));
}

}  // namespace doppler::reference
