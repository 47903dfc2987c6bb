#include "backend/reference/column_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace doppler::reference {
namespace {

Status scale(const OpCall& call) {
  const Output& out = call.outputs[0];
  std::vector<float> weight(call.weights[0]->cols());
  DOPPLER_TRY(decode_f32(*call.weights[0], 0, weight));
  for (std::size_t i = 0; i < out.data.size(); ++i)
    out.data[i] = static_cast<float>(static_cast<double>(call.inputs[0].data[i]) * weight[i % weight.size()]);
  return {};
}

Status join(const OpCall& call) {
  const std::size_t parts = std::get<JoinParams>(call.params).parts;
  const Input &a = call.inputs[0], &b = call.inputs[1];
  const Output& out = call.outputs[0];
  const std::size_t of_a = a.width / parts, of_b = out.width / parts - of_a;
  for (std::size_t part = 0; part < out.data.size() / (of_a + of_b); ++part) {
    const std::size_t t = part / parts, own = b.width == of_b ? 0 : part % parts;
    float* to = &out.data[part * (of_a + of_b)];
    std::copy_n(&a.data[part * of_a], of_a, to);
    std::copy_n(&b.data[t * b.width + own * of_b], of_b, to + of_a);
  }
  return {};
}

// y_o = sum over i of M[o, i] x_i, of M' where transposed.
double product(const HeadMatmulParams& p, std::span<const float> matrix, std::size_t cols, std::size_t o,
               std::span<const float> x) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += static_cast<double>(x[i]) * (p.transposed ? matrix[i * cols + o] : matrix[o * cols + i]);
  return sum;
}

Status head_matmul(const OpCall& call, Threads& threads) {
  const auto& p = std::get<HeadMatmulParams>(call.params);
  const TensorView& weight = *call.weights[0];
  const Input& in = call.inputs[0];
  const Output& out = call.outputs[0];
  const std::size_t cols = weight.cols(), each = p.rows * cols, takes = p.transposed ? p.rows : cols;
  const std::size_t gives = p.transposed ? cols : p.rows, to_dim = out.width / p.heads;
  const std::size_t from_dim = in.width == takes ? in.width : in.width / p.heads;
  const std::size_t tokens = in.data.size() / in.width;
  std::vector<float> matrices(p.heads * each);
  for (std::size_t h = 0; h < p.heads; ++h)
    DOPPLER_TRY(
        decode_f32(weight, (h * p.stride + p.begin) * cols, std::span(matrices).subspan(h * each, each)));
  threads.run(p.heads, 1, matrices.size() * tokens, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin * tokens; i < end * tokens; ++i) {
      const std::size_t h = i / tokens, t = i % tokens;
      const auto x = in.data.subspan(t * in.width + (in.width == takes ? 0 : h * from_dim), from_dim);
      float* y = &out.data[t * out.width + h * to_dim];
      const auto matrix = std::span(matrices).subspan(h * each, each);
      for (std::size_t o = 0; o < gives; ++o)
        y[o] = static_cast<float>(product(p, matrix, cols, o, x.first(takes)));
      std::ranges::copy(x.subspan(takes), y + gives);
    }
  });
  return {};
}

Status mix(const OpCall& call) {
  const auto& p = std::get<MixParams>(call.params);
  const Input &in = call.inputs[0], &x = call.inputs[1];
  const std::size_t width = in.width / p.streams, parts = x.width / width;
  for (std::size_t t = 0; t < in.data.size() / in.width; ++t) {
    for (std::size_t j = 0; j < p.streams; ++j) {
      for (std::size_t d = 0; d < width; ++d) {
        const std::size_t at = t * in.width + j * width + d;
        double sum = in.data[at];
        for (std::size_t i = 0; i < parts && j >= p.first; ++i) {
          const double c =
              call.inputs.size() > 2 ? call.inputs[2].data[t * p.streams * parts + j * parts + i] : 0;
          sum += (p.offset + c) * x.data[t * x.width + i * width + d];
        }
        call.outputs[0].data[at] = static_cast<float>(sum);
      }
    }
  }
  return {};
}

double mean_square(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum / static_cast<double>(x.size());
}

Status match_rms(const OpCall& call) {
  const Input &in = call.inputs[0], &like = call.inputs[1];
  const std::size_t dim = in.width / call.outputs[0].heads;
  for (std::size_t begin = 0; begin < in.data.size(); begin += dim) {
    const double target = mean_square(like.data.subspan(begin / in.width * like.width, like.width));
    const double own =
        std::max(mean_square(in.data.subspan(begin, dim)), std::get<MatchRmsParams>(call.params).least);
    const double factor = std::sqrt(target / own);
    for (std::size_t i = begin; i < begin + dim; ++i)
      call.outputs[0].data[i] = static_cast<float>(in.data[i] * factor);
  }
  return {};
}

Status cutoff(const OpCall& call) {
  const Input& in = call.inputs[0];
  for (std::size_t begin = 0; begin < in.data.size(); begin += in.width) {
    const std::span<const float> row = in.data.subspan(begin, in.width);
    const double n = static_cast<double>(in.width), mean = std::accumulate(row.begin(), row.end(), 0.0) / n;
    double squares = 0;
    for (const float v : row) squares += (v - mean) * (v - mean);
    const double least = mean + std::get<CutoffParams>(call.params).deviations * std::sqrt(squares / n);
    for (std::size_t i = 0; i < row.size(); ++i)
      call.outputs[0].data[begin + i] = static_cast<float>(std::max(row[i] - least, 0.0));
  }
  return {};
}

}  // namespace

Status run_column_op(const OpCall& call, Threads& threads) {
  switch (call.kind) {
    case OpKind::kScale:
      return scale(call);
    case OpKind::kJoin:
      return join(call);
    case OpKind::kHeadMatmul:
      return head_matmul(call, threads);
    case OpKind::kMix:
      return mix(call);
    case OpKind::kMatchRms:
      return match_rms(call);
    case OpKind::kCutoff:
      return cutoff(call);
    default:
      return fail(ErrorCode::kInternal, "The op {} is not one of columns.", op_name(call.kind));
  }
}

}  // namespace doppler::reference
