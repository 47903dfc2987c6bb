#include "diagnosis/doctor/chain_repairs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>

#include "base/text.h"

namespace doppler::diagnosis {
namespace {

bool is_head_norm(Stage stage) {
  return stage == Stage::kQNorm || stage == Stage::kKNorm;
}

bool is_query_or_key(Stage stage) {
  return stage == Stage::kQProj || stage == Stage::kKProj;
}

// Whether the description, or a converter, says the same of both: what is wrong is wrong in both.
bool described_alike(const Plan& plan, std::size_t first, std::size_t second) {
  const Op &a = plan.ops[first], &b = plan.ops[second];
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case OpKind::kRmsNorm: {
      const auto &p = std::get<NormParams>(a.params), &q = std::get<NormParams>(b.params);
      return p.eps == q.eps && p.weight_offset == q.weight_offset;
    }
    case OpKind::kRope: {
      const auto &p = std::get<RopeParams>(a.params), &q = std::get<RopeParams>(b.params);
      return p.table == q.table && p.layout == q.layout;
    }
    case OpKind::kAttention: {
      const auto &p = std::get<AttentionParams>(a.params), &q = std::get<AttentionParams>(b.params);
      return p.heads == q.heads && p.window == q.window && p.scale == q.scale && p.softcap == q.softcap;
    }
    case OpKind::kGated:
      return std::get<GatedParams>(a.params).activation == std::get<GatedParams>(b.params).activation;
    case OpKind::kChoose:
    case OpKind::kWeigh:
      return true;
    case OpKind::kExpertMatmul:
      return a.layer == b.layer;
    case OpKind::kMatmul:
      return is_query_or_key(plan.values[a.outputs[0]].stage) &&
             is_query_or_key(plan.values[b.outputs[0]].stage);
    default:
      return false;
  }
}

}  // namespace

// The largest groups first: most of what is wrong with a description is wrong everywhere.
std::vector<ChainRepairs::Group> ChainRepairs::groups(const OpChain& chain) const {
  const Plan& plan = context_.experiment.plan();
  std::vector<Group> all;
  std::set<std::vector<std::size_t>> seen;
  const auto add = [&](const std::function<bool(std::size_t first, std::size_t other)>& belongs) {
    for (const std::size_t first : chain.ops()) {
      Group group{{}, true};
      for (const std::size_t op : chain.ops()) {
        if (described_alike(plan, first, op) && belongs(first, op)) group.ops.push_back(op);
      }
      if (group.ops.size() > 1 && group.ops.front() == first && seen.insert(group.ops).second)
        all.push_back(std::move(group));
    }
  };
  const auto stage = [&](std::size_t op) { return context_.experiment.stage_of(op); };
  add([](std::size_t, std::size_t) { return true; });
  add([&](std::size_t a, std::size_t b) { return is_head_norm(stage(a)) == is_head_norm(stage(b)); });
  add([&](std::size_t a, std::size_t b) { return stage(a) == stage(b); });
  add([&](std::size_t a, std::size_t b) {  // queries and keys of one layer
    const bool norms = plan.ops[a].kind == OpKind::kRmsNorm;
    return plan.ops[a].layer == plan.ops[b].layer &&
           (!norms || (is_head_norm(stage(a)) && is_head_norm(stage(b))));
  });
  // Late ops first: little has to be run again behind them, and time may end.
  for (const std::size_t op : chain.ops() | std::views::reverse) all.push_back({{op}, false});
  return all;
}

std::vector<Stage> ChainRepairs::stages_of(std::span<const std::size_t> ops) const {
  std::set<Stage> stages;
  for (const std::size_t op : ops) stages.insert(context_.experiment.stage_of(op));
  return {stages.begin(), stages.end()};
}

Status ChainRepairs::attempt(const OpChain& chain, const OpCase::ChainEnd& end, const Group& group,
                             std::vector<Fit>& fits, bool joint, const Repair* only) {
  const OpKind kind = context_.experiment.plan().ops[group.ops.front()].kind;
  std::optional<OpCase> opcase;
  for (const Repair& repair : all_repairs()) {
    if (repair.kind != kind || repair.reach < (group.alike ? Reach::kOps : Reach::kChain)) continue;
    if (only != nullptr ? only != &repair : repair.joint != joint) continue;
    if (seconds_left_() < 0) {
      out_of_time_ = true;
      return {};
    }
    if (!opcase) {
      DOPPLER_ASSIGN(OpCase made, OpCase::open_along(context_, chain, group.ops, end));
      made.stop_when([this] { return seconds_left_() < 0; });
      opcase.emplace(std::move(made));
    }
    const std::size_t before = opcase->attempts().size();
    repair.attempt(*opcase);
    too_large_.insert(opcase->left_out().begin(), opcase->left_out().end());
    for (std::size_t i = before; i < opcase->attempts().size(); ++i) {
      const Attempt& made = opcase->attempts()[i];
      if (!nearest_ || made.ratio < nearest_->ratio) nearest_ = made;
      if (made.ratio <= 1) fits.push_back({group.ops, &repair, made});
    }
  }
  return {};
}

// Norm and rotation of queries and keys in the other order, in every layer of the chain.
Status ChainRepairs::reorder(const OpChain& chain, const OpCase::ChainEnd& end, std::vector<Fit>& fits) {
  using Place = std::pair<int, Stage>;
  std::map<Place, OpSetup> all;
  std::vector<std::size_t> ops;
  const auto other = [](Stage stage) {
    return stage == Stage::kQNorm   ? Stage::kQRope
           : stage == Stage::kQRope ? Stage::kQNorm
           : stage == Stage::kKNorm ? Stage::kKRope
           : stage == Stage::kKRope ? Stage::kKNorm
                                    : Stage::kNone;
  };
  for (const std::size_t op : chain.ops()) {
    if (other(context_.experiment.stage_of(op)) == Stage::kNone) continue;
    DOPPLER_ASSIGN(OpSetup made, chain.setup(op));
    all.emplace(Place(made.layer, made.stage), std::move(made));
    ops.push_back(op);
  }
  std::erase_if(ops, [&](std::size_t op) {
    return !all.contains({context_.experiment.layer_of(op), other(context_.experiment.stage_of(op))});
  });
  if (ops.empty()) return {};
  DOPPLER_ASSIGN(OpCase opcase, OpCase::open_along(context_, chain, ops, end));
  const bool norm_first = all.at({opcase.layer(), Stage::kQNorm}).kind == OpKind::kRmsNorm;
  const bool fit = opcase.attempt("qk_norm_misplaced",
                                  norm_first ? "queries and keys turn before they are normalised"
                                             : "they are normalised before they turn",
                                  {}, [&](OpSetup& s) {
                                    const OpSetup& from = all.at({s.layer, other(s.stage)});
                                    s.kind = from.kind, s.params = from.params, s.weights = from.weights,
                                    s.rope = from.rope;
                                  });
  if (fit) fits.push_back({ops, nullptr, opcase.attempts().back()});
  return {};
}

// Layers as those of the other kind are, with their window and their rotation: one layer, or, where the chain
// has several, all of them with the kinds of the layers so many places further.
Status ChainRepairs::change_kinds(const OpChain& chain, const OpCase::ChainEnd& end, std::vector<Fit>& fits) {
  const Plan& plan = context_.experiment.plan();
  const auto& layers = context_.spec.layers;
  const auto layer_of = [&](std::size_t op) { return context_.experiment.layer_of(op); };
  const auto kind_of = [&](int layer) { return layers[static_cast<std::size_t>(layer)].attention.kind; };
  std::map<int, std::vector<std::size_t>> by_layer;  // what a layer's kind decides
  for (const std::size_t op : chain.ops()) {
    const OpKind kind = plan.ops[op].kind;
    if (kind == OpKind::kRope || kind == OpKind::kAttention) by_layer[layer_of(op)].push_back(op);
  }
  const auto as_other = [&](OpSetup& s) {
    const auto like = std::ranges::find_if(layers, [&](const LayerSpec& other) {
      return other.attention.kind != kind_of(s.layer) &&
             other.attention.head_dim == layers[static_cast<std::size_t>(s.layer)].attention.head_dim;
    });
    if (like == layers.end()) return;
    const auto op = context_.experiment.find(s.stage, static_cast<int>(like - layers.begin()));
    // The other kind does not turn at all.
    if (!op && s.kind == OpKind::kRope) std::ranges::fill(s.rope.inverse_frequency, 0.0);
    if (!op) return;
    const Op& from = plan.ops[*op];
    if (s.kind == OpKind::kAttention && from.kind == OpKind::kAttention)
      std::get<AttentionParams>(s.params).window = std::get<AttentionParams>(from.params).window;
    if (s.kind == OpKind::kRope && from.kind == OpKind::kRope) {
      s.params = from.params;
      s.rope = plan.rope_tables[std::get<RopeParams>(from.params).table];
    }
  };
  const auto attempt = [&](const std::vector<std::size_t>& ops, std::string says) -> Status {
    if (seconds_left_() < 0) {
      out_of_time_ = true;
      return {};
    }
    DOPPLER_ASSIGN(OpCase opcase, OpCase::open_along(context_, chain, ops, end));
    if (opcase.attempt("layer_types", std::move(says), {}, as_other))
      fits.push_back({ops, nullptr, opcase.attempts().back()});
    return {};
  };
  for (const auto& [layer, ops] : by_layer)
    DOPPLER_TRY(attempt(ops, fmt::format("layer {} is of the other kind", layer)));
  for (std::size_t places = 1; by_layer.size() > 1 && places < layers.size() && fits.empty(); ++places) {
    std::vector<std::size_t> ops;
    for (const auto& [layer, of_layer] : by_layer) {
      if (kind_of(static_cast<int>((static_cast<std::size_t>(layer) + places) % layers.size())) !=
          kind_of(layer))
        ops.insert(ops.end(), of_layer.begin(), of_layer.end());
    }
    if (!ops.empty())
      DOPPLER_TRY(attempt(ops, fmt::format("every layer is of the kind of the one {} further", places)));
  }
  return {};
}

// Products or norms of one layer with each other's weight: changing one of them alone shows nothing.
Status ChainRepairs::exchange(const OpChain& chain, const OpCase::ChainEnd& end, std::vector<Fit>& fits) {
  const Plan& plan = context_.experiment.plan();
  for (const std::size_t a : chain.ops()) {
    for (const std::size_t b : chain.ops()) {
      const Op &first = plan.ops[a], &second = plan.ops[b];
      const bool kinds = first.kind == OpKind::kMatmul || first.kind == OpKind::kRmsNorm;
      if (a >= b || !kinds || first.kind != second.kind || first.layer != second.layer) continue;
      if (first.weights.empty() || second.weights.empty()) continue;  // norms may have none
      const TensorView &one = context_.weights[first.weights[0]],
                       &other = context_.weights[second.weights[0]];
      if (one.shape != other.shape || one.data.data() == other.data.data()) continue;
      if (seconds_left_() < 0) {
        out_of_time_ = true;
        return {};
      }
      const std::size_t both[] = {a, b};
      DOPPLER_ASSIGN(OpCase opcase, OpCase::open_along(context_, chain, both, end));
      const bool gate = context_.experiment.stage_of(a) == Stage::kFfnGate;
      const bool fit = opcase.attempt(
          gate ? "gate_up_swapped" : "tensor_swapped",
          fmt::format("{} and {} change places", one.name, other.name),
          fmt::format("Exchange {} and {}.", one.name, other.name),
          [&](OpSetup& s) { s.weights[0] = s.weights[0].data.data() == one.data.data() ? other : one; });
      if (fit) fits.push_back({{a, b}, nullptr, opcase.attempts().back()});
    }
  }
  return {};
}

// What was left out, and how long all of it would take if the rest is like what was tried.
std::string ChainRepairs::lack_of_time() const {
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  const std::size_t all = groups_tried_ + groups_left_;
  if (groups_tried_ == 0) return "nothing, for lack of time: raise --seconds";
  return fmt::format(
      "not everything, for lack of time: {} of {} places were tried, and all would take some {:.0f} s "
      "(--seconds)",
      groups_tried_, all, spent * static_cast<double>(all) / static_cast<double>(groups_tried_));
}

ChainExplanation ChainRepairs::conclude(const OpChain& chain, std::vector<Fit> fits, double misfit) {
  ChainExplanation result;
  if (fits.empty()) {
    ++unknown_;
    result.explanation.attempt = {.cause = "unknown", .ratio = misfit};
    if (nearest_ && nearest_->ratio < 0.1 * misfit)
      result.explanation.ruled_out = fmt::format("nearest: when {}, {:.2g} times the allowed error is left",
                                                 nearest_->says, nearest_->ratio);
    if (out_of_time_) result.explanation.ruled_out = lack_of_time();
    if (!too_large_.empty()) {
      result.explanation.ruled_out +=
          fmt::format("{}too large to be tried: {}", result.explanation.ruled_out.empty() ? "" : "; ",
                      join(std::vector<std::string>(too_large_.begin(), too_large_.end()), ", "));
    }
    return result;
  }
  // The first in the order of a step, unless a later one fits far better.
  std::ranges::stable_sort(fits, {}, [](const Fit& fit) { return fit.ops.front(); });
  const Fit* best = &fits.front();
  for (const Fit& fit : fits) {
    if (fit.attempt.ratio < 0.1 * best->attempt.ratio) best = &fit;
  }
  const Plan& plan = context_.experiment.plan();
  std::set<std::string> causes, said;
  for (const Fit& fit : fits) {
    const bool same = fit.attempt.cause == best->attempt.cause;
    if (!same && !causes.insert(fit.attempt.cause).second) continue;
    // The same of another weight that it is multiplied with.
    if (same && (fit.ops == best->ops || !said.insert(describe_ops(plan, fit.ops)).second)) continue;
    result.others.insert(result.others.end(), fit.ops.begin(), fit.ops.end());
    result.also.push_back(
        fmt::format("{} ({} when {})", fit.attempt.cause, describe_ops(plan, fit.ops), fit.attempt.says));
  }
  result.ops = best->ops;
  result.explanation.attempt = best->attempt;
  const auto note_other = [&](Stage stage, Stage or_stage, std::string_view cause, std::string_view says) {
    std::set<int> layers;
    for (const std::size_t op : best->ops) layers.insert(context_.experiment.layer_of(op));
    std::vector<std::size_t> same;
    for (const std::size_t op : chain.ops()) {
      const Stage its = context_.experiment.stage_of(op);
      if ((its == stage || its == or_stage) && layers.contains(context_.experiment.layer_of(op)))
        same.push_back(op);
    }
    if (same.empty()) return;
    result.others.insert(result.others.end(), same.begin(), same.end());
    result.also.push_back(fmt::format("{} ({} when {})", cause, describe_ops(plan, same), says));
  };
  // Where one thing is wrong in two places at once, or the other thing in one.
  if (best->attempt.cause == "rope_layout")  // the same numbers, permuted before they turn
    note_other(Stage::kQProj, Stage::kKProj, "weight_permuted",
               "the rows of both weights keep the other order of pairs");
  if (best->attempt.cause == "gate_up_swapped" && best->ops.size() > 1)
    note_other(Stage::kFfnAct, Stage::kFfnAct, "gate_up_swapped", "the activation stands on the other half");
  const Stage where = context_.experiment.stage_of(best->ops.front());
  if (best->attempt.cause == "gate_up_swapped" && where == Stage::kFfnAct)
    note_other(Stage::kFfnGate, Stage::kFfnUp, "gate_up_swapped", "the two weights change places");
  // What all values between two products are multiplied by, either of them may have.
  if (best->attempt.cause == "weight_scaled" && best->ops.size() == 1) {
    for (const auto& [first, second] :
         {std::pair(Stage::kVProj, Stage::kOProj), std::pair(Stage::kFfnUp, Stage::kFfnOut)}) {
      if (where != first && where != second) continue;
      const Stage other = where == first ? second : first;
      const auto told = [&](std::size_t op) { return context_.experiment.stage_of(op) == other; };
      if (std::ranges::none_of(result.others, told))
        note_other(other, other, "weight_scaled", "its weight is multiplied by as much");
    }
  }
  // How far the repair reduces the error, as for a single op; a chain has more places where it may lie.
  const double gain = misfit / std::max(best->attempt.ratio, 0.02);
  result.explanation.confidence =
      0.95 * best->attempt.weight * (1 - 1 / (1 + gain / 4)) / (1 + 0.5 * static_cast<double>(causes.size()));
  known_.push_back(*best);
  return result;
}

double ChainRepairs::misfit_of(const OpChain& chain, const OpCase::ChainEnd& end) const {
  const std::size_t first[] = {chain.ops().front()};
  const auto opcase = OpCase::open_along(context_, chain, first, end);
  return opcase ? opcase->misfit().ratio : INFINITY;
}

Status ChainRepairs::attempt_known(const OpChain& chain, const OpCase::ChainEnd& end,
                                   const std::vector<Group>& groups, std::vector<Fit>& fits) {
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const Fit known = known_[k];
    if (known.repair == nullptr) continue;
    for (const Group& group : groups) {
      if (stages_of(group.ops) != stages_of(known.ops)) continue;
      DOPPLER_TRY(attempt(chain, end, group, fits, false, known.repair));
      std::erase_if(fits, [&](const Fit& fit) { return fit.attempt.cause != known.attempt.cause; });
      if (!fits.empty()) return {};
    }
  }
  return {};
}

Status ChainRepairs::attempt_all(const OpChain& chain, const OpCase::ChainEnd& end,
                                 const std::vector<Group>& groups, std::vector<Fit>& fits) {
  enum class Pass { kAlike, kOneByOne, kTwoNumbers };
  for (const Pass pass : {Pass::kAlike, Pass::kOneByOne, Pass::kTwoNumbers}) {
    for (const Group& group : groups) {
      if (pass != Pass::kTwoNumbers && group.alike != (pass == Pass::kAlike)) continue;
      DOPPLER_TRY(attempt(chain, end, group, fits, pass == Pass::kTwoNumbers));
      ++(out_of_time_ ? groups_left_ : groups_tried_);
    }
    if (pass == Pass::kAlike) DOPPLER_TRY(reorder(chain, end, fits));
    if (pass == Pass::kAlike && fits.empty()) DOPPLER_TRY(change_kinds(chain, end, fits));
    if (pass == Pass::kOneByOne) DOPPLER_TRY(exchange(chain, end, fits));
    if (!fits.empty()) return {};
  }
  return {};
}

Result<ChainExplanation> ChainRepairs::explain(const OpChain& chain, const OpCase::ChainEnd& end) {
  nearest_.reset();
  too_large_.clear();
  groups_tried_ = groups_left_ = 0;
  begun_ = std::chrono::steady_clock::now();
  out_of_time_ = false;
  const double misfit = misfit_of(chain, end);
  const std::vector<Group> all = groups(chain);
  std::vector<Fit> fits;
  DOPPLER_TRY(attempt_known(chain, end, all, fits));
  // What nothing explained in some chains is not searched for in every one.
  constexpr std::size_t kMostUnknown = 3;
  if (fits.empty() && unknown_ < kMostUnknown) DOPPLER_TRY(attempt_all(chain, end, all, fits));
  return conclude(chain, std::move(fits), misfit);
}

}  // namespace doppler::diagnosis
