#include "diagnosis/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <span>

#include "base/html.h"
#include "base/json.h"
#include "base/sha256.h"
#include "diagnosis/compare/compare_json.h"
#include "diagnosis/report/report_files.h"
#include "diagnosis/report/report_text.h"

namespace doppler::diagnosis {
namespace {

constexpr int kNoError = -100, kInfinite = 127;
// A screen's width of cells; and so many numbers in all that a page stays below half a megabyte.
constexpr std::size_t kMostBins = 64, kMostNumbers = 80'000;

// Four digits: more than a reader compares, in a third of the bytes. JSON has no infinity: null.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.3e}", value).c_str(), nullptr);
}

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
  return {{"error", number(op->error)},
          {"allowed", number(op->allowed)},
          {"excess", number(op->excess)},
          {"token", op->token},
          {"agrees", op->agrees()}};
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

// The stages that the comparison has, as a step computes them, with their meanings.
Json order_json(const std::vector<const StageComparison*>& stages) {
  std::map<std::pair<int, std::string>, std::string> rows;
  for (const StageComparison* c : stages) {
    const std::string name(short_name(*c));
    const auto known = stage_from_name(name);
    int rank = static_cast<int>(known.value_or(Stage::kCount));
    std::string meaning(known ? stage_info(*known).meaning : "");
    if (name == "qkv_proj") rank = static_cast<int>(Stage::kQProj), meaning = "q, k and v side by side";
    if (name == "ffn_gate_up") rank = static_cast<int>(Stage::kFfnGate), meaning = "gate and up side by side";
    rows.emplace(std::pair(rank, name), std::move(meaning));
  }
  Json order = Json::array();
  for (const auto& [row, meaning] : rows) order.push_back({{"stage", row.second}, {"meaning", meaning}});
  return order;
}

// The values that say most about the first divergence: those of the op alone where it is to blame.
void add_values(Json& json, const StageComparison& c) {
  const Disagreement why = c.disagreement();
  const bool ran = why == Disagreement::kExecution, described = why == Disagreement::kDescription;
  const std::vector<WrongValue>& worst = ran         ? c.execution->worst
                                         : described ? c.description->worst
                                                     : c.worst;
  json["values_of"] = fmt::format(
      "The values of {} that are farthest off{}.", describe_place(c),
      ran         ? ". Expected is what the oracle computes from this run's own inputs"
      : described ? ". Expected is what the oracle computes from the recording's inputs, found what "
                    "was recorded"
                  : "");
  json["values"] = Json::array();
  for (const WrongValue& value : worst) {
    json["values"].push_back({{"token", value.token},
                              {"index", value.index},
                              {"expected", number(value.expected)},
                              {"found", number(value.found)}});
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

// JSON that may stand inside a script element: no character there can end it or open a comment. Inside
// JSON, these characters only occur in strings.
std::string script_json(const Json& json) {
  std::string safe;
  for (const char c : dump_json(json)) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      safe += c;
  }
  return safe;
}

// The text with every {mark} of `marks` replaced, in one pass: replacements are not searched for marks.
std::string filled(std::string_view text, const std::map<std::string, std::string, std::less<>>& marks) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    const auto mark = marks.find(text.substr(open + 1, close - open - 1));
    const std::size_t keep = mark == marks.end() ? open + 1 : open;
    out += text.substr(0, keep);
    if (mark != marks.end()) out += mark->second;
    text.remove_prefix(mark == marks.end() ? keep : close + 1);
  }
  return out += text;
}

// The SHA-256 of a text in base64, as a page's policy names the one script that may run there. Nothing else
// can, whatever text came into the page.
std::string policy_hash(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = sha256_hex(std::as_bytes(std::span(text)));
  const auto bits_at = [&](std::size_t nibble) {  // beyond the end: zeros
    const std::size_t value =
        nibble < hex.size() ? std::string_view("0123456789abcdef").find(hex[nibble]) : 0;
    return static_cast<unsigned>(value);
  };
  std::string base64;
  for (std::size_t i = 0; i < hex.size(); i += 3) {  // three hexadecimal digits are two of base64
    const unsigned bits = bits_at(i) << 8 | bits_at(i + 1) << 4 | bits_at(i + 2);
    base64 += kDigits[bits >> 6];
    base64 += kDigits[bits & 63];
  }
  base64.back() = '=';  // 256 bits are 42 digits and four bits: the 43rd digit, and padding
  return base64;
}

std::string text_at(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// "gemma3" of "models/gemma3/": a title has no room for paths.
std::string last_part(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
}

}  // namespace

Json report_json(const Comparison& comparison, const ReportContext& context) {
  std::vector<const StageComparison*> stages;
  for (const StageComparison& c : comparison.stages) stages.push_back(&c);
  if (comparison.decode) stages.push_back(&*comparison.decode);
  std::size_t tokens = context.prompt_ids.size();
  const std::size_t bins =
      std::clamp<std::size_t>(kMostNumbers / std::max<std::size_t>(1, stages.size()), 1, kMostBins);
  const std::size_t bin = std::max<std::size_t>(1, (tokens + bins - 1) / bins);

  const std::vector<std::string> verdict = verdict_of(comparison);
  Json json = {{"model", context.model},
               {"reference", context.reference},
               {"backend", comparison.found},
               {"producer", comparison.expected},
               {"agrees", comparison.agrees()},
               {"verdict", verdict.front()},
               {"more", std::vector(verdict.begin() + 1, verdict.end())},
               {"tokens", tokens},
               {"bin", bin},
               {"decode", {{"steps", comparison.decode_steps}, {"top1_equal", comparison.top1_equal}}},
               {"order", order_json(stages)},
               {"first", nullptr},
               {"worst", nullptr},
               {"stages", Json::array()}};
  if (bin == 1) json["prompt"] = context.prompt_ids;
  if (bin == 1 && !context.pieces.empty()) json["pieces"] = context.pieces;
  if (context.findings.is_array()) json["findings"] = context.findings;
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

std::string report_html(const Json& report) {
  std::map<std::string, std::string, std::less<>> marks;
  std::string_view page;
  for (const ReportFile& file : report_files()) {
    if (file.name == "report.html") page = file.text;
    marks.emplace(file.name, file.text);
  }
  std::string& script = marks["script"];
  for (const char* part : {"base.js", "grids.js", "charts.js", "page.js"}) script += marks[part];
  marks["script-hash"] = policy_hash(script);
  const auto agrees = report.find("agrees");
  marks["title"] = escape_html(last_part(text_at(report, "model")) + " against " +
                               last_part(text_at(report, "reference")));
  marks["verdict"] = escape_html(text_at(report, "verdict"));
  marks["outcome"] = agrees != report.end() && *agrees == true ? "good" : "bad";
  marks["data"] = script_json(report);
  return filled(page, marks);
}

}  // namespace doppler::diagnosis
