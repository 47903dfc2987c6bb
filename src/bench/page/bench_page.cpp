#include "bench/page/bench_page.h"

#include <fmt/format.h>

#include <array>

#include "base/json.h"
#include "base/text.h"
#include "bench/page/bench_files.h"
#include "page/page.h"

namespace doppler::bench {
namespace {

// What lies at a path of keys; null if nothing does.
const Json& member(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNothing;
  const Json* here = &json;
  for (const char* key : path) {
    const auto found = here->is_object() ? here->find(key) : here->end();
    if (!here->is_object() || found == here->end()) return kNothing;
    here = &*found;
  }
  return *here;
}

double value_of(const Json& json) {
  return json.is_number() ? json.get<double>() : 0;
}

std::string words_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.is_number() ? json.dump() : std::string();
}

std::vector<std::string> sentences_of(const Json& list) {
  std::vector<std::string> out;
  if (!list.is_array()) return out;
  for (const Json& sentence : list) out.push_back(words_of(sentence));
  return out;
}

// Three digits, without an exponent where a reader expects none.
std::string three(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string seconds_text(double seconds) {
  return seconds >= 1 ? three(seconds) + " s" : three(seconds * 1e3) + " ms";
}

// " after 2000", or nothing for an empty cache.
std::string after_tokens(const Json& json) {
  const double depth = value_of(member(json, {"depth"}));
  return depth > 0 ? fmt::format(" after {:.0f}", depth) : "";
}

// What was measured, where nothing is there to hold it against.
struct Measured {
  std::string word, verdict;
};

Measured of_inference(const Json& json) {
  const Json& lines = member(json, {"decode"});
  const Json first = lines.is_array() && !lines.empty() ? lines[0] : Json();
  const Json& rate = member(first, {"tokens_per_second"});
  const double share = value_of(member(first, {"share_of_limit"}));
  std::string verdict = fmt::format(
      "It generates {} tokens a second{} ({} to {} with 95% confidence){}.",
      three(value_of(member(rate, {"median"}))), after_tokens(first), three(value_of(member(rate, {"low"}))),
      three(value_of(member(rate, {"high"}))),
      share > 0 && share <= 1 ? fmt::format(", {:.0f}% of what the memory's bandwidth allows", 100 * share)
                              : "");  // beyond 1 the weights come from a cache
  verdict += fmt::format(" The first token of a prompt of {:.0f} comes after {}.",
                         value_of(member(json, {"time_to_first_token", "prompt_tokens"})),
                         seconds_text(value_of(member(json, {"time_to_first_token", "seconds", "median"}))));
  return {three(value_of(member(rate, {"median"}))) + " tokens a second", verdict};
}

Measured of_loading(const Json& json) {
  const double cold = value_of(member(json, {"cold", "first_token_seconds", "median"}));
  const double warm = value_of(member(json, {"warm", "first_token_seconds", "median"}));
  if (cold > 0) {
    return {seconds_text(cold) + " to a first token",
            fmt::format("That is with the files read from the disk; with them in memory it takes {}.",
                        seconds_text(warm))};
  }
  return {seconds_text(warm) + " to a first token",
          fmt::format("That is with the files in memory. It was not measured from the disk: {}.",
                      words_of(member(json, {"why_no_cold"})))};
}

Measured of_kernels(const Json& json) {
  const double seconds = value_of(member(json, {"seconds"}));
  return {seconds_text(seconds) + " of kernels a token",
          fmt::format("If nothing came between them, they would generate {} tokens a second{}.",
                      three(seconds > 0 ? 1 / seconds : 0), after_tokens(json))};
}

Measured of_perplexity(const Json& json) {
  return {"Perplexity " + three(value_of(member(json, {"perplexity"}))),
          fmt::format("The loss on {} is {:.4f} nats a token, give or take {:.4f}.",
                      page::last_part(words_of(member(json, {"text"}))), value_of(member(json, {"loss"})),
                      value_of(member(json, {"standard_error"})))};
}

struct Suite {
  std::string_view name;
  Measured (*tell)(const Json& json);
};
constexpr std::array<Suite, 4> kSuites = {{{"inference", of_inference},
                                           {"loading", of_loading},
                                           {"kernels", of_kernels},
                                           {"perplexity", of_perplexity}}};

// How many figures of a comparison are certainly so.
std::size_t certainly(const Json& comparison, std::string_view what) {
  std::size_t count = 0;
  for (const Json& figure : member(comparison, {"figures"})) count += member(figure, {"certain"}) == what;
  return count;
}

// The verdict of a comparison with a baseline: it fails, or how much is certainly better and worse.
void judge(const Json& comparison, page::Head& head) {
  const std::vector<std::string> failures = sentences_of(member(comparison, {"failures"}));
  const std::size_t better = certainly(comparison, "better"), worse = certainly(comparison, "worse");
  const std::string others =
      fmt::format("{} certainly better, {} certainly worse, {} within noise.", counted(better, "figure"),
                  worse, member(comparison, {"figures"}).size() - better - worse);
  head.verdict = others;
  if (!failures.empty()) {
    head.outcome = page::Outcome::kBad;
    head.word = "Worse than the baseline";
    head.verdict = failures.front();
    head.more.assign(failures.begin() + 1, failures.end());
    head.more.push_back(others);
  } else if (const Json& share = member(comparison, {"fail_over"}); share.is_number()) {
    head.outcome = page::Outcome::kGood;
    head.word = "No worse than the baseline";
    head.verdict = fmt::format("Nothing is certainly worse by more than {:.3g}%.", 100 * value_of(share));
    head.more.push_back(others);
  } else {
    head.outcome = better > 0 && worse == 0 ? page::Outcome::kGood : page::Outcome::kNote;
    head.word = better > 0 && worse == 0   ? "Better than the baseline"
                : worse > 0 && better == 0 ? "Worse than the baseline"
                : worse > 0                ? "Better and worse than the baseline"
                                           : "As the baseline";
  }
}

page::Head head_of_bench(const Json& json) {
  const auto words = [&](std::initializer_list<const char*> path) { return words_of(member(json, path)); };
  page::Head head{.title = page::last_part(words({"model"})),
                  .facts = {{"Model", words({"model"})},
                            {"Suite", words({"suite"})},
                            {"Backend", words({"backend"})},
                            {"Device", words({"device", "name"})},
                            {"Driver", words({"device", "driver"})},
                            {"Processor", words({"cpu"})},
                            {"Threads", words({"threads"})},
                            {"KV cache", words({"kv_type"})},
                            {"Date", words({"date"})}}};
  const std::string suite = words({"suite"});
  for (const Suite& one : kSuites) {
    if (one.name != suite) continue;
    const Measured measured = one.tell(json);
    head.word = measured.word, head.verdict = measured.verdict;
  }
  const std::string measured = head.verdict;
  if (const Json& comparison = member(json, {"comparison"}); comparison.is_object()) {
    judge(comparison, head);
    head.more.push_back(measured);
  }
  const Json& ok = member(json, {"quality", "ok"});
  if (ok == false) {
    head.outcome = page::Outcome::kBad;
    head.word = "The answers are wrong";
    head.more.insert(head.more.begin(), head.verdict);
    head.verdict = words({"quality", "why"}) + ": a fast wrong answer is no result.";
  } else if (ok == true) {
    head.more.emplace_back(
        "The answers are well: generating and reading the same text choose the same tokens.");
  } else if (suite == "inference") {
    head.more.push_back("The answers were not checked: " + words({"quality", "why"}) + ".");
  }
  for (const Json& fallback : member(json, {"fallbacks"})) {
    head.more.push_back(
        fmt::format("{} {}", words_of(member(fallback, {"what"})), words_of(member(fallback, {"why"}))));
  }
  return head;
}

}  // namespace

std::string bench_html(const Json& measured) {
  const auto text = [](std::string_view name) { return page::find_file(bench_files(), name); };
  return page::html(
      {.kind = "measurement", .body = text("bench.html"), .scripts = {text("figures.js"), text("bench.js")}},
      head_of_bench(measured), measured);
}

}  // namespace doppler::bench
