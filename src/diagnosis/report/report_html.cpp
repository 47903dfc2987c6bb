#include "diagnosis/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "diagnosis/compare/compare_json.h"
#include "diagnosis/report/report_files.h"
#include "diagnosis/report/report_text.h"
#include "page/page.h"

namespace doppler::diagnosis {
namespace {

using page::number;

constexpr int kNoError = -100, kInfinite = 127;
// A screen's width of cells; and so many numbers in all that a page stays below half a megabyte.
constexpr std::size_t kMostBins = 64, kMostNumbers = 80'000;

int token_code(double error, double tolerance) {
  if (error == 0) return kNoError;
  if (!std::isfinite(error) || !(tolerance > 0)) return kInfinite;
  return static_cast<int>(std::lround(std::clamp(10 * std::log10(error / tolerance), -99.0, 126.0)));
}

std::string_view short_name(const StageComparison& c) {
  return std::string_view(c.key).substr(c.key.rfind('.') == std::string::npos ? 0 : c.key.rfind('.') + 1);
}

Json op_json(const std::optional<OpError>& op) {
  if (!op) return nullptr;
  Json json = {{"error", number(op->error)},
               {"allowed", number(op->allowed)},
               {"excess", number(op->excess)},
               {"token", op->token},
               {"agrees", op->agrees()}};
  if (op->unrecorded > 0) json["unrecorded"] = op->unrecorded;
  return json;
}

// One code for each bin of tokens: the worst of them.
Json token_codes(const StageComparison& c, std::size_t bin) {
  Json codes = Json::array();
  for (std::size_t begin = 0; begin < c.token_errors.size(); begin += bin) {
    int worst = kNoError;
    for (std::size_t t = begin; t < std::min(begin + bin, c.token_errors.size()); ++t)
      worst = std::max(worst, token_code(c.token_errors[t], c.tolerance));
    codes.push_back(worst);
  }
  return codes;
}

Json stage_json(const StageComparison& c, std::size_t bin) {
  Json json = {{"key", c.key},
               {"stage", short_name(c)},
               {"layer", c.layer >= 0 ? Json(c.layer) : Json(nullptr)},
               {"phase", c.key == "decode_logits" ? "decode" : "prefill"},
               {"computed", c.stage != Stage::kNone},
               {"agrees", c.agrees()},
               {"why", name_of(c.disagreement())},
               {"error", number(c.error)},
               {"tolerance", number(c.tolerance)},
               {"largest", number(c.largest)},
               {"worst_token", c.worst_token},
               {"first_bad_token", c.first_bad_token ? Json(*c.first_bad_token) : Json(nullptr)}};
  if (!c.token_errors.empty() && c.key != "decode_logits") json["tokens"] = token_codes(c, bin);
  if (c.execution) json["execution"] = op_json(c.execution);
  if (c.description) json["description"] = op_json(c.description);
  if (c.inherited) json["inherited"] = number(*c.inherited);
  if (!c.untold.empty()) json["untold"] = c.untold;
  if (c.explained) json["explained"] = true;
  return json;
}

// Whose values stand beside each other under "Failing values": the truth, and what was held against it.
struct ValueSides {
  const std::vector<WrongValue>& worst;
  bool exchanged;  // the truth is what `worst` calls found
  std::string_view truth, result, from;
};

// The values that say most about the first divergence: those of the op alone where it is to blame. From the
// recording's inputs the oracle computes what this model's description leads to; the truth is what was
// recorded.
ValueSides value_sides(const StageComparison& c) {
  switch (c.disagreement()) {
    case Disagreement::kExecution:
      return {c.execution->worst, false, "plain loops", "this run",
              " Plain loops were given what this run's op really read."};
    case Disagreement::kDescription:
      return {c.description->worst, true, "recorded", "this model",
              " This model's description and weights were given the recording's own inputs."};
    default:
      return {c.worst, false, "recorded", "this run", ""};
  }
}

void add_values(Json& json, const StageComparison& c) {
  const ValueSides sides = value_sides(c);
  json["values_of"] = fmt::format("The values of {} that are farthest off.{}", describe_place(c), sides.from);
  json["value_names"] = {sides.truth, sides.result};
  json["values"] = Json::array();
  for (const WrongValue& value : sides.worst) {
    json["values"].push_back({{"token", value.token},
                              {"index", value.index},
                              {"expected", number(sides.exchanged ? value.found : value.expected)},
                              {"found", number(sides.exchanged ? value.expected : value.found)}});
  }
}

// A histogram of a stage's errors over the allowed one, in factors of 8, and the count of exactly equal
// values.
Json histogram_json(const StageComparison& c) {
  constexpr int kDoublings = 3, kBias = 127;  // 8 is nearly a power of ten; float32's bias
  constexpr int kLeast = -8, kGreatest = 12;  // what lies beyond counts as that
  std::map<int, std::uint64_t> counts;
  for (std::size_t i = 1; i < c.spread.size(); ++i) {
    if (c.spread[i] == 0) continue;
    const double factor = std::floor((static_cast<double>(i) - kBias) / kDoublings);
    counts[std::clamp(static_cast<int>(factor), kLeast, kGreatest)] += c.spread[i];
  }
  Json json = {{"key", c.key}, {"equal", c.spread.front()}, {"from", 0}, {"counts", Json::array()}};
  if (counts.empty()) return json;
  const int from = std::min(counts.begin()->first, -1), to = std::max(counts.rbegin()->first, 0);
  json["from"] = from;
  for (int factor = from; factor <= to; ++factor) json["counts"].push_back(counts[factor]);
  return json;
}

page::Head head_of(const Comparison& comparison, const ReportContext& context) {
  const std::vector<std::string> verdict = verdict_of(comparison);
  int layers = 0;
  for (const StageComparison& c : comparison.stages) layers = std::max(layers, c.layer + 1);
  page::Head head{
      .title = page::last_part(context.model) + " against " + page::last_part(context.reference),
      .outcome = comparison.agrees() ? page::Outcome::kGood : page::Outcome::kBad,
      .word = comparison.agrees() ? "Agrees" : "Differs",
      .verdict = verdict.front(),
      .more = {verdict.begin() + 1, verdict.end()},
      .facts = {{"Model", context.model},
                {"Reference", context.reference},
                {"Made by", comparison.expected},
                {"Backend", comparison.found},
                {"Prompt", fmt::format("{} tokens", context.prompt_ids.size())},
                {"Layers", std::to_string(layers)},
                {"Stages", std::to_string(comparison.stages.size() + (comparison.decode ? 1 : 0))}}};
  if (context.findings.is_array() && !context.findings.empty()) {
    const Json& first = context.findings.front();
    head.more.insert(head.more.begin(), fmt::format("Likely cause: {}. {}", first.value("cause", ""),
                                                    first.value("repair", "")));
  }
  if (comparison.decode_steps > 0) {
    head.facts.emplace_back("Chosen tokens equal",
                            fmt::format("{} of {}", comparison.top1_equal, comparison.decode_steps));
  }
  return head;
}

}  // namespace

Json order_json(const std::vector<std::string_view>& names) {
  std::map<std::pair<int, std::string>, std::string> rows;
  for (const std::string_view name : names) {
    const auto known = stage_from_name(name);
    int rank = static_cast<int>(known.value_or(Stage::kCount));
    std::string meaning(known ? stage_info(*known).meaning : "");
    if (name == "qkv_proj") rank = static_cast<int>(Stage::kQProj), meaning = "q, k and v side by side";
    if (name == "ffn_gate_up") rank = static_cast<int>(Stage::kFfnGate), meaning = "gate and up side by side";
    rows.emplace(std::pair(rank, std::string(name)), std::move(meaning));
  }
  Json order = Json::array();
  for (const auto& [row, meaning] : rows) order.push_back({{"stage", row.second}, {"meaning", meaning}});
  return order;
}

Json report_json(const Comparison& comparison, const ReportContext& context) {
  std::vector<const StageComparison*> stages;
  for (const StageComparison& c : comparison.stages) stages.push_back(&c);
  if (comparison.decode) stages.push_back(&*comparison.decode);
  std::size_t tokens = context.prompt_ids.size();
  const std::size_t bins =
      std::clamp<std::size_t>(kMostNumbers / std::max<std::size_t>(1, stages.size()), 1, kMostBins);
  const std::size_t bin = std::max<std::size_t>(1, (tokens + bins - 1) / bins);

  std::vector<std::string_view> names;
  for (const StageComparison* c : stages) names.push_back(short_name(*c));
  Json json = {{"model", context.model},
               {"reference", context.reference},
               {"backend", comparison.found},
               {"producer", comparison.expected},
               {"agrees", comparison.agrees()},
               {"tokens", tokens},
               {"bin", bin},
               {"decode", {{"steps", comparison.decode_steps}, {"top1_equal", comparison.top1_equal}}},
               {"order", order_json(names)},
               {"first", nullptr},
               {"worst", nullptr},
               {"stages", Json::array()}};
  if (bin == 1) json["prompt"] = context.prompt_ids;
  if (bin == 1 && !context.pieces.empty()) json["pieces"] = context.pieces;
  if (context.findings.is_array()) json["findings"] = context.findings;
  if (!context.looked.empty()) json["looked"] = context.looked;
  const StageComparison* first = comparison.first_divergence();
  const StageComparison* worst = nullptr;
  int layers = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageComparison& c = *stages[i];
    json["stages"].push_back(stage_json(c, bin));
    if (&c == first) json["first"] = i;
    if (worst == nullptr || excess_of(c) > excess_of(*worst)) worst = &c, json["worst"] = i;
    layers = std::max(layers, c.layer + 1);
  }
  json["layers"] = layers;
  if (worst != nullptr && !worst->spread.empty()) json["histogram"] = histogram_json(*worst);
  if (first != nullptr) add_values(json, *first);
  return json;
}

std::string report_html(const Comparison& comparison, const ReportContext& context) {
  const auto text = [](std::string_view name) { return page::find_file(report_files(), name); };
  return page::html({.kind = "comparison",
                     .body = text("compare.html"),
                     .scripts = {text("errors.js"), text("compare_grids.js"), text("compare_charts.js"),
                                 text("compare.js")}},
                    head_of(comparison, context), report_json(comparison, context));
}

}  // namespace doppler::diagnosis
