#include "bench/op_profile.h"

#include <algorithm>
#include <map>

namespace doppler::bench {
OpProfile::OpProfile(const Plan& plan, const Weights& weights, KvType kv_type)
    : plan_(plan), weights_(weights), kv_type_(kv_type) {
  for (const Op& op : plan.ops) {
    OpRow row;
    row.name = op_title(plan, op);
    by_op_.push_back(std::move(row));
  }
}

void OpProfile::begin_step(std::uint64_t tokens, std::uint64_t position) {
  tokens_ = tokens;
  position_ = position;
}

void OpProfile::on_op(std::size_t index, double seconds) {
  if (index >= by_op_.size()) return;
  const Op& op = plan_.ops[index];
  OpRow& row = by_op_[index];
  ++row.calls;
  row.seconds += seconds;
  row.bytes += weight_bytes(plan_, weights_, op, tokens_);
  // A step of several tokens reads the cache about once: what its last token sees.
  if (op.kind == OpKind::kAttention && op.layer >= 0)
    row.bytes += cache_bytes(plan_.kv_layers[std::get<AttentionParams>(op.params).cache_of(op.layer)],
                             kv_type_, position_ + tokens_ - 1);
}

std::vector<OpRow> OpProfile::rows() const {
  std::map<std::string, OpRow> by_name;
  for (const OpRow& row : by_op_) {
    OpRow& sum = by_name[row.name];
    sum.name = row.name;
    sum.calls += row.calls;
    sum.seconds += row.seconds;
    sum.bytes += row.bytes;
  }
  std::vector<OpRow> out;
  for (auto& [name, row] : by_name) out.push_back(std::move(row));
  std::ranges::sort(out, [](const OpRow& a, const OpRow& b) {
    return a.seconds != b.seconds ? a.seconds > b.seconds : a.name < b.name;
  });
  return out;
}

double OpProfile::seconds() const {
  double sum = 0;
  for (const OpRow& row : by_op_) sum += row.seconds;
  return sum;
}

}  // namespace doppler::bench
