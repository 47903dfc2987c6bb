// The skeleton of every page: what is text stays text, and only the page's own program may run.
#include "page/page.h"

#include "page_data.h"

namespace doppler::page {
namespace {

TEST(Page, HoldsAllItNeedsAndAsksNobody) {
  const std::string made =
      html({.kind = "test", .body = "<main></main>", .scripts = {"finish();"}},
           {.title = "a model", .outcome = Outcome::kGood, .word = "Well"}, {{"stages", Json::array()}});
  testing::expect_page_alone(made);
  EXPECT_NE(made.find("<title>a model: Well</title>"), std::string::npos);
  EXPECT_NE(made.find("<div id=\"verdict\" class=\"good\">"), std::string::npos);
  EXPECT_NE(made.find("finish();</script>"), std::string::npos);
}

TEST(Page, TextCannotBecomeMarkup) {
  const std::string hostile = "</script><script>alert(1)</script><!--<b>\"'&\xff{data}{body}";
  const std::string made = html({.kind = "test", .body = "<main></main>", .scripts = {}},
                                {.title = hostile,
                                 .word = hostile,
                                 .verdict = hostile,
                                 .more = {hostile},
                                 .facts = {{hostile, hostile}}},
                                {{hostile, hostile}});
  EXPECT_EQ(made.find("<script>alert"), std::string::npos);
  EXPECT_EQ(made.find("<!--"), std::string::npos);
  EXPECT_EQ(made.find("<b>"), std::string::npos);
  const Json data = testing::page_data(made);
  ASSERT_TRUE(data.is_object());
  EXPECT_TRUE(data.begin().key().starts_with("</script><script>alert(1)"));
}

// The policy names the program that stands in the page, byte for byte; a browser runs no other.
TEST(Page, ThePolicyFollowsTheProgram) {
  const auto policy = [](std::string_view script) {
    const std::string made = html({.kind = "test", .body = "", .scripts = {script}}, {}, Json::object());
    const std::size_t at = made.find("'sha256-");
    return made.substr(at, made.find('\'', at + 1) - at);
  };
  EXPECT_EQ(policy("finish();"), policy("finish();"));
  EXPECT_NE(policy("finish();"), policy("finish() ;"));
  EXPECT_EQ(policy("finish();").size(), std::string("'sha256-").size() + 44);
}

TEST(Page, FactsWithoutAValueAreLeftOut) {
  const std::string made = html({.kind = "test", .body = "", .scripts = {}},
                                {.facts = {{"Model", "m"}, {"Source", ""}}}, Json::object());
  EXPECT_NE(made.find("<dt>Model</dt><dd>m</dd>"), std::string::npos);
  EXPECT_EQ(made.find("Source</dt>"), std::string::npos);
}

TEST(Page, TitlesHaveTheLastPartOfAPath) {
  EXPECT_EQ(last_part("models/gemma3/"), "gemma3");
  EXPECT_EQ(last_part("a.gguf"), "a.gguf");
  EXPECT_EQ(last_part("/"), "");
}

TEST(Page, NumbersHaveFourDigitsAndInfinityIsNull) {
  EXPECT_EQ(number(1.23456789), 1.235);
  EXPECT_TRUE(number(1.0 / 0.0).is_null());
}

}  // namespace
}  // namespace doppler::page
