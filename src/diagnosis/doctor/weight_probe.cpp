#include "diagnosis/doctor/weight_probe.h"

#include <algorithm>
#include <cmath>

namespace doppler::diagnosis {
namespace {

// Enough that a wrong weight cannot fit by chance, few enough to read single elements of.
constexpr std::size_t kWrongSamples = 24, kRightSamples = 8;

void take_evenly(const std::vector<std::size_t>& from, std::size_t most, std::vector<std::size_t>& to) {
  const std::size_t count = std::min(most, from.size());
  for (std::size_t i = 0; i < count; ++i) to.push_back(from[i * from.size() / count]);
}

}  // namespace

WeightProbe::WeightProbe(const OpCase& opcase) : case_(opcase), bad_(find_bad_places(opcase).columns) {
  take_evenly(bad_, kWrongSamples, sample_);
  std::vector<std::size_t> good;
  for (std::size_t i = 0, b = 0; i < case_.width(); ++i) {
    while (b < bad_.size() && bad_[b] < i) ++b;
    if (b == bad_.size() || bad_[b] != i) good.push_back(i);
  }
  take_evenly(good, kRightSamples, sample_);
  const auto& biases = case_.setup().biases;
  if (biases.empty() || !biases[0]) return;
  bias_.resize(case_.width());
  if (!decode_f32(*biases[0], 0, bias_)) bias_.clear();
}

double WeightProbe::output(std::size_t token, std::size_t place) const {
  return case_.output()[token * case_.width() + place] - bias(place);
}

double WeightProbe::target(std::size_t token, std::size_t place) const {
  return case_.target()[token * case_.width() + place] - bias(place);
}

double WeightProbe::ratio(const ReadRow& read) const {
  const OpSetup::Rows& in = case_.setup().inputs[0];
  std::vector<float> row(in.width), out(case_.tokens() * sample_.size());
  std::size_t lost = 0;
  for (std::size_t i = 0; i < sample_.size(); ++i) {
    if (const Status status = read(sample_[i], row); !status) {
      if (status.error().code != ErrorCode::kNotFound) return INFINITY;
      ++lost;  // the row's values are lost: it is not judged
      for (std::size_t t = 0; t < case_.tokens(); ++t)
        out[t * sample_.size() + i] = case_.target()[t * case_.width() + sample_[i]];
      continue;
    }
    for (std::size_t t = 0; t < case_.tokens(); ++t) {
      double sum = bias(sample_[i]);
      for (std::size_t c = 0; c < in.width; ++c)
        sum += static_cast<double>(row[c]) * in.data[t * in.width + c];
      out[t * sample_.size() + i] = static_cast<float>(sum);
    }
  }
  if (lost * 4 > sample_.size() * 3) return INFINITY;  // too little is left to judge by
  return case_.judge_columns(sample_, out);
}

double WeightProbe::ratio(const TensorView& tensor) const {
  if (tensor.shape != weight().shape) return INFINITY;
  return ratio(
      [&](std::uint64_t row, std::span<float> values) { return decode_f32(tensor, row * cols(), values); });
}

std::string same_bytes_as(const OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  const WeightId own_id = c.op().weights[0];
  // One value throughout says nothing: norms of ones.
  std::vector<float> values(std::min<std::size_t>(own.cols(), 64));
  if (!decode_f32(own, 0, values) || std::ranges::all_of(values, [&](float x) { return x == values[0]; }))
    return {};
  for (const Op& op : c.plan().ops) {
    for (const WeightId id : op.weights) {
      const TensorView& other = c.context().weights[id];
      const bool mine = &op == &c.op() || other.shape != own.shape || other.data.size() != own.data.size();
      // The embedding is allowed to be the head.
      const bool tied = id == own_id && (c.stage() == Stage::kLogits || c.stage() == Stage::kEmbedOut);
      // Keys and values of a latent are parts of one weight.
      const bool parts = id == own_id && op.kind == OpKind::kHeadMatmul && op.layer == c.layer();
      if (mine || tied || parts || !std::ranges::equal(other.data, own.data)) continue;
      return other.name == own.name ? stage_key(c.plan().values[op.outputs[0]].stage, op.layer) : other.name;
    }
  }
  return {};
}

}  // namespace doppler::diagnosis
