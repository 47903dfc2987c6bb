// Attention patterns: which positions each head attends to, from its scores.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/tap.h"
#include "base/result.h"
#include "plan/plan.h"

namespace doppler::diagnosis {

// The heads to measure; a layer or head of -1: all.
struct AttentionQuery {
  int layer = -1, head = -1;
};
// "3", "3:1", "all". Errors: kUsage.
Result<AttentionQuery> parse_attention_query(std::string_view text);
// Errors: kUsage for layers and heads that the plan does not have, naming those it has.
Status check_attention_query(const AttentionQuery& query, const Plan& plan);

// Means over the prompt's tokens except the first, which attends only to itself.
struct HeadPattern {
  int layer = 0, head = 0;
  std::size_t tokens = 0;  // that were averaged
  // Shares of attention on token 0, on the token itself, and on the token before it.
  double first = 0, self = 0, previous = 0;
  double entropy = 0;         // nats
  double most_entropy = 0;    // that of a head that attends to all positions alike
  std::int64_t furthest = 0;  // the largest distance that still gets 1 % of a token's attention
  std::int64_t reach = 0;     // the largest distance that is not masked
  std::uint32_t window = 0;   // the layer's sliding window; 0: none
};

class AttentionTap final : public Tap {
 public:
  AttentionTap(std::vector<AttentionQuery> queries, const Plan& plan)
      : queries_(std::move(queries)), plan_(plan) {}
  // Ends the measuring before decode steps: for their scores a GPU would need other kernels than those that
  // users run.
  void stop() { stopped_ = true; }

  bool wants(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

  // In the order of layers and heads.
  std::vector<HeadPattern> patterns() const;

 private:
  bool asked(int layer, int head) const;
  const std::vector<AttentionQuery> queries_;
  const Plan& plan_;
  std::vector<HeadPattern> sums_;
  bool stopped_ = false;
};

// One token's weights over the positions, from its scores; masked positions get 0.
void softmax(std::span<const float> scores, std::vector<double>& weights);

}  // namespace doppler::diagnosis
