#include "inspect/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text.h"

namespace doppler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool in_decode(const StageComparison& c) {
  return c.key == "decode_logits";
}

// "3.4%" or "2.1e-05": shares below a thousandth say nothing as percents.
std::string share_text(double error) {
  if (!std::isfinite(error)) return "NaN or infinity";
  return error >= 1e-3 && error < 10 ? fmt::format("{:.2g}%", error * 100) : fmt::format("{:.1e}", error);
}

std::string from_token(const StageComparison& c, const std::optional<std::size_t>& token) {
  if (!token) return "";
  return fmt::format(", from {} {} on", in_decode(c) ? "step" : "token", *token);
}

std::string first_sentence(const StageComparison& c) {
  const std::string place = describe_place(c);
  switch (c.disagreement()) {
    case Disagreement::kNotComputed:
      return fmt::format("The recording holds {}, which this model does not compute.", place);
    case Disagreement::kExecution:
      return fmt::format(
          "The first op that goes wrong is {}{}: fed what it really read, the oracle computes something "
          "else. "
          "The difference is {} what rounding explains.",
          place, from_token(c, c.execution->first_bad_token), describe_excess(c.execution->excess));
    case Disagreement::kDescription:
      return fmt::format(
          "The first op that differs is {}{}: from the recording's own inputs this model's description and "
          "weights lead elsewhere. The difference is {} what rounding explains.",
          place, from_token(c, c.description->first_bad_token), describe_excess(c.description->excess));
    case Disagreement::kTotal:
    case Disagreement::kNone:
      break;
  }
  return fmt::format(
      "The first stage that differs is {}{}: off by {} of its largest value, {} what is allowed.{}", place,
      from_token(c, c.first_bad_token), share_text(c.error), describe_excess(excess_of(c)),
      c.untold.empty() ? "" : " Whether this op or one before it is at fault cannot be told.");
}

// "1 stage", "12 stages".
std::string count_of(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

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
  double excess = over(c.error, c.tolerance);
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
    sentences.push_back(fmt::format("{}, none farther off than the arithmetic allows.",
                                    count_of(comparison.stages.size(), "stage") + " compared"));
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
                                    comparison.top1_equal, count_of(comparison.decode_steps, "step")));
  }
  return sentences;
}

}  // namespace doppler
