// A measurement's page, from measurements made up here: its verdict alone and against a baseline.
#include "bench/page/bench_page.h"

#include "bench/baseline.h"
#include "page_data.h"
#include "testing.h"

namespace doppler::bench {
namespace {

Json spread_of(double median) {
  return {{"count", 3},
          {"median", median},
          {"low", median * 0.99},
          {"high", median * 1.01},
          {"min", median * 0.99},
          {"max", median * 1.01},
          {"runs", {median, median * 0.99, median * 1.01}}};
}

Json inference(double speed, const std::string& model = "models/tiny.gguf") {
  return {{"suite", "inference"},
          {"model", model},
          {"backend", "cpu"},
          {"cpu", "A chip"},
          {"threads", 2},
          {"device", nullptr},
          {"fallbacks", Json::array()},
          {"load_seconds", spread_of(0.5)},
          {"time_to_first_token", {{"prompt_tokens", 512}, {"seconds", spread_of(0.25)}}},
          {"prefill", {{"tokens", 512}, {"tokens_per_second", spread_of(2000)}}},
          {"decode", Json::array({{{"depth", 0},
                                   {"sequences", 1},
                                   {"tokens_per_second", spread_of(speed)},
                                   {"token_seconds", {{"p50", 0.01}, {"p99", 0.02}, {"each", {0.01, 0.02}}}},
                                   {"share_of_limit", 0.8}}})},
          {"quality", {{"ok", true}, {"why", ""}, {"loss", 3.0}, {"chance", 8.0}, {"ids", {1}}}}};
}

Json against(const Json& old, Json now, double fail_over) {
  now["comparison"] = to_json(compare_with_baseline(old, now, fail_over).value());
  return now;
}

bool holds(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

TEST(BenchPage, BeginsWithTheSpeed) {
  const std::string page = bench_html(inference(43.2));
  testing::expect_page_alone(page);
  EXPECT_TRUE(holds(page, "<title>tiny.gguf: 43.2 tokens a second</title>"));
  EXPECT_TRUE(holds(page, "(42.8 to 43.6 with 95% confidence), 80% of what the memory"));
  EXPECT_TRUE(holds(page, "The first token of a prompt of 512 comes after 250 ms."));
  EXPECT_EQ(testing::page_data(page)["decode"][0]["tokens_per_second"]["runs"].size(), 3);
}

TEST(BenchPage, WrongAnswersAreTheVerdictHoweverFast) {
  Json json = inference(1e6);
  json["quality"] = {{"ok", false}, {"why", "it goes on otherwise"}};
  const std::string page = bench_html(json);
  EXPECT_TRUE(holds(page, "<div id=\"verdict\" class=\"bad\">"));
  EXPECT_TRUE(holds(page, "<p class=\"word\">The answers are wrong</p>"));
}

TEST(BenchPage, TheBaselineDecidesTheVerdict) {
  const Json old = inference(100);
  EXPECT_TRUE(holds(bench_html(against(old, inference(80), 0.05)), "class=\"bad\">"));
  EXPECT_TRUE(holds(bench_html(against(old, inference(80), 0.05)), "decode @0, tok/s: 20.0% worse"));
  EXPECT_TRUE(holds(bench_html(against(old, inference(98), 0.05)), "No worse than the baseline"));
  EXPECT_TRUE(holds(bench_html(against(old, inference(120), -1)), "Better than the baseline"));
  EXPECT_TRUE(holds(bench_html(against(old, inference(80), -1)), "class=\"note\">"));
  EXPECT_TRUE(holds(bench_html(against(old, inference(101), -1)), "As the baseline"));
}

TEST(BenchPage, EverySuiteHasItsOwnFirstWords) {
  const Json times = {{"ready_seconds", spread_of(1)}, {"first_token_seconds", spread_of(2)}};
  Json loading = {
      {"suite", "loading"}, {"model", "m"}, {"cold", times}, {"warm", times}, {"why_no_cold", ""}};
  EXPECT_TRUE(holds(bench_html(loading), "2 s to a first token"));
  loading["cold"] = nullptr;
  loading["why_no_cold"] = "the system keeps it";
  EXPECT_TRUE(holds(bench_html(loading), "It was not measured from the disk: the system keeps it."));
  EXPECT_TRUE(holds(bench_html({{"suite", "kernels"}, {"model", "m"}, {"seconds", 0.004}, {"depth", 9}}),
                    "4 ms of kernels a token"));
  EXPECT_TRUE(
      holds(bench_html({{"suite", "perplexity"}, {"model", "m"}, {"perplexity", 12.5}}), "Perplexity 12.5"));
  EXPECT_TRUE(holds(bench_html(Json::object()), "</html>")) << "what is missing is left out";
}

TEST(BenchPage, TextCannotBecomeMarkup) {
  const std::string hostile = "</script><script>alert(1)</script><!--<b>\"'&\xff{data}";
  Json json = inference(10, hostile);
  json["cpu"] = json["backend"] = json["quality"]["why"] = hostile;
  json["fallbacks"] = Json::array({{{"what", hostile}, {"why", hostile}}});
  testing::expect_page_alone(bench_html(json));
}

}  // namespace
}  // namespace doppler::bench
