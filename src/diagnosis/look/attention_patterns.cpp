#include "diagnosis/look/attention_patterns.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "backend/backend.h"
#include "base/text.h"

namespace doppler::diagnosis {
namespace {

bool read_number(std::string_view text, int& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value >= 0;
}

}  // namespace

Result<AttentionQuery> parse_attention_query(std::string_view text) {
  AttentionQuery query;
  const std::size_t colon = text.find(':');
  const std::string_view layer = text.substr(0, colon);
  const bool good = (layer == "all" || read_number(layer, query.layer)) &&
                    (colon == std::string_view::npos || text.substr(colon + 1) == "all" ||
                     read_number(text.substr(colon + 1), query.head));
  if (good) return query;
  return fail(ErrorCode::kUsage, "The --attention {} is no LAYER, LAYER:HEAD or all.", printable(text));
}

Status check_attention_query(const AttentionQuery& query, const Plan& plan) {
  const int layers = static_cast<int>(plan.kv_layers.size());
  if (query.layer >= layers) {
    return fail(ErrorCode::kUsage, "There is no layer {} to show the attention of; layers are 0 to {}.",
                query.layer, layers - 1);
  }
  int most = 0;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::kAttention && (query.layer < 0 || op.layer == query.layer))
      most = std::max(most, static_cast<int>(std::get<AttentionParams>(op.params).heads));
  }
  if (query.head < most) return {};
  return fail(ErrorCode::kUsage, "There is no head {} to show the attention of; heads are 0 to {}.",
              query.head, most - 1);
}

bool AttentionTap::asked(int layer, int head) const {
  return std::any_of(queries_.begin(), queries_.end(), [&](const AttentionQuery& q) {
    return (q.layer < 0 || q.layer == layer) && (q.head < 0 || head < 0 || q.head == head);
  });
}

bool AttentionTap::wants(Stage stage, int layer) const {
  return !stopped_ && stage == Stage::kAttnScores && asked(layer, -1);
}

void softmax(std::span<const float> scores, std::vector<double>& weights) {
  weights.assign(scores.size(), 0);
  const float largest = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    weights[i] = std::exp(static_cast<double>(scores[i]) - largest);
    sum += weights[i];
  }
  for (double& weight : weights) weight /= sum;
}

void AttentionTap::on_stage(const TapEvent& event) {
  constexpr double kNoticed = 0.01;  // a smaller share has no visible effect
  const std::size_t positions = event.width / event.heads;
  std::vector<double> weights;
  for (int head = 0; head < static_cast<int>(event.heads); ++head) {
    if (!asked(event.layer, head)) continue;
    auto found = std::find_if(sums_.begin(), sums_.end(),
                              [&](const HeadPattern& p) { return p.layer == event.layer && p.head == head; });
    if (found == sums_.end()) {
      sums_.push_back({.layer = event.layer, .head = head});
      found = std::prev(sums_.end());
      found->window = plan_.kv_layers[static_cast<std::size_t>(event.layer)].window;
    }
    for (std::size_t row = 0; row < event.rows; ++row) {
      const auto token = static_cast<std::size_t>(event.input->positions[row]);
      if (event.input->slots[row] != 0 || token == 0 || token >= positions) continue;
      const auto scores =
          event.data.subspan(row * event.width + static_cast<std::size_t>(head) * positions, positions);
      softmax(scores, weights);
      ++found->tokens;
      found->first += weights[0];
      found->self += weights[token];
      found->previous += weights[token - 1];
      std::size_t seen = 0;
      for (std::size_t p = 0; p < positions; ++p) {
        const auto distance = static_cast<std::int64_t>(token) - static_cast<std::int64_t>(p);
        if (weights[p] > 0) found->entropy -= weights[p] * std::log(weights[p]);
        if (weights[p] >= kNoticed) found->furthest = std::max(found->furthest, distance);
        if (!std::isfinite(scores[p])) continue;
        ++seen;
        found->reach = std::max(found->reach, distance);
      }
      if (seen > 0) found->most_entropy += std::log(static_cast<double>(seen));
    }
  }
}

std::vector<HeadPattern> AttentionTap::patterns() const {
  std::vector<HeadPattern> patterns = sums_;
  for (HeadPattern& p : patterns) {
    const double n = static_cast<double>(std::max<std::size_t>(p.tokens, 1));
    for (double* mean : {&p.first, &p.self, &p.previous, &p.entropy, &p.most_entropy}) *mean /= n;
  }
  std::sort(patterns.begin(), patterns.end(), [](const auto& a, const auto& b) {
    return std::pair(a.layer, a.head) < std::pair(b.layer, b.head);
  });
  return patterns;
}

}  // namespace doppler::diagnosis
