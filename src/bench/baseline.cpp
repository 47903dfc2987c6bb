#include "bench/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "bench/measure.h"
#include "system/numbers.h"

namespace doppler::bench {
namespace {

// The loss may grow by this share: other instructions round otherwise, which moves it by less than a
// thousandth.
constexpr double kMostLossGrowth = 0.01;

// What lies at a path of objects, such as "memory/peak_bytes"; null if nothing does.
const Json* at(const Json& json, std::string_view path) {
  const Json* here = &json;
  while (!path.empty()) {
    if (!here->is_object()) return nullptr;
    const std::string_view key = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), key.size() + 1));
    const auto found = here->find(std::string(key));
    if (found == here->end()) return nullptr;
    here = &*found;
  }
  return here;
}

std::optional<double> number_at(const Json& json, std::string_view path) {
  const Json* here = at(json, path);
  return here != nullptr && here->is_number() ? std::optional(here->get<double>()) : std::nullopt;
}

std::string text_at(const Json& json, std::string_view path) {
  const Json* here = at(json, path);
  return here != nullptr && here->is_string() ? here->get<std::string>() : std::string();
}

struct Figure {
  std::string name;
  double median, low, high;
  bool less_is_better;
};

class Figures {
 public:
  // A summary (median, low, high), or a plain number, which has no interval.
  void add(std::string name, const Json& holder, std::string_view path, bool less_is_better) {
    const Json* here = at(holder, path);
    if (here == nullptr) return;
    Figure figure{
        .name = std::move(name), .median = 0, .low = 0, .high = 0, .less_is_better = less_is_better};
    if (here->is_number()) {
      figure.median = figure.low = figure.high = here->get<double>();
    } else {
      figure.median = number_at(*here, "median").value_or(0);
      figure.low = number_at(*here, "low").value_or(0);
      figure.high = number_at(*here, "high").value_or(0);
    }
    if (figure.low > 0 && figure.median > 0 && figure.high > 0) list.push_back(std::move(figure));
  }
  std::vector<Figure> list;
};

std::string name_of_decode(const Json& line) {
  const auto depth = static_cast<std::uint64_t>(number_at(line, "depth").value_or(0));
  const auto sequences = static_cast<std::uint64_t>(number_at(line, "sequences").value_or(1));
  const Json* drawn = at(line, "drawn");  // older files have none
  return decode_name(depth, sequences, drawn != nullptr && drawn->is_boolean() && drawn->get<bool>());
}

std::vector<Figure> figures_of(const Json& json) {
  Figures out;
  if (const Json* decode = at(json, "decode"); decode != nullptr && decode->is_array()) {
    for (const Json& line : *decode) {
      const std::string name = name_of_decode(line);
      out.add(name + ", tok/s", line, "tokens_per_second", false);
      out.add(name + ", p99 s", line, "token_seconds/p99", true);
    }
  }
  const auto prompt = static_cast<std::uint64_t>(number_at(json, "prefill/tokens").value_or(0));
  out.add(fmt::format("prefill {}, tok/s", prompt), json, "prefill/tokens_per_second", false);
  out.add("load, s", json, "load_seconds", true);
  for (const char* kind : {"cold", "warm"}) {
    out.add(fmt::format("{} load, s", kind), json, fmt::format("{}/ready_seconds", kind), true);
    out.add(fmt::format("{} load to first token, s", kind), json, fmt::format("{}/first_token_seconds", kind),
            true);
  }
  if (const Json* kernels = at(json, "kernels"); kernels != nullptr && kernels->is_array()) {
    for (const Json& row : *kernels) out.add(text_at(row, "op") + ", s", row, "seconds", true);
  }
  out.add("all kernels, s", json, "seconds", true);
  out.add("peak memory, bytes", json, "memory/peak_bytes", true);
  out.add("memory's bandwidth", json, "read_bandwidth", false);
  return std::move(out.list);
}

bool has_interval(const Figure& figure) {
  return figure.low < figure.high;
}

// The yardstick is the machine's, a single slow token and a kernel's time have no interval: told, never
// failed.
bool may_fail(const Figure& figure) {
  return figure.name != "memory's bandwidth" && !figure.name.ends_with("p99 s") && has_interval(figure);
}

ComparedFigure compared(const Figure& old, const Figure& now, double fail_over) {
  ComparedFigure out{.name = now.name, .old_median = old.median, .median = now.median};
  out.has_interval = has_interval(old) && has_interval(now);
  const bool inverse = now.less_is_better;
  out.speed = inverse ? old.median / now.median : now.median / old.median;
  out.low = inverse ? old.low / now.high : now.low / old.high;
  out.high = inverse ? old.high / now.low : now.high / old.low;
  if (fail_over < 0 || out.speed >= 1 - fail_over) return out;
  out.change = may_fail(now) && may_fail(old) && out.high < 1 - fail_over ? Change::kWorse : Change::kPerhaps;
  return out;
}

// Where the two were measured, as sentences about what differs.
void compare_places(const Json& old, const Json& now, std::vector<std::string>& differences) {
  struct Place {
    std::string_view what, path;
  };
  static constexpr Place kPlaces[] = {{"processor", "cpu"},
                                      {"backend", "backend"},
                                      {"device", "device/name"},
                                      {"driver", "device/driver"},
                                      {"KV cache", "kv_type"},
                                      {"number of threads", "threads"},
                                      {"size of the model's files", "memory/file_bytes"}};
  const auto value = [](const Json& json, std::string_view path) {
    const Json* here = at(json, path);
    if (here == nullptr || here->is_null()) return std::string("none");
    return printable(here->is_string() ? here->get<std::string>() : here->dump(), 80);
  };
  for (const Place& place : kPlaces) {
    const std::string before = value(old, place.path), after = value(now, place.path);
    if (before != after)
      differences.push_back(fmt::format("The {} is {}; the baseline's was {}.", place.what, after, before));
  }
}

// The answers: a loss that grew, or a model that was well and is not.
void compare_quality(const Json& old, const Json& now, BaselineComparison& out, bool fails) {
  const Json *was = at(old, "quality/ok"), *is = at(now, "quality/ok");
  if (was == nullptr || is == nullptr || !is->is_boolean()) return;
  const double before = number_at(old, "quality/loss").value_or(0),
               after = number_at(now, "quality/loss").value_or(0);
  std::string wrong;
  if (!is->get<bool>() && was->is_boolean() && was->get<bool>())
    wrong = fmt::format("The answers are wrong: {}.", text_at(now, "quality/why"));
  else if (before > 0 && after > before * (1 + kMostLossGrowth))
    wrong = fmt::format("The loss grew from {:.4f} to {:.4f} nats a token.", before, after);
  if (!wrong.empty() && fails) out.failures.push_back(wrong);
  if (!wrong.empty() && !fails) out.differences.push_back(wrong);
  const Json *ids = at(old, "quality/ids"), *new_ids = at(now, "quality/ids");
  if (wrong.empty() && ids != nullptr && new_ids != nullptr && *ids != *new_ids)
    out.differences.push_back("The model goes on with other tokens than in the baseline, at the same loss.");
}

std::string suite_of(const Json& json) {
  return text_at(json, "suite");
}

}  // namespace

Result<BaselineComparison> compare_with_baseline(const Json& old, const Json& now, double fail_over) {
  if (suite_of(old).empty())
    return fail(ErrorCode::kCorrupt, "The baseline is not what doppler bench --save writes. Make it again.");
  if (suite_of(old) != suite_of(now)) {
    return fail(ErrorCode::kMismatch,
                "The baseline is of the suite {}, this measurement of {}. Compare like with like.",
                printable(suite_of(old), 40), suite_of(now));
  }
  BaselineComparison out{.fail_over = fail_over};
  const std::vector<Figure> before = figures_of(old);
  for (const Figure& figure : figures_of(now)) {
    const auto same = std::ranges::find(before, figure.name, &Figure::name);
    if (same == before.end()) continue;
    out.figures.push_back(compared(*same, figure, fail_over));
    const ComparedFigure& made = out.figures.back();
    if (made.change == Change::kWorse)
      out.failures.push_back(fmt::format("{}: {:.1f}% worse, and at least {:.1f}% by the intervals.",
                                         made.name, 100 * (1 - made.speed), 100 * (1 - made.high)));
  }
  compare_places(old, now, out.differences);
  compare_quality(old, now, out, fail_over >= 0);
  return out;
}

std::string to_text(const BaselineComparison& comparison) {
  std::string out = fmt::format("{:<34}{:>12}{:>12}  times as good (interval)\n", "", "baseline", "now");
  for (const ComparedFigure& figure : comparison.figures) {
    const char* mark = figure.change == Change::kWorse     ? "  WORSE"
                       : figure.change == Change::kPerhaps ? "  worse?"
                                                           : "";
    out += fmt::format("{:<34}{:>12.5g}{:>12.5g}  {:.3f} ({:.3f}..{:.3f}){}\n", printable(figure.name, 34),
                       figure.old_median, figure.median, figure.speed, figure.low, figure.high, mark);
  }
  for (const std::string& line : comparison.differences) out += "note: " + line + "\n";
  for (const std::string& line : comparison.failures) out += "WORSE: " + line + "\n";
  return out;
}

Json to_json(const BaselineComparison& comparison) {
  Json figures = Json::array();
  for (const ComparedFigure& figure : comparison.figures) {
    static constexpr const char* kNames[] = {"none", "perhaps worse", "worse"};
    figures.push_back({{"name", figure.name},
                       {"baseline", figure.old_median},
                       {"now", figure.median},
                       {"times_as_good", figure.speed},
                       {"low", figure.low},
                       {"high", figure.high},
                       {"certain", figure.certainly_better()  ? "better"
                                   : figure.certainly_worse() ? "worse"
                                                              : "no"},
                       {"change", kNames[static_cast<std::size_t>(figure.change)]}});
  }
  return {{"figures", std::move(figures)},
          {"differences", comparison.differences},
          {"failures", comparison.failures},
          {"fail_over", comparison.fail_over >= 0 ? Json(comparison.fail_over) : Json(nullptr)}};
}

Result<double> parse_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto read = system::read_double(digits.data(), digits.data() + digits.size(), value);
  const double share = value / (percent ? 100 : 1);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || !(share >= 0 && share < 1)) {
    return fail(ErrorCode::kUsage, "The share {} is not between 0% and 100%. Write it such as 5%.",
                printable(text, 20));
  }
  return share;
}

}  // namespace doppler::bench
