// A measurement held against an older one of the same command: every figure's ratio, and whether it is
// certainly worse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace doppler::bench {

enum class Change : std::uint8_t {
  kNone,     // within the allowed share, or nothing is allowed or forbidden
  kPerhaps,  // the medians say worse, the intervals allow that it is not
  kWorse,    // even the intervals' kindest ends are worse by more than the allowed share
};

struct ComparedFigure {
  std::string name;
  double old_median = 0, median = 0;
  double speed = 1, low = 1,
         high = 1;  // how many times as good as before: above 1 is better, whatever the figure's unit
  Change change = Change::kNone;
  bool has_interval = false;  // a single number has none, and nothing about it is certain
  bool certainly_better() const { return has_interval && low > 1; }
  bool certainly_worse() const { return has_interval && high < 1; }
};

struct BaselineComparison {
  std::vector<ComparedFigure> figures;   // that both have, in the new one's order
  std::vector<std::string> differences;  // sentences: another machine, another file, other options
  std::vector<std::string> failures;     // sentences; empty unless a share was given
  double fail_over = -1;                 // that share; below 0: none
};

// Both as doppler bench --json prints them, of the same suite. `fail_over`: the share (0.05 is 5%) that a
// figure may lose before it counts as worse; below 0 nothing fails. A wrong answer (quality) where there was
// a right one fails, too. Errors: kCorrupt for an `old` that is no measurement; kMismatch for one of another
// suite.
Result<BaselineComparison> compare_with_baseline(const Json& old, const Json& now, double fail_over);

std::string to_text(const BaselineComparison& comparison);
Json to_json(const BaselineComparison& comparison);

// "5%" or "0.05" as a share. Errors: kUsage.
Result<double> parse_share(std::string_view text);

}  // namespace doppler::bench
