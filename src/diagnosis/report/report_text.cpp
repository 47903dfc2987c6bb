#include "diagnosis/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/layout.h"
#include "base/screen.h"
#include "base/text.h"

namespace doppler::diagnosis {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool in_decode(const StageComparison& c) {
  return c.key == "decode_logits";
}

// "off by 3.4% of its largest value": shares below a thousandth are not given as percents.
std::string off_by(double error) {
  if (!std::isfinite(error)) return "it holds NaN or infinity";
  if (error >= 1) return fmt::format("off by {:.2g} times its largest value", error);
  return error >= 1e-3 ? fmt::format("off by {:.2g}% of its largest value", error * 100)
                       : fmt::format("off by {:.1e} of its largest value", error);
}

// "6,500 times", for sentences.
std::string times(double excess) {
  if (excess >= 1e9) return "billions of times";
  if (excess < 10) return fmt::format("{:.2g} times", excess);
  // Two significant digits.
  const double unit = std::pow(10, std::floor(std::log10(excess)) - 1);
  std::string digits = fmt::format("{:.0f}", std::round(excess / unit) * unit);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits += " times";
}

std::string from_token(const StageComparison& c, const std::optional<std::size_t>& token) {
  if (!token) return "";
  return fmt::format(", from {} {} on", in_decode(c) ? "step" : "token", *token);
}

// "The difference is 40 times what rounding explains."
std::string against_rounding(double excess) {
  return std::isfinite(excess) ? fmt::format("The difference is {} what rounding explains.", times(excess))
                               : std::string("The result holds NaN or infinity.");
}

// The op, and that others are judged with it.
std::string judged_place(const StageComparison& c, const OpError& op) {
  if (op.unrecorded == 0) return describe_place(c);
  if (op.unrecorded == 1)
    return fmt::format("{} (or the one before it, which is not recorded)", describe_place(c));
  return fmt::format("{} (or one of the {} before it that are not recorded)", describe_place(c),
                     op.unrecorded);
}

std::string first_sentence(const StageComparison& c) {
  const std::string place = describe_place(c);
  const Disagreement why = c.disagreement();
  if (why == Disagreement::kNotComputed)
    return fmt::format("The recording holds {}, which this model does not compute.", place);
  if (why == Disagreement::kExecution) {
    return fmt::format(
        "The first op that goes wrong is {}{}: fed what it really read, plain loops compute something else. "
        "{}",
        judged_place(c, *c.execution), from_token(c, c.execution->first_bad_token),
        against_rounding(c.execution->excess));
  }
  if (why == Disagreement::kDescription) {
    return fmt::format(
        "The first op that differs is {}{}: from the recording's own inputs, this model's description and "
        "weights lead elsewhere. {}",
        judged_place(c, *c.description), from_token(c, c.description->first_bad_token),
        against_rounding(c.description->excess));
  }
  std::string sentence = fmt::format("The first stage that differs is {}{}: {}", place,
                                     from_token(c, c.first_bad_token), off_by(c.error));
  if (std::isfinite(excess_of(c))) sentence += fmt::format(", {} what is allowed", times(excess_of(c)));
  if (!c.untold.empty()) return sentence + ". Whether this op or one before it is at fault cannot be told.";
  return sentence + ".";
}

// Consecutive stages that are shown as one line.
struct Run {
  const StageComparison *first = nullptr, *last = nullptr, *worst = nullptr;
  std::size_t count = 0;
};

class Table {
 public:
  Table(const Comparison& comparison, const TableStyle& style)
      : style_(style), width_(std::max<std::size_t>(40, style.width)), wrong_(comparison.first_divergence()) {
    for (const StageComparison& c : comparison.stages) stages_.push_back(&c);
    if (comparison.decode) stages_.push_back(&*comparison.decode);
    choose_single_lines();
  }

  std::string text() {
    std::vector<Run> runs;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const StageComparison* c = stages_[i];
      const bool joins =
          !runs.empty() && !alone_[i] && !alone_[i - 1] && c->agrees() == stages_[i - 1]->agrees();
      if (!joins) runs.push_back({c, c, c, 0});
      Run& run = runs.back();
      run.last = c, ++run.count;
      if (excess_of(*c) > excess_of(*run.worst)) run.worst = c;
    }
    std::size_t names = 0;
    for (const Run& run : runs) names = std::max(names, text_columns(name_of_run(run)));
    names_ = std::min(names, width_ / 2);
    std::string text;
    for (const Run& run : runs) text += line(run);
    return text;
  }

 private:
  // Stages with a line of their own: what is wrong by itself, and the first two that differ after the first
  // divergence; more would hide the beginning.
  void choose_single_lines() {
    constexpr std::size_t kMostSingle = 12, kAfterFirst = 2;
    std::size_t single = 0, after = 0;
    bool passed = false;
    for (const StageComparison* c : stages_) {
      const Disagreement why = c->disagreement();
      bool alone = style_.all || c == wrong_;
      if (!alone && why != Disagreement::kNone && why != Disagreement::kTotal) alone = single++ < kMostSingle;
      if (!alone && passed && why == Disagreement::kTotal) alone = after++ < kAfterFirst;
      passed |= c == wrong_;
      alone_.push_back(alone);
    }
  }

  static std::string name_of_run(const Run& run) {
    return run.count == 1 ? run.first->key : fmt::format("{} … {}", run.first->key, run.last->key);
  }

  std::string line(const Run& run) const {
    const bool agrees = run.first->agrees();
    std::string name = cut(name_of_run(run), names_);
    name.append(names_ - text_columns(name), ' ');
    const std::string says = run.count == 1 ? stage_text(*run.first) : run_text(run);
    constexpr std::string_view kFirst = "  ← first";
    const bool first = run.first == wrong_;
    std::string body =
        cut(fmt::format("{}  {}", name, says), width_ - 2 - (first ? text_columns(kFirst) : 0));
    if (first) body += kFirst;
    return fmt::format("{} {}\n",
                       painted(agrees ? "✓" : "✗", agrees ? Paint::kGood : Paint::kBad, style_.colour),
                       first ? painted(body, Paint::kStrong, style_.colour) : body);
  }

  static std::string run_text(const Run& run) {
    const std::string worst = fmt::format("{} at {}", describe_excess(excess_of(*run.worst)), run.worst->key);
    return run.first->agrees() ? fmt::format("{} agree, nearest {}", counted(run.count, "stage"), worst)
                               : fmt::format("{} differ, most {}", counted(run.count, "stage"), worst);
  }

  // The deciding words come first: narrow terminals cut the rest.
  static std::string stage_text(const StageComparison& c) {
    const Disagreement why = c.disagreement();
    if (why == Disagreement::kNotComputed) return "recorded, but this model does not compute it";
    std::string text = fmt::format("{:>6}", describe_excess(excess_of(c)));
    if (why == Disagreement::kExecution) text += "  this op alone";
    if (why == Disagreement::kDescription) text += "  description alone";
    text += std::isfinite(c.error) ? fmt::format("  error {:.1e} allowed {:.1e}", c.error, c.tolerance)
                                   : std::string("  NaN or infinity");
    if (c.first_bad_token)
      text += fmt::format("  {} {}", in_decode(c) ? "step" : "token", *c.first_bad_token);
    if (why != Disagreement::kNone && c.inherited && std::isfinite(*c.inherited))
      text += fmt::format("  inherited {:.1e}", *c.inherited);
    return text;
  }

  const TableStyle style_;
  const std::size_t width_;
  const StageComparison* const wrong_;
  std::vector<const StageComparison*> stages_;
  std::vector<bool> alone_;
  std::size_t names_ = 0;
};

}  // namespace

std::string describe_place(const StageComparison& c) {
  if (in_decode(c)) return "the logits of the decode steps";
  std::string_view name = stage_name(c.stage);
  if (name.empty() || c.key.find("qkv") != std::string::npos || c.key.find("gate_up") != std::string::npos)
    name = std::string_view(c.key).substr(c.key.rfind('.') + 1);
  return c.layer >= 0 ? fmt::format("{} of layer {}", name, c.layer) : std::string(name);
}

double excess_of(const StageComparison& c) {
  if (c.stage == Stage::kNone) return kInfinity;
  const auto over = [](double error, double allowed) {
    if (error == 0) return 0.0;
    return std::isfinite(error) && allowed > 0 ? error / allowed : kInfinity;
  };
  double excess = c.explained ? 0 : over(c.error, c.tolerance);  // rounding that added up is no fault
  if (c.execution) excess = std::max(excess, over(c.execution->excess, 1));
  if (c.description) excess = std::max(excess, over(c.description->excess, 1));
  return excess;
}

std::string describe_excess(double excess) {
  if (!std::isfinite(excess)) return "NaN";
  struct Unit {
    double size;
    std::string_view name;
  };
  constexpr std::array<Unit, 4> kUnits = {{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}};
  for (const Unit& unit : kUnits) {
    const double number = excess / unit.size;
    if (number < 0.9995 && unit.size > 1) continue;
    if (number >= 999.5) return fmt::format("×1000{} and more", unit.name);
    return number < 9.95 ? fmt::format("×{:.2g}{}", number, unit.name)
                         : fmt::format("×{:.0f}{}", number, unit.name);
  }
  return "×0";
}

std::vector<std::string> verdict_of(const Comparison& comparison) {
  std::vector<std::string> sentences;
  const StageComparison* first = comparison.first_divergence();
  if (first == nullptr && comparison.agrees()) {
    sentences.push_back(fmt::format("{} compared, none farther off than the arithmetic allows.",
                                    counted(comparison.stages.size(), "stage")));
  } else if (first == nullptr) {
    sentences.emplace_back("Every stage is within what is allowed, but the chosen tokens differ.");
  } else {
    sentences.push_back(first_sentence(*first));
    const auto before = static_cast<std::size_t>(std::ranges::count_if(
        comparison.stages, [&](const StageComparison& c) { return &c < first && c.agrees(); }));
    const bool listed = std::ranges::any_of(comparison.stages, [&](const auto& c) { return &c == first; });
    if (listed && before > 0)
      sentences.push_back(fmt::format("{} before it {}.",
                                      before == 1 ? "The stage" : fmt::format("The {} stages", before),
                                      before == 1 ? "agrees" : "agree"));
  }
  if (comparison.decode_steps > 0) {
    sentences.push_back(fmt::format("The likeliest token is the recording's in {} of {}.",
                                    comparison.top1_equal, counted(comparison.decode_steps, "step")));
  }
  return sentences;
}

std::string comparison_table(const Comparison& comparison, const TableStyle& style) {
  const StageComparison* first = comparison.first_divergence();
  const std::string verdict = comparison.agrees() ? "agrees"
                              : first == nullptr  ? "DIVERGES in the chosen tokens"
                                                  : fmt::format("DIVERGES first at {}", first->key);
  std::string text = painted(verdict, comparison.agrees() ? Paint::kGood : Paint::kBad, style.colour) + "\n";
  text += Table(comparison, style).text();
  for (const std::string& sentence : verdict_of(comparison)) text += wrap(sentence, style.width) + "\n";
  return text;
}

}  // namespace doppler::diagnosis
