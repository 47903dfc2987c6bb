#include "diagnosis/doctor/doctor_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
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

std::string place_of(const WrongOp& wrong) {
  return wrong.layer < 0 ? std::string(stage_name(wrong.stage))
                         : fmt::format("{} of layer {}", stage_name(wrong.stage), wrong.layer);
}

// Causes that are one finding for all stages; others are one finding for each stage.
bool spreads(std::string_view cause) {
  constexpr std::string_view kByStage[] = {"stale_weight",   "truncated_weight",     "weight_nan",
                                           "weight_shifted", "weight_scaled",        "weight_wrong",
                                           "unknown",        "residual_missing",     "tail_missing",
                                           "stale_buffer",   "kernel_writes_nothing"};
  return std::ranges::find(kByStage, cause) == std::end(kByStage);
}

Finding finding_of(const WrongOp& wrong) {
  const Attempt& attempt = wrong.explanation.attempt;
  Finding finding{.cause = attempt.cause,
                  .stage = std::string(stage_name(wrong.stage)),
                  .layer = wrong.layer,
                  .repair = attempt.repair,
                  .confidence = wrong.explanation.confidence,
                  .ruled_out = wrong.explanation.ruled_out};
  constexpr double kBeyondCounting = 1e6;  // how much more says nothing
  const std::string much = !std::isfinite(wrong.ratio) ? "NaN or infinity"
                           : wrong.ratio > kBeyondCounting
                               ? "more than a million times the allowed error"
                               : fmt::format("{:.3g} times the allowed error", wrong.ratio);
  const std::string at = wrong.where.empty() ? "" : ", " + wrong.where;
  if (!wrong.who.empty()) {
    finding.explanation =
        attempt.cause == "unknown"
            ? fmt::format(
                  "The backend {} computes {} otherwise than the oracle ({}{}), and no known pattern fits.",
                  wrong.who, place_of(wrong), much, at)
            : fmt::format("On the backend {}, {} is what comes out when {} ({}{}).", wrong.who,
                          place_of(wrong), attempt.says, much, at);
  } else if (attempt.cause == "unknown") {
    finding.explanation = fmt::format("{} differs ({}{}), and no repair of the catalogue restores agreement.",
                                      place_of(wrong), much, at);
    if (!wrong.weight.empty()) finding.explanation += fmt::format(" It multiplies by {}.", wrong.weight);
  } else if (attempt.says.starts_with("no permutation") ||
             attempt.says.starts_with("no other")) {  // what it is not
    finding.explanation = fmt::format("{} differs ({}{}), and {}.", place_of(wrong), much, at, attempt.says);
  } else {
    finding.explanation = fmt::format("{} agrees when {}. As it is, it differs ({}{}).", place_of(wrong),
                                      attempt.says, much, at);
  }
  return finding;
}

using Layers = std::set<int>;

// A layer of the other kind has another window and, in some families, another rotary base: one cause, seen
// twice.
class KindRefiner {
 public:
  KindRefiner(const ModelSpec& spec, std::vector<WrongOp>& wrong) : spec_(spec), wrong_(wrong) {
    for (const WrongOp& w : wrong) {
      const Attempt& a = w.explanation.attempt;
      if (a.cause == "sliding_window") windows_[w.layer] = a.value;
      if (a.cause == "rope_theta") bases_[w.layer] = a.value;
    }
  }

  void refine() {
    bool some_need = false, some_do_not = false, says_types = false;
    for (const auto& [layer, window] : windows_) {
      if (ours(layer).window != 0 && window != 0) continue;  // another size, not another kind
      (window != 0 ? some_need : some_do_not) = true;
    }
    for (const SpecSource& s : spec_.sources)
      says_types |= s.path.find("attention.kind") != std::string::npos &&
                    s.source.find("layer_types") != std::string::npos;
    // No layer has a window, and no list says which layers should: the number is missing, not the list.
    const bool lost = !any_sliding() && !says_types && some_need;
    const bool any_moved = std::ranges::any_of(bases_, [&](const auto& base) { return moved(base.first); });
    for (WrongOp& w : wrong_) {
      Attempt& a = w.explanation.attempt;
      if (a.cause == "sliding_window" && changes_kind(w.layer)) {
        const bool full = ours(w.layer).kind == AttentionKind::kFull;
        const bool both = some_need && some_do_not;
        const bool types =
            both || (windows_[w.layer] != 0 ? full && (says_types || any_sliding())
                                            : (full ? any_sliding() : windows_.size() < sliding_layers()));
        if (lost) {
          a.repair = window_repair(windows_[w.layer]);
        } else if (types || bases_.contains(w.layer)) {
          a.cause = "layer_types";
        }
      }
      if (a.cause == "rope_theta" && !lost && !any_sliding() && !says_types && some_of_kind(w.layer)) {
        a.cause = "layer_types";
        a.repair = fmt::format(
            "Set sliding_window and layer_types: no layer has a window, but layer {} rotates as a local one.",
            w.layer);
        continue;
      }
      if (a.cause == "rope_theta" && any_moved && other_kind_has_base(w.layer)) {
        a.cause = lost ? "sliding_window" : "layer_types";
        if (lost) a.repair = window_repair(windows_[w.layer]);
      }
      if (a.cause == "layer_types")
        a.repair = fmt::format(
            "Set layer_types (or sliding_window_pattern): layer {} should be of the other kind.", w.layer);
    }
  }

 private:
  const AttentionSpec& ours(int layer) const {
    return spec_.layers[static_cast<std::size_t>(layer)].attention;
  }
  static std::string window_repair(double window) {
    return fmt::format("Set sliding_window to {} (it is none).", window);
  }
  bool any_sliding() const { return sliding_layers() > 0; }
  std::size_t sliding_layers() const {
    std::size_t count = 0;
    for (const LayerSpec& layer : spec_.layers) count += layer.attention.kind == AttentionKind::kSliding;
    return count;
  }
  bool changes_kind(int layer) const {
    const auto found = windows_.find(layer);
    return found != windows_.end() && (found->second == 0) != (ours(layer).window == 0);
  }

  bool other_kind_has_base(int layer) const {
    if (changes_kind(layer)) return true;
    return std::ranges::any_of(spec_.layers, [&](const LayerSpec& other) {
      return other.attention.kind != ours(layer).kind && other.attention.rope.theta == bases_.at(layer);
    });
  }
  // Either the window says so, too; or only some layers of a kind want the base that the other kind has.
  bool moved(int layer) const {
    if (changes_kind(layer) || !other_kind_has_base(layer)) return changes_kind(layer);
    return some_of_kind(layer);
  }
  bool some_of_kind(int layer) const {
    std::size_t of_kind = 0, wrong_of_kind = 0;
    for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i) {
      if (ours(i).kind != ours(layer).kind) continue;
      ++of_kind;
      wrong_of_kind += bases_.contains(i);
    }
    return wrong_of_kind < of_kind;
  }

  const ModelSpec& spec_;
  std::vector<WrongOp>& wrong_;
  std::map<int, double> windows_, bases_;
};

}  // namespace

OpCase::Context OpJudge::context_for(std::size_t op, bool noisy) const {
  OpCase::Context context{e_.subject.spec, experiment_, e_.subject.weights, threads_, arithmetic};
  const Op& made = experiment_.plan().ops[op];
  if (noisy && !made.weights.empty())
    context.noise = storage_error(e_.subject.weights[made.weights[0]].dtype);
  return context;
}

Status OpJudge::judge(std::size_t op) {
  DOPPLER_ASSIGN(std::vector<float> target, experiment_.recorded(op));
  DOPPLER_ASSIGN(const OpCase c, OpCase::open(context_for(op, noisy_weights_), op, std::move(target)));
  const std::string name = stage_key(c.stage(), c.layer());
  const auto finite = [](const OpSetup::Rows& rows) {
    return std::ranges::all_of(rows.data, [](float x) { return std::isfinite(x); });
  };
  if (!std::ranges::all_of(c.setup().inputs, finite)) return {};  // a consequence of its inputs
  if (c.misfit().agrees()) {
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
  wrong_.push_back(std::move(wrong));
  return {};
}

Status OpJudge::measure() {
  const Plan& plan = experiment_.plan();
  std::vector<std::size_t> ops;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Value& out = plan.values[plan.ops[i].outputs[0]];
    if ((skip && skip(i)) || !experiment_.missing(i).empty()) continue;
    if (experiment_.rows().locate(plan, out.stage, out.layer)) ops.push_back(i);
  }
  judged_ = ops.size();
  for (const std::size_t op : ops) DOPPLER_TRY(judge(op));
  // If most products with coarser weights than float32 differ, the recording was made with finer ones.
  const auto coarse = [&](std::size_t op) {
    const Op& made = plan.ops[op];
    return made.kind == OpKind::kMatmul && storage_error(e_.subject.weights[made.weights[0]].dtype) > 0;
  };
  const auto all = static_cast<std::size_t>(std::ranges::count_if(ops, coarse));
  const auto bad =
      static_cast<std::size_t>(std::ranges::count_if(wrong_, [&](const WrongOp& w) { return coarse(w.op); }));
  if (!finer_weights || all < 4 || bad * 3 < all * 2) return {};
  std::vector<WrongOp> before = std::move(wrong_);
  wrong_.clear();
  noisy_weights_ = true;
  for (const WrongOp& w : before) DOPPLER_TRY(judge(w.op));
  // All wrong even so: then it is not the storage.
  if (wrong_.size() * 3 > before.size() * 2) wrong_ = std::move(before), noisy_weights_ = false;
  return {};
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
  DOPPLER_ASSIGN(OpCase c,
                 OpCase::open(context_for(wrong.op, true), wrong.op, std::move(target), wrong.rows));
  wrong.only_coarse = c.misfit().agrees();
  if (wrong.only_coarse) return {};
  Explanation explanation = explain(c);
  if (explanation.attempt.cause == "unknown") return {};
  explanation.confidence *= 0.8;
  wrong.explanation = std::move(explanation);
  return {};
}

Status OpJudge::explain_wrong() {
  for (std::size_t i = 0; i < wrong_.size(); ++i) {
    WrongOp& wrong = wrong_[i];
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
    DOPPLER_ASSIGN(OpCase c, OpCase::open(context_for(wrong.op, noisy_weights_), wrong.op, std::move(target),
                                          wrong.rows));
    if (!who.empty() && explain_execution(c, hints, wrong.explanation)) continue;
    wrong.explanation = explain(c);
    if (who.empty()) DOPPLER_TRY(explain_as_coarse(wrong));
    // The inputs are the recording's and the op is right, so the weight must differ.
    if (Attempt& attempt = wrong.explanation.attempt;
        who.empty() && attempt.cause == "unknown" && c.op().kind == OpKind::kMatmul) {
      attempt.cause = "weight_wrong";
      attempt.says = fmt::format("no permutation, scale or type of {} explains it", wrong.weight);
      wrong.explanation.confidence = 0.5;
    }
    if (!who.empty()) explain_by_place(c, hints, wrong.explanation);
  }
  const auto only_coarse = [](const WrongOp& w) { return w.only_coarse; };
  if (!std::ranges::all_of(wrong_, only_coarse)) std::erase_if(wrong_, only_coarse);
  std::vector<Finding> findings = gather_findings(e_.subject.spec, wrong_);
  findings.resize(std::min(findings.size(), most));
  for (Finding& finding : findings) e_.find(std::move(finding));
  return {};
}

std::string OpJudge::summary() const {
  return fmt::format(
      "{} ops judged, {} wrong{}; the worst of the others, {}, uses {:.0f} % of what is allowed{}", judged_,
      wrong_.size() + unexamined_,
      unexamined_ == 0 ? ""
                       : fmt::format(" ({} not looked into for lack of time: raise --seconds)", unexamined_),
      worst_at_.empty() ? "none" : worst_at_, 100 * worst_,
      noisy_weights_ ? " (the recording is of finer weights)" : "");
}

std::vector<Finding> gather_findings(const ModelSpec& spec, std::vector<WrongOp> wrong) {
  KindRefiner(spec, wrong).refine();
  std::vector<Finding> findings;
  std::map<std::string, std::size_t> seen;
  for (const WrongOp& w : wrong) {
    const std::string& cause = w.explanation.attempt.cause;
    std::string key = cause;
    // Slices of a fused tensor, "…weight[0:64]", are one tensor.
    const std::size_t slice = w.weight.find('[');
    if (!spreads(cause)) {
      key += slice == std::string::npos ? fmt::format(" {}", stage_name(w.stage))
                                        : " " + w.weight.substr(0, slice);
    }
    // A tied head shares its weight with the embedding.
    if (!spreads(cause) && w.stage == Stage::kLogits && spec.tied_head)
      key = fmt::format("{} {}", cause, stage_name(Stage::kEmbedOut));
    const auto [at, fresh] = seen.emplace(key, findings.size());
    if (fresh) {
      findings.push_back(finding_of(w));
    } else {
      Finding& first = findings[at->second];
      ++first.places;
      first.confidence = std::max(first.confidence, w.explanation.confidence);
    }
  }
  return findings;
}

}  // namespace doppler::diagnosis::doctor
