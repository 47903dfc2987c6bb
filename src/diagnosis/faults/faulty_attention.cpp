#include "diagnosis/faults/faulty_attention.h"

#include <algorithm>
#include <cmath>

namespace doppler::diagnosis::faults {

void FaultyAttention::store(std::map<std::int32_t, std::vector<std::vector<float>>>& cache,
                            const Fault::Computed& computed) {
  const std::size_t width = computed.data.size() / computed.rows;
  for (std::size_t t = 0; t < computed.rows; ++t) {
    auto& rows = cache[computed.step.slots[t]];
    rows.resize(
        static_cast<std::size_t>(computed.step.positions[t]));  // what lay behind is of another sequence
    const auto row = computed.data.subspan(t * width, width);
    rows.emplace_back(row.begin(), row.end());
  }
}

bool FaultyAttention::compute(const Fault::Computed& computed, Stage stage, int layer) {
  Layer& l = layers_[layer];
  if (stage == Stage::kQRope) l.q.assign(computed.data.begin(), computed.data.end());
  if (stage == Stage::kKRope) store(l.keys, computed);
  if (stage == Stage::kVProj) store(l.values, computed);
  if (stage != Stage::kAttnOut) return false;
  const Op* op = nullptr;
  for (const Op& candidate : computed.plan.ops) {
    if (candidate.kind == OpKind::kAttention && candidate.layer == layer) op = &candidate;
  }
  const auto& a = std::get<AttentionParams>(op->params);
  const std::size_t dim = a.head_dim;
  for (std::size_t t = 0; t < computed.rows; ++t) {
    const auto position = static_cast<std::uint64_t>(computed.step.positions[t]);
    const auto& keys = l.keys[computed.step.slots[t]];
    const auto& values = l.values[computed.step.slots[t]];
    for (std::uint32_t h = 0; h < a.heads; ++h) {
      const float* q = &l.q[(t * a.heads + h) * dim];
      const std::size_t from = (kv_head ? kv_head(h, a) : h / (a.heads / a.kv_heads)) * dim;
      const std::uint64_t first = a.window != 0 && position + 1 > a.window ? position + 1 - a.window : 0;
      std::vector<double> scores(keys.size(), -1e300), sum(dim);
      double largest = -1e300, total = 0;
      for (std::uint64_t p = first; p < keys.size(); ++p) {
        if (sees ? !sees(position, p) : p > position) continue;
        double score = 0;
        for (std::size_t i = 0; i < dim; ++i) score += double{q[i]} * keys[p][from + i];
        score *= a.scale;
        if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
        scores[p] = score;
        largest = std::max(largest, score);
      }
      for (std::size_t p = 0; p < keys.size(); ++p) {
        const double weight = scores[p] == -1e300 ? 0 : std::exp(scores[p] - largest);
        total += weight;
        for (std::size_t i = 0; i < dim && weight > 0; ++i) sum[i] += weight * values[p][from + i];
      }
      for (std::size_t i = 0; i < dim; ++i)
        computed.data[(t * a.heads + h) * dim + i] = static_cast<float>(sum[i] / total);
    }
  }
  return true;
}

}  // namespace doppler::diagnosis::faults
