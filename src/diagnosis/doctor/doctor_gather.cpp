// Wrong ops as findings: what they say, and which of them are one.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "diagnosis/doctor/doctor_ops.h"

namespace doppler::diagnosis::doctor {
namespace {

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

// Of an op that the recording has no output of.
Finding finding_along(Finding finding, const WrongOp& wrong, const std::string& much) {
  const Attempt& attempt = wrong.explanation.attempt;
  const std::string from = wrong.from.empty() ? std::string() : fmt::format(" from {}", wrong.from);
  finding.among = wrong.among;
  if (attempt.cause == "unknown") {
    finding.explanation =
        fmt::format("{} does not come out{} ({}), and no repair of the catalogue restores agreement.",
                    wrong.seen_at, from, much);
    if (wrong.among.size() < 2) return finding;
    finding.explanation += fmt::format(
        " The recording has nothing in between, so that it cannot tell these apart: {}.", wrong.between);
    if (!wrong.unread.empty()) {
      finding.explanation +=
          fmt::format(" The model also has weights that no op reads: those of {}{}.", wrong.unread.front(),
                      wrong.unread.size() > 1 ? fmt::format(" and {} others", wrong.unread.size() - 1) : "");
    }
    finding.repair = "Record the stages in between: doppler record, or tools/hf_record.py, has them all.";
    return finding;
  }
  finding.explanation = fmt::format("{} comes out{} when {} ({}). As it is, it differs ({}).", wrong.seen_at,
                                    from, attempt.says, wrong.between, much);
  if (!wrong.also.empty())
    finding.explanation += fmt::format(" The recording cannot tell this from {}.", join(wrong.also, "; "));
  return finding;
}

Finding finding_of(const WrongOp& wrong) {
  const Attempt& attempt = wrong.explanation.attempt;
  Finding finding{.cause = attempt.cause,
                  .stage = std::string(stage_name(wrong.stage)),
                  .layer = wrong.layer,
                  .repair = attempt.repair,
                  .confidence = wrong.explanation.confidence,
                  .ruled_out = wrong.explanation.ruled_out,
                  .fixes = attempt.fixes};
  constexpr double kBeyondCounting = 1e6;  // how much more says nothing
  const std::string much = !std::isfinite(wrong.ratio) ? "NaN or infinity"
                           : wrong.ratio > kBeyondCounting
                               ? "more than a million times the allowed error"
                               : fmt::format("{:.3g} times the allowed error", wrong.ratio);
  const std::string at = wrong.where.empty() ? "" : ", " + wrong.where;
  if (!wrong.seen_at.empty()) return finding_along(std::move(finding), wrong, much + at);
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
  } else if (attempt.says.empty()) {
    finding.explanation =
        fmt::format("{} differs ({}{}), and no permutation, scale or type of {} explains it.",
                    place_of(wrong), much, at, wrong.weight);
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
  KindRefiner(const ModelSpec& spec, std::vector<WrongOp>& wrong, const std::set<int>& examined)
      : spec_(spec), wrong_(wrong), examined_(examined) {
    for (const WrongOp& w : wrong) {
      const Attempt& a = w.explanation.attempt;
      for (const int layer : w.layers.empty() ? std::vector<int>{w.layer} : w.layers) {
        if (a.cause == "sliding_window") windows_[layer] = a.value;
        if (a.cause == "rope_theta") bases_[layer] = a.value;
      }
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
        const bool other_base = bases_.contains(w.layer) && !all_change();
        if (lost) {
          a.repair = window_repair(windows_[w.layer]);
          a.fixes = {{.target = "attention.window", .value = fmt::format("{}", windows_[w.layer])}};
        } else if (types || other_base) {
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
      if (a.cause == "layer_types") {
        const bool full = ours(w.layer).kind == AttentionKind::kFull;
        a.fixes = {{.target = fmt::format("layers[{}].attention.kind", w.layer),
                    .value = full ? "\"sliding_attention\"" : "\"full_attention\""}};
        a.repair = fmt::format(
            "Set layer_types (or sliding_window_pattern): layer {} should be of the other kind.", w.layer);
      }
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
  bool is_examined(int layer) const { return examined_.empty() || examined_.contains(layer); }
  std::size_t sliding_layers() const {
    std::size_t count = 0;
    for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i)
      count += is_examined(i) && ours(i).kind == AttentionKind::kSliding;
    return count;
  }
  bool changes_kind(int layer) const {
    const auto found = windows_.find(layer);
    return found != windows_.end() && (found->second == 0) != (ours(layer).window == 0);
  }

  // Every layer wants none, or one: its number is wrong, and what is wrong besides is another thing.
  bool all_change() const {
    std::size_t examined = 0;
    for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i) examined += is_examined(i);
    return windows_.size() == examined &&
           std::ranges::all_of(windows_, [&](const auto& window) { return changes_kind(window.first); });
  }
  bool other_kind_has_base(int layer) const {
    if (all_change()) return false;
    if (changes_kind(layer)) return true;
    return std::ranges::any_of(spec_.layers, [&](const LayerSpec& other) {
      return other.attention.kind != ours(layer).kind && other.attention.rope.theta == bases_.at(layer);
    });
  }
  // Either the window says so, too; or only some layers of a kind want the base that the other kind has.
  bool moved(int layer) const {
    if (all_change()) return false;
    if (changes_kind(layer) || !other_kind_has_base(layer)) return changes_kind(layer);
    return some_of_kind(layer);
  }
  bool some_of_kind(int layer) const {
    std::size_t of_kind = 0, wrong_of_kind = 0;
    for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i) {
      if (ours(i).kind != ours(layer).kind || !is_examined(i)) continue;
      ++of_kind;
      wrong_of_kind += bases_.contains(i);
    }
    return wrong_of_kind < of_kind;
  }

  const ModelSpec& spec_;
  std::vector<WrongOp>& wrong_;
  const std::set<int>& examined_;
  std::map<int, double> windows_, bases_;
};

// Of products with one tensor the first in a step stands for all.
void put_first_first(std::vector<WrongOp>& wrong) {
  for (WrongOp& later : wrong) {
    if (later.weight.empty()) continue;
    const auto same = std::ranges::find_if(wrong, [&](const WrongOp& w) {
      return w.weight == later.weight && w.explanation.attempt.cause == later.explanation.attempt.cause;
    });
    if (same->op > later.op) std::swap(*same, later);
  }
}

}  // namespace

std::vector<Finding> gather_findings(const ModelSpec& spec, std::vector<WrongOp> wrong,
                                     const std::set<int>& examined) {
  put_first_first(wrong);
  KindRefiner(spec, wrong, examined).refine();
  std::vector<Finding> findings;
  std::map<std::string, std::size_t> seen;
  std::map<std::string, std::string> of_weight;
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
    // Keys and values of one latent are products with one tensor.
    if (!w.weight.empty()) key = of_weight.emplace(cause + " " + w.weight, key).first->second;
    const auto [at, fresh] = seen.emplace(key, findings.size());
    if (fresh) {
      findings.push_back(finding_of(w));
    } else {
      Finding& first = findings[at->second];
      ++first.places;
      for (const Fix& fix : w.explanation.attempt.fixes) {
        // Where less shows, a value that is nearly right may do, too: the first place's counts.
        if (std::ranges::none_of(first.fixes, [&](const Fix& other) {
              return other.same_as(fix) || (other.kind == fix.kind && other.target == fix.target);
            }))
          first.fixes.push_back(fix);
      }
      first.confidence = std::max(first.confidence, w.explanation.confidence);
    }
  }
  return findings;
}

}  // namespace doppler::diagnosis::doctor
