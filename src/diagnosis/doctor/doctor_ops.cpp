#include "diagnosis/doctor/doctor_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "diagnosis/doctor/doctor_recording.h"
#include "diagnosis/doctor/scale_off.h"
#include "quant/error.h"

namespace doppler::diagnosis::doctor {
namespace {

std::string where_of(const OpCase& c) {
  const BadPlaces places = find_bad_places(c);
  std::string text;
  if (places.columns.size() < c.width() && !places.columns.empty()) {
    const auto& columns = places.columns;
    const bool together = columns.back() - columns.front() + 1 == columns.size();
    text = columns.size() == 1 ? fmt::format("in column {}", columns[0])
           : together ? fmt::format("in columns {} to {} of {}", columns.front(), columns.back(), c.width())
                      : fmt::format("in {} of {} columns", columns.size(), c.width());
  }
  if (places.tokens.size() < c.tokens() && !places.tokens.empty()) {
    text += fmt::format("{}from token {} on", text.empty() ? "" : ", ", c.rows()[places.tokens.front()]);
  }
  return text;
}

// "layers.3.q_rope" as "q_rope of layer 3".
std::string readable(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  if (dot == std::string::npos) return key;
  return fmt::format("{} of layer {}", key.substr(dot + 1), layer_of(key));
}

// A weight whose values were found to be absurd explains a chain that it belongs to.
bool is_explained(const std::vector<Finding>& findings, const OpChain& chain) {
  return std::ranges::any_of(chain.ops(), [&](std::size_t op) {
    return std::ranges::any_of(findings, [&](const Finding& f) {
      const auto stage = stage_from_name(f.stage);
      return f.check == "weights" && stage && stage_key(*stage, f.layer) == chain.key_of(op);
    });
  });
}

// The scales of blocks are rounded to 16 bits again.
Fix scaled_fix(const TensorView& weight, double scale) {
  return {Fix::Kind::kTensor,
          weight.name,
          fmt::format("times {:.4g}", scale),
          {},
          [weight, scale](std::uint64_t row, std::span<float> values) -> Status {
            DOPPLER_TRY(decode_f32(weight, row * values.size(), values));
            for (float& x : values) x = static_cast<float>(x * scale);
            return {};
          }};
}

// More products than this for a chain's tokens take seconds each time: then it is judged on fewer tokens.
constexpr std::uint64_t kMostChainWork = 2'000'000'000;
constexpr std::size_t kFewestTokens = 8;
constexpr std::size_t kLongChain = 40;  // ops: more than a layer has

}  // namespace

OpCase::Context OpJudge::context_for(bool noisy) const {
  return {e_.subject.spec, experiment_, e_.subject.weights, threads_, {arithmetic, noisy, stored}};
}

Status OpJudge::judge(std::size_t op) {
  DOPPLER_ASSIGN(std::vector<float> target, experiment_.recorded(op));
  DOPPLER_ASSIGN(const OpCase c, OpCase::open(context_for(noisy_weights_), op, std::move(target)));
  const std::string name = stage_key(c.stage(), c.layer());
  const auto finite = [](const OpSetup::Rows& rows) {
    return std::ranges::all_of(rows.data, [](float x) { return std::isfinite(x); });
  };
  if (!std::ranges::all_of(c.setup().inputs, finite)) return {};  // a consequence of its inputs
  ops_[op] = {.check = e_.check, .stage = c.stage(), .layer = c.layer(), .excess = c.misfit().ratio};
  const std::optional<double> off = noisy_weights_ && c.misfit().agrees() ? scale_off(c) : std::nullopt;
  if (c.misfit().agrees() && !off) {
    if (c.misfit().ratio > worst_) worst_ = c.misfit().ratio, worst_at_ = name;
    return {};
  }
  // Beyond this float32 itself overflows: no fault of a backend.
  constexpr float kNoRoom = 1e30f;
  const auto no_room = [](float x) { return !std::isfinite(x) || std::abs(x) > kNoRoom; };
  if (!who.empty() && std::ranges::any_of(c.output(), no_room)) return {};
  WrongOp wrong{
      .op = op, .stage = c.stage(), .layer = c.layer(), .ratio = c.misfit().ratio, .where = where_of(c)};
  if (!c.setup().weights.empty()) wrong.weight = c.setup().weights[0].name;
  wrong.who = who;
  if (!who.empty()) wrong.rows = rows_to_explain(c, hints);
  if (off) {
    const double times = 1 / off.value_or(1);
    wrong.explanation = {
        .attempt = {.cause = "weight_scaled",
                    .says =
                        fmt::format("the scales of {} are multiplied by {:.4g}, as all values together show",
                                    wrong.weight, times),
                    .fixes = {scaled_fix(c.setup().weights[0], times)}},
        .confidence = 0.9};
  }
  wrong_.push_back(std::move(wrong));
  return {};
}

Result<OpCase::ChainEnd> OpJudge::end_of(const OpChain& chain, bool noisy) {
  OpCase::ChainEnd end;
  DOPPLER_ASSIGN(end.target, chain.recorded());
  DOPPLER_ASSIGN(end.output, chain.run());
  DOPPLER_ASSIGN(end.allowed, chain.allowance({arithmetic, noisy, stored}, threads_));
  return end;
}

Status OpJudge::judge_chain(const OpChain& whole) {
  if (e_.seconds_left() < 0) {
    ++unjudged_;
    return {};
  }
  OpChain chain = whole;
  const Plan& plan = experiment_.plan();
  if (const std::uint64_t few = kMostChainWork / std::max<std::uint64_t>(chain.work(), 1);
      few < chain.tokens())
    chain.keep_tokens(std::min(chain.tokens(), std::max<std::size_t>(few, kFewestTokens)));
  const TensorView* quantised = nullptr;
  for (const std::size_t op : chain.ops()) {
    for (const WeightId id : plan.ops[op].weights) {
      if (is_quantised(e_.subject.weights[id].dtype)) quantised = &e_.subject.weights[id];
    }
  }
  quantised_chains_ += quantised != nullptr;
  const std::size_t first[] = {chain.ops().front()};
  for (const bool noisy : {false, true}) {
    // A recording of quantised weights is mostly of the floats that they were made from.
    if (noisy && (quantised == nullptr || !finer_weights)) break;
    DOPPLER_ASSIGN(OpCase::ChainEnd end, end_of(chain, noisy));
    DOPPLER_ASSIGN(const OpCase c, OpCase::open_along(context_for(noisy), chain, first, end));
    if (c.misfit().agrees()) {
      if (c.misfit().ratio > worst_) worst_ = c.misfit().ratio, worst_at_ = chain.key_of(chain.end());
      coarse_chains_ += noisy;
      return {};
    }
    if (!noisy && quantised != nullptr && finer_weights) continue;
    WrongChain wrong{chain, std::move(end), c.misfit().ratio, where_of(c)};
    // Every repair runs a chain of many layers from its beginning: on no more tokens than show the
    // difference.
    const std::size_t shows = find_bad_places(c).tokens.front() + kFewestTokens / 2;
    if (chain.ops().size() > kLongChain && std::max(shows, kFewestTokens) < chain.tokens()) {
      wrong.chain.keep_tokens(std::max(shows, kFewestTokens));
      DOPPLER_ASSIGN(wrong.end, end_of(wrong.chain, noisy));
    }
    wrong_chains_.push_back(std::move(wrong));
  }
  return {};
}

// The stages, by key, of weights that were loaded and that no op of the plan reads: what the plan leaves out
// may be what is wrong with a chain. Only those of layers that the chain has, and of layers behind the plan's
// last one where the chain goes that far.
std::vector<std::string> OpJudge::unread_stages(const OpChain& chain) const {
  const Plan& plan = experiment_.plan();
  const Weights& weights = e_.subject.weights;
  std::set<WeightId> read;
  for (const Op& op : plan.ops) {
    read.insert(op.weights.begin(), op.weights.end());
    read.insert(op.biases.begin(), op.biases.end());
  }
  std::set<int> layers;
  for (const std::size_t op : chain.ops()) layers.insert(experiment_.layer_of(op));
  const auto planned = static_cast<int>(plan.kv_layers.size());
  const bool to_the_end = layers.contains(planned - 1) && experiment_.layer_of(chain.end()) < 0;
  std::vector<std::string> keys;
  for (int layer = 0; layer <= planned; ++layer) {  // one behind the last tells of all
    if (layer == planned ? !to_the_end : !layers.contains(layer)) continue;
    bool any = false;
    for (const WeightInfo& info : weight_table()) {
      if (!info.per_layer() || info.stage == Stage::kNone) continue;
      const WeightId id = weights.find(info.role, layer);
      if (id == kNoWeight || read.contains(id)) continue;
      if (layer == planned && !any) keys.push_back(stage_key(Stage::kAttnInput, layer));
      any = true;
      if (const std::string key = stage_key(info.stage, layer); std::ranges::find(keys, key) == keys.end())
        keys.push_back(key);
    }
  }
  return keys;
}

Status OpJudge::explain_chains() {
  // What nothing explains must not take the other checks' time.
  constexpr double kForOthers = 0.4;
  ChainRepairs repairs(context_for(false),
                       [this] { return e_.seconds_left() - kForOthers * e_.options.seconds; });
  std::vector<WrongOp> found;
  std::vector<ChainExplanation> explanations;
  for (const WrongChain& wrong : wrong_chains_) {
    explanations.emplace_back();
    if (is_explained(e_.findings, wrong.chain)) continue;
    DOPPLER_ASSIGN(explanations.back(), repairs.explain(wrong.chain, wrong.end));
  }
  // What is known of all others helps with the rest.
  for (const bool alike : {true, true, false}) {  // again: what later chains have told by then
    for (std::size_t i = 0; i < explanations.size(); ++i) {
      const WrongChain& wrong = wrong_chains_[i];
      if (!explanations[i].ops.empty() || is_explained(e_.findings, wrong.chain)) continue;
      DOPPLER_ASSIGN(auto by_two, repairs.explain_by_two(wrong.chain, wrong.end, alike));
      if (by_two) explanations[i] = std::move(*by_two);
    }
  }
  std::set<std::size_t> suspects;  // ops of earlier chains that nothing explained
  for (std::size_t i = 0; i < explanations.size(); ++i) {
    const WrongChain& wrong = wrong_chains_[i];
    if (is_explained(e_.findings, wrong.chain)) continue;
    ChainExplanation& explained = explanations[i];
    // Ops that two chains share: what was not found in the first is why the second differs, too.
    const bool shared =
        std::ranges::any_of(wrong.chain.ops(), [&](std::size_t op) { return suspects.contains(op); });
    const bool unknown = explained.ops.empty();
    if (unknown && shared) continue;
    const std::size_t at = unknown ? wrong.chain.end() : explained.ops.front();
    const Value& shown = named_output(experiment_.plan(), at);
    WrongOp op{
        .op = at, .stage = shown.stage, .layer = shown.layer, .ratio = wrong.ratio, .where = wrong.where};
    op.explanation = std::move(explained.explanation);
    op.seen_at = readable(wrong.chain.key_of(wrong.chain.end()));
    std::vector<std::string> begins = wrong.chain.begins();
    for (std::string& name : begins) name = readable(name);
    op.from = begins.size() > 3 ? "the recorded stages before it" : join(begins, " and ");
    op.between = unknown ? wrong.chain.describe() : describe_ops(experiment_.plan(), explained.ops);
    if (const Op& made = experiment_.plan().ops[at]; !unknown && !made.weights.empty())
      op.weight = e_.subject.weights[made.weights[0]].name;
    op.also = std::move(explained.also);
    for (const std::size_t one : explained.ops) {
      const int layer = experiment_.layer_of(one);
      if (layer >= 0 && std::ranges::find(op.layers, layer) == op.layers.end()) op.layers.push_back(layer);
    }
    if (const Stage lacks = op.explanation.attempt.lacks; lacks != Stage::kNone) op.stage = lacks;
    std::optional<WrongOp> second;
    if (explained.second) {
      second = op;
      Attempt& first = op.explanation.attempt;
      Attempt& other = second->explanation.attempt;
      other = *explained.second;
      const Value& there = named_output(experiment_.plan(), explained.second_ops.front());
      second->op = explained.second_ops.front(), second->stage = there.stage, second->layer = there.layer;
      if (other.lacks != Stage::kNone) second->stage = other.lacks;
      second->between = describe_ops(experiment_.plan(), explained.second_ops);
      second->weight.clear(), second->also.clear(), second->layers.clear();
      if (const Op& made = experiment_.plan().ops[second->op]; !made.weights.empty())
        second->weight = e_.subject.weights[made.weights[0]].name;
      const std::string says = first.says;
      first.says += fmt::format(", and besides {} ({})", other.says, second->between);
      other.says += fmt::format(", and besides {} ({})", says, op.between);
      for (const std::size_t one : explained.second_ops) {
        const int layer = experiment_.layer_of(one);
        if (layer >= 0 && std::ranges::find(second->layers, layer) == second->layers.end())
          second->layers.push_back(layer);
      }
    }
    for (const std::size_t one : explained.others) op.among.push_back(wrong.chain.key_of(one));
    op.chain.assign(wrong.chain.ops().begin(), wrong.chain.ops().end());
    for (const std::size_t one : wrong.chain.ops()) {
      if (!unknown) break;
      suspects.insert(one);
      if (experiment_.stage_of(one) != Stage::kNone) op.among.push_back(wrong.chain.key_of(one));
    }
    if (unknown) op.unread = unread_stages(wrong.chain);
    op.among.insert(op.among.end(), op.unread.begin(), op.unread.end());
    found.push_back(std::move(op));
    if (second) found.push_back(std::move(*second));
  }
  wrong_.insert(wrong_.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  return {};
}

Status OpJudge::measure() {
  const Plan& plan = experiment_.plan();
  std::vector<std::size_t> ops;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Value& out = plan.values[plan.ops[i].outputs[0]];
    if ((skip && skip(i)) || !experiment_.missing(i).empty()) continue;
    if (out.stage == Stage::kNone || !experiment_.rows().locate(plan, out.stage, out.layer)) continue;
    if (filled != nullptr) {
      OpChain chain(experiment_, *filled, i);
      if (!chain.single() || stored > 0) {
        chains_.push_back(std::move(chain));
        continue;
      }
    }
    ops.push_back(i);
  }
  judged_ = ops.size();
  judged_ops_ = ops;
  for (const OpChain& chain : chains_) DOPPLER_TRY(judge_chain(chain));
  for (const std::size_t op : ops) DOPPLER_TRY(judge(op));
  const bool of_chains = coarse_chains_ > 0 && coarse_chains_ * 3 >= quantised_chains_ * 2;
  if (!finer_weights || (!of_chains && !coarse_products_differ())) return {};
  std::vector<WrongOp> before = std::move(wrong_);
  wrong_.clear();
  noisy_weights_ = true;
  for (const WrongOp& w : before) DOPPLER_TRY(judge(w.op));
  // All wrong even so: then it is not the storage.
  if (wrong_.size() * 3 > before.size() * 2) wrong_ = std::move(before), noisy_weights_ = false;
  return {};
}

// If most products with weights of a coarser type than float32 differ, the recording was made with finer
// ones. Types whose products all agree lost nothing: floats in 16 bits that were trained as such.
bool OpJudge::coarse_products_differ() const {
  std::map<DType, std::size_t> all, bad;
  const auto count = [&](std::map<DType, std::size_t>& counts, std::size_t op) {
    const Op& made = experiment_.plan().ops[op];
    if (made.kind != OpKind::kMatmul) return;
    const DType type = e_.subject.weights[made.weights[0]].dtype;
    if (storage_error(type) > 0) ++counts[type];
  };
  for (const std::size_t op : judged_ops_) count(all, op);
  for (const WrongOp& wrong : wrong_) count(bad, wrong.op);
  std::size_t products = 0, differ = 0;
  for (const auto& [type, wrong] : bad) products += all[type], differ += wrong;
  // Of a few products all must differ: one or two may be what is wrong.
  constexpr std::size_t kFew = 4, kFewest = 3;
  return products >= kFew ? differ * 3 >= products * 2 : products >= kFewest && differ == products;
}

// If the recording may be of finer weights and every op is wrong, so that no right op can show this: judges
// once more, allowing the error that the weight's type explains.
Status OpJudge::explain_as_coarse(WrongOp& wrong) {
  const Op& made = experiment_.plan().ops[wrong.op];
  if (noisy_weights_ || !finer_weights || made.weights.empty() ||
      wrong.explanation.attempt.cause != "unknown")
    return {};
  if (storage_error(e_.subject.weights[made.weights[0]].dtype) == 0) return {};
  DOPPLER_ASSIGN(std::vector<float> target, experiment_.recorded(wrong.op));
  DOPPLER_ASSIGN(OpCase c, OpCase::open(context_for(true), wrong.op, std::move(target), wrong.rows));
  wrong.only_coarse = c.misfit().agrees();
  if (wrong.only_coarse) return {};
  Explanation explanation = explain(c);
  if (explanation.attempt.cause == "unknown") return {};
  explanation.confidence *= 0.8;
  wrong.explanation = std::move(explanation);
  return {};
}

// A chain that nothing explains and that reads a weight, or turns by angles, which are wrong elsewhere by
// name: it differs because of them, and the repair of that other place tells whether there is more.
void OpJudge::drop_consequences() {
  const Plan& plan = experiment_.plan();
  std::set<TensorPlace> weights;
  std::set<std::uint32_t> angles;
  const auto each = [&](std::size_t op, auto weight, auto table) {
    for (const WeightId id : plan.ops[op].weights) weight(e_.subject.weights[id].place());
    if (plan.ops[op].kind == OpKind::kRope) table(std::get<RopeParams>(plan.ops[op].params).table);
  };
  for (const WrongOp& wrong : wrong_) {
    if (wrong.explanation.attempt.cause == "unknown" || wrong.explanation.attempt.cause.empty()) continue;
    each(
        wrong.op, [&](const TensorPlace& place) { weights.insert(place); },
        [&](std::uint32_t table) { angles.insert(table); });
  }
  std::erase_if(wrong_, [&](const WrongOp& wrong) {
    bool follows = false;
    if (wrong.explanation.attempt.cause != "unknown") return false;
    for (const std::size_t op : wrong.chain)
      each(
          op, [&](const TensorPlace& place) { follows |= weights.contains(place); },
          [&](std::uint32_t table) { follows |= angles.contains(table); });
    return follows;
  });
}

Status OpJudge::explain_wrong() {
  DOPPLER_TRY(explain_chains());
  for (std::size_t i = 0; i < wrong_.size(); ++i) {
    WrongOp& wrong = wrong_[i];
    if (!wrong.seen_at.empty()) continue;
    if (!wrong.explanation.attempt.cause.empty()) continue;  // its measure explained it
    if (e_.seconds_left() < 0) {
      // Ops that were not examined for lack of time are no findings beside those that are explained.
      const std::size_t kept = std::max<std::size_t>(i, 1);
      unexamined_ = wrong_.size() - kept;
      wrong_.erase(wrong_.begin() + static_cast<std::ptrdiff_t>(kept), wrong_.end());
      if (i > 0) break;
      wrong.explanation.attempt.cause = "unknown";
      wrong.explanation.ruled_out = "nothing, for lack of time: raise --seconds";
      break;
    }
    DOPPLER_ASSIGN(std::vector<float> target, experiment_.recorded(wrong.op));
    DOPPLER_ASSIGN(OpCase c,
                   OpCase::open(context_for(noisy_weights_), wrong.op, std::move(target), wrong.rows));
    if (!who.empty() && explain_execution(c, hints, wrong.explanation)) continue;
    wrong.explanation = explain(c);
    if (who.empty()) DOPPLER_TRY(explain_as_coarse(wrong));
    // The inputs are the recording's and the op is right, so the weight must differ.
    if (Attempt& attempt = wrong.explanation.attempt;
        who.empty() && attempt.cause == "unknown" &&
        (c.op().kind == OpKind::kMatmul || c.op().kind == OpKind::kExpertMatmul)) {
      attempt.cause = "weight_wrong";
      wrong.explanation.confidence = 0.5;
    }
    if (!who.empty()) explain_by_place(c, hints, wrong.explanation);
  }
  if (is_foreign()) {
    e_.find({.cause = "reference_mismatch",
             .stage = std::string(stage_name(Stage::kEmbedOut)),
             .explanation = fmt::format(
                 "The recording is not of this model: {} of {} recorded stages that weights make differ, the "
                 "embedding of the prompt's tokens among them, and no repair explains one.{}",
                 wrong_.size(), judged_weighty(), whose_recording(*e_.options.reference, e_.subject.weights)),
             .confidence = 0.9});
    return {};
  }
  const auto only_coarse = [](const WrongOp& w) { return w.only_coarse; };
  if (!std::ranges::all_of(wrong_, only_coarse)) std::erase_if(wrong_, only_coarse);
  drop_consequences();
  std::vector<Finding> findings = gather_findings(e_.subject.spec, wrong_, examined_layers());
  findings.resize(std::min(findings.size(), most));
  for (Finding& finding : findings) e_.find(std::move(finding));
  return {};
}

bool OpJudge::has_weights(std::size_t op) const {
  const OpKind kind = experiment_.plan().ops[op].kind;
  return kind == OpKind::kEmbed || kind == OpKind::kMatmul || kind == OpKind::kExpertMatmul;
}

std::size_t OpJudge::judged_weighty() const {
  std::size_t count = 0;
  for (const std::size_t op : judged_ops_) count += has_weights(op);
  for (const OpChain& chain : chains_) {
    count += std::ranges::any_of(chain.ops(), [&](std::size_t op) { return has_weights(op); });
  }
  return count;
}

// Another model of the same size: embeddings differ, nearly every product differs, and nothing explains one.
// A model with a fault has right parts, or a fault that a repair names.
bool OpJudge::is_foreign() const {
  const auto unexplained = [](const WrongOp& w) {
    const std::string& cause = w.explanation.attempt.cause;
    return cause == "unknown" || cause == "weight_wrong" || cause.empty();
  };
  const auto weighty = [&](const WrongOp& w) { return has_weights(w.op) || !w.seen_at.empty(); };
  const bool embedding = std::ranges::any_of(
      wrong_, [&](const WrongOp& w) { return w.stage == Stage::kEmbedOut && unexplained(w); });
  if (!who.empty() || !embedding) return false;
  const auto differ = static_cast<std::size_t>(
      std::ranges::count_if(wrong_, [&](const WrongOp& w) { return weighty(w) && unexplained(w); }));
  const std::size_t all = judged_weighty();
  return all >= 3 && differ * 10 >= all * 9;
}

std::string OpJudge::of_chains() const {
  if (chains_.empty()) return {};
  std::string text =
      fmt::format(", and {} chains of them between recorded stages", chains_.size() - unjudged_);
  if (unjudged_ > 0) text += fmt::format(" ({} more not, for lack of time: raise --seconds)", unjudged_);
  return text;
}

void OpJudge::tell_ops() const {
  for (const auto& [op, judged] : ops_) e_.ops.push_back(judged);
}

std::string OpJudge::summary() const {
  return fmt::format(
      "{} ops judged{}, {} wrong{}; the worst of the others, {}, uses {:.0f} % of what is allowed{}", judged_,
      of_chains(), wrong_.size() + unexamined_,
      unexamined_ == 0 ? ""
                       : fmt::format(" ({} not looked into for lack of time: raise --seconds)", unexamined_),
      worst_at_.empty() ? "none" : worst_at_, 100 * worst_,
      noisy_weights_ || coarse_chains_ > 0 ? " (the recording is of finer weights)" : "");
}

std::set<int> OpJudge::examined_layers() const {
  std::set<int> layers;
  const auto add = [&](std::size_t op) {
    const OpKind kind = experiment_.plan().ops[op].kind;
    if (kind == OpKind::kRope || kind == OpKind::kAttention) layers.insert(experiment_.layer_of(op));
  };
  for (const std::size_t op : judged_ops_) add(op);
  for (const OpChain& chain : chains_) std::ranges::for_each(chain.ops(), add);
  return layers;
}

}  // namespace doppler::diagnosis::doctor
