#include "diagnosis/compare/op_chain.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "quant/error.h"

namespace doppler::diagnosis {
namespace {

// An absurd weight has an absurd allowance, with which every repair would fit. The rounding of a sound weight
// stays far below the largest value; larger allowances are cut to this share of it.
constexpr float kSoundShare = 1e-4f;

void limit_allowance(std::span<const float> values, std::span<float> allowed) {
  float largest = 0;
  for (const float x : values) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  if (largest == 0) return;
  for (float& a : allowed) {
    if (!(a <= largest)) a = kSoundShare * largest;
  }
}

// Runs with every value moved at random. An op's allowance is eight deviations of its rounding, and rows have
// dozens of values over which the moves even out: three show their size.
constexpr int kSamples = 3;
// Where recorded values were rounded, ops of few inputs must show their largest moves value by value.
constexpr int kStoredSamples = 12;
// What is allowed beyond the largest of the measured moves: more samples would find larger ones, and healthy
// models of every family, with every thinning of their recordings, use a fifth of it.
constexpr float kBeyondMeasured = 2;
// The same where recorded values were rounded: their moves are two deviations, of which millions of values
// reach six.
constexpr float kBeyondStored = 3;
// And where weights were quantised, whose noise is no more even: of 500 such models one used 1.16 of what two
// allow.
constexpr float kBeyondNoise = 3;
// Along a choice of experts the noise moves their weights, too: of 40 such models one used 1.17 of what three
// allow.
constexpr float kBeyondNoisyChoice = 4;

// Numbers between -1 and 1 that are the same in every run: splitmix64.
class Moves {
 public:
  explicit Moves(std::uint64_t seed) : state_(seed) {}
  float next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return static_cast<float>(static_cast<double>(z >> 11) * 0x1p-52 - 1);
  }
  float sign() { return next() < 0 ? -1.0f : 1.0f; }

 private:
  std::uint64_t state_;
};

void keep_first(OpSetup& setup, std::size_t tokens) {
  if (tokens >= setup.tokens()) return;
  for (OpSetup::Rows& input : setup.inputs) input.data.resize(tokens * input.width);
  setup.ids.resize(tokens);
  setup.positions.resize(tokens);
}

}  // namespace

double weight_noise(const OpSetup& setup, const RecordedRounding& rounding) {
  if (!rounding.finer_weights || setup.weights.empty()) return 0;
  return storage_error(setup.weights[0].dtype);
}

Result<std::vector<float>> allowance_of(const OpSetup& setup, std::span<const float> output,
                                        const RecordedRounding& rounding, reference::Threads& threads) {
  DOPPLER_ASSIGN(std::vector<float> allowed, allowance(setup, rounding.arithmetic, threads));
  if (setup.kind == OpKind::kMatmul) limit_allowance(output, allowed);
  // Below its smallest normal number F16 has one step for all values, which a recording of the same weights
  // in BF16 or F32 has not. Sums do not show it, rows of an embedding do.
  if (setup.kind == OpKind::kEmbed && setup.weights[0].dtype == DType::kF16) {
    const auto half_step = static_cast<float>(0x1p-25 * std::get<EmbedParams>(setup.params).scale);
    for (float& a : allowed) a += half_step;
  }
  const double noise = weight_noise(setup, rounding);
  if (noise == 0 && rounding.stored == 0) return allowed;
  for (std::size_t t = 0; t < setup.tokens(); ++t) {
    double squares = 0;
    for (std::size_t i = 0; i < setup.width; ++i) squares += std::pow(output[t * setup.width + i], 2);
    // Six deviations of the noise, which is as likely as one value in 500 million.
    const double moved = 6 * noise * std::sqrt(squares / static_cast<double>(setup.width));
    for (std::size_t i = 0; i < setup.width; ++i) {
      const std::size_t at = t * setup.width + i;
      allowed[at] += static_cast<float>(moved + rounding.stored * std::abs(output[at]));
    }
  }
  return allowed;
}

OpChain::OpChain(OpExperiment& experiment, const FilledRows& rows, std::size_t op)
    : experiment_(experiment), tokens_(experiment.rows().ids().size()) {
  const Plan& plan = experiment.plan();
  std::map<ValueId, std::size_t> filled_by;
  for (const std::size_t i : rows.filled()) {
    for (const ValueId id : plan.ops[i].outputs) filled_by[id] = i;
  }
  std::set<std::size_t> seen = {op};
  std::vector<std::size_t> open = {op};
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    for (const ValueId id : experiment.inputs(at)) {
      const auto from = filled_by.find(id);
      if (from != filled_by.end() && seen.insert(from->second).second) open.push_back(from->second);
    }
  }
  ops_.assign(seen.begin(), seen.end());
}

std::string OpChain::key_of(std::size_t op) const {
  const Value& out = named_output(experiment_.plan(), op);
  return stage_key(out.stage, out.layer);
}

std::vector<std::string> OpChain::begins() const {
  const Plan& plan = experiment_.plan();
  std::vector<std::string> names;
  for (const std::size_t op : ops_) {
    for (const ValueId id : experiment_.inputs(op)) {
      const bool inside = std::ranges::any_of(ops_, [&](std::size_t o) { return output_of(o) == id; });
      const std::string name = value_name(plan, id);
      if (!inside && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

const Value& named_output(const Plan& plan, std::size_t op) {
  const auto out = [&](std::size_t i) -> ValueId { return plan.ops[i].outputs[0]; };
  for (std::size_t i = op + 1; plan.values[out(op)].stage == Stage::kNone && i < plan.ops.size(); ++i) {
    if (std::ranges::find(plan.ops[i].inputs, out(op)) != plan.ops[i].inputs.end()) op = i;
  }
  return plan.values[out(op)];
}

std::string describe_ops(const Plan& plan, std::span<const std::size_t> ops) {
  std::vector<std::string> before, inside, after;
  std::set<int> layers;
  for (const std::size_t op : ops) {
    const Value& out = named_output(plan, op);
    const std::string name(stage_name(out.stage));
    if (out.layer >= 0) {
      layers.insert(out.layer);
      if (std::ranges::find(inside, name) == inside.end()) inside.push_back(name);
    } else {
      (out.stage == Stage::kEmbedOut ? before : after).push_back(name);
    }
  }
  std::vector<std::string> parts = before;
  if (layers.size() == 1 && !inside.empty()) {
    for (std::string& name : inside) parts.push_back(std::move(name));
    parts.back() += fmt::format(" of layer {}", *layers.begin());
  } else if (layers.size() > 1) {
    const std::string which = *layers.rbegin() - *layers.begin() + 1 == static_cast<int>(layers.size())
                                  ? fmt::format("layers {} to {}", *layers.begin(), *layers.rbegin())
                                  : fmt::format("{} layers", layers.size());
    parts.push_back(inside.size() <= 2 ? fmt::format("{} of {}", join(inside, " and "), which) : which);
  }
  for (std::string& name : after) parts.push_back(std::move(name));
  return join(parts, ", ");
}

std::string OpChain::describe() const {
  return describe_ops(experiment_.plan(), ops_);
}

std::uint64_t OpChain::work() const {
  std::uint64_t sum = 0;
  for (const std::size_t op : ops_) {
    const Op& made = experiment_.plan().ops[op];
    if (made.kind != OpKind::kMatmul && made.kind != OpKind::kExpertMatmul) continue;
    const TensorView& weight = experiment_.weights()[made.weights[0]];
    const auto* experts = std::get_if<ExpertParams>(&made.params);
    sum += weight.rows() * weight.cols() * (experts != nullptr ? experts->chosen : 1);
  }
  return sum;
}

Result<OpSetup> OpChain::setup(std::size_t op) const {
  DOPPLER_ASSIGN(OpSetup setup, experiment_.setup(op));
  keep_first(setup, tokens_);
  return setup;
}

Result<std::vector<float>> OpChain::recorded() const {
  DOPPLER_ASSIGN(std::vector<float> rows, experiment_.recorded(end()));
  rows.resize(tokens_ * (rows.size() / experiment_.rows().ids().size()));
  return rows;
}

void OpChain::replace_inputs(std::size_t op, const Computed& computed, OpSetup& setup) const {
  const std::vector<ValueId> ids = experiment_.inputs(op);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (const auto found = computed.find(ids[i]); found != computed.end())
      setup.inputs[i].data = found->second;
  }
}

Result<std::vector<float>> OpChain::run(std::span<const std::size_t> changed, const OpChange& change) const {
  Computed computed;
  for (const std::size_t op : ops_) {
    const auto inputs = experiment_.inputs(op);
    const bool itself = std::ranges::find(changed, op) != changed.end();
    const bool first = changes_first(op);
    const bool follows = std::ranges::any_of(inputs, [&](ValueId id) { return computed.contains(id); });
    if (!itself && !first && !follows && op != end()) continue;
    DOPPLER_ASSIGN(OpSetup made, setup(op));
    replace_inputs(op, computed, made);
    apply_first(op, made);
    if (itself && change) change(made);
    DOPPLER_ASSIGN(computed[output_of(op)], experiment_.run(made));
  }
  return std::move(computed[output_of(end())]);
}

Result<std::vector<float>> OpChain::finish(std::size_t given, std::vector<float> rows) const {
  if (given == end()) return rows;
  Computed computed;
  computed[output_of(given)] = std::move(rows);
  for (const std::size_t op : ops_) {
    const bool follows =
        std::ranges::any_of(experiment_.inputs(op), [&](ValueId id) { return computed.contains(id); });
    if (op == given || (!follows && !changes_first(op))) continue;
    DOPPLER_ASSIGN(OpSetup made, setup(op));
    replace_inputs(op, computed, made);
    apply_first(op, made);
    DOPPLER_ASSIGN(computed[output_of(op)], experiment_.run(made));
  }
  return std::move(computed[output_of(end())]);
}

bool OpChain::changes_first(std::size_t op) const {
  return std::ranges::any_of(first_,
                             [&](const First& f) { return std::ranges::find(f.ops, op) != f.ops.end(); });
}

void OpChain::apply_first(std::size_t op, OpSetup& setup) const {
  for (const First& f : first_) {
    if (std::ranges::find(f.ops, op) != f.ops.end()) f.change(setup);
  }
}

// A token that stands between two experts may have gone to either, and nothing of it can be judged behind
// them.
void OpChain::allow_other_experts(const std::map<std::size_t, std::vector<float>>& own,
                                  std::span<const float> end_rows, std::span<float> allowed) const {
  float largest = 0;
  for (const float x : end_rows) largest = std::max(largest, std::abs(x));
  for (const auto& [op, ids] : own) {
    if (experiment_.plan().ops[op].kind != OpKind::kChoose || op == end()) continue;
    for (std::size_t t = 0; t < tokens_; ++t) {
      // Below one, an id may not be another.
      if (ids[t * (ids.size() / tokens_)] < 1) continue;
      std::ranges::fill(allowed.subspan(t * (allowed.size() / tokens_), allowed.size() / tokens_),
                        2 * largest);
    }
  }
}

Result<std::vector<float>> OpChain::allowance(const RecordedRounding& rounding, reference::Threads& threads,
                                              std::span<const std::size_t> changed,
                                              const OpChange& change) const {
  const bool from_stored = rounding.stored > 0;
  std::map<std::size_t, std::vector<float>> own;  // each op's allowance
  Computed exact;
  for (const std::size_t op : ops_) {
    DOPPLER_ASSIGN(OpSetup made, setup(op));
    replace_inputs(op, exact, made);
    apply_first(op, made);
    if (change && std::ranges::find(changed, op) != changed.end()) change(made);
    DOPPLER_ASSIGN(exact[output_of(op)], experiment_.run(made));
    DOPPLER_ASSIGN(own[op], allowance_of(made, exact[output_of(op)], rounding, threads));
  }
  const std::vector<float>& end_rows = exact[output_of(end())];
  std::vector<float> allowed = own[end()];
  if (single() && !from_stored) return allowed;
  const std::size_t width = end_rows.size() / tokens_;
  std::vector<float> largest(end_rows.size());
  std::vector<double> squares(tokens_);
  const bool chooses = std::ranges::any_of(
      ops_, [&](std::size_t op) { return experiment_.plan().ops[op].kind == OpKind::kChoose; });
  const float noise = chooses ? kBeyondNoisyChoice : kBeyondNoise;
  const float beyond = from_stored ? kBeyondStored : rounding.finer_weights ? noise : kBeyondMeasured;
  const int samples = from_stored ? kStoredSamples : kSamples;
  for (int sample = 0; sample < samples; ++sample) {
    Computed moved;
    Moves moves(static_cast<std::uint64_t>(sample) + 1);
    for (const std::size_t op : ops_) {
      DOPPLER_ASSIGN(OpSetup made, setup(op));
      replace_inputs(op, moved, made);
      const std::vector<ValueId> inputs = experiment_.inputs(op);
      for (std::size_t i = 0; from_stored && i < made.inputs.size(); ++i) {
        if (moved.contains(inputs[i])) continue;
        for (float& x : made.inputs[i].data) x *= 1 + static_cast<float>(rounding.stored) * moves.next();
      }
      apply_first(op, made);
      if (change && std::ranges::find(changed, op) != changed.end()) change(made);
      DOPPLER_ASSIGN(std::vector<float> out, experiment_.run(made));
      // Ids of experts are whole numbers: they turn where the moved logits turn them.
      if (op != end() && made.kind != OpKind::kChoose) {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += own[op][i] * moves.sign();
      }
      moved[output_of(op)] = std::move(out);
    }
    const std::vector<float>& rows = moved[output_of(end())];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const float difference = std::abs(rows[i] - end_rows[i]);
      if (!std::isfinite(difference)) continue;  // it came in with the inputs
      largest[i] = std::max(largest[i], difference);
      squares[i / width] += static_cast<double>(difference) * difference;
    }
  }
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    const double typical = std::sqrt(squares[i / width] / (samples * static_cast<double>(width)));
    allowed[i] += beyond * std::max(largest[i], static_cast<float>(typical));
  }
  allow_other_experts(own, end_rows, allowed);
  return allowed;
}

}  // namespace doppler::diagnosis
