#include "base/layout.h"

#include "testing.h"

namespace doppler {
namespace {

TEST(Layout, ColumnsAreThoseOfATerminal) {
  EXPECT_EQ(text_columns("abc"), 3u);
  EXPECT_EQ(text_columns("é"), 1u);
  EXPECT_EQ(text_columns("e\u0301"), 1u);  // a mark of its own
  EXPECT_EQ(text_columns("漢字"), 4u);
  EXPECT_EQ(text_columns("\033[31mred\033[0m"), 3u);
}

TEST(Wrap, BreaksBetweenWordsAndIndentsWhatFollows) {
  EXPECT_EQ(wrap("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrap("one two three", 13), "one two three");
  EXPECT_EQ(wrap("  a b\n\nc", 20), "  a b\n\nc");  // lines and their beginnings stay
  EXPECT_EQ(wrap("a    b", 20), "a    b");          // and so do gaps
  EXPECT_EQ(wrap("", 5), "");
}

TEST(Wrap, DividesWhatIsLongerThanALineOnlyAfterAMark) {
  EXPECT_EQ(wrap("runtime.shared.debug", 10), "runtime.\nshared.\ndebug");
  EXPECT_EQ(wrap("say runtime.shared", 10), "say\nruntime.\nshared");
  EXPECT_EQ(wrap("unbreakable", 5), "unbreakable");
  EXPECT_EQ(wrap("2,5,9,11", 4), "2,5,\n9,11");
  EXPECT_EQ(wrap("a_name.of_two", 10), "a_name.\nof_two");
}

TEST(Wrap, ColoursTakeNoRoom) {
  EXPECT_EQ(wrap("\033[31mone\033[0m two three", 8), "\033[31mone\033[0m two\nthree");
}

TEST(Cut, EndsAfterAWordWithAMark) {
  EXPECT_EQ(cut("one two three", 20), "one two three");
  EXPECT_EQ(cut("one two three", 10), "one two…");
  EXPECT_EQ(cut("unbreakable", 5), "unbr…");
}

Table sample() {
  using enum Column::Kind;
  Table table({{"name"}, {"ms", kNumber}, {"what it does", kText}});
  table.add({"alpha", "1.5", "the first of all, with some words that tell what it is"});
  table.add({"be", "12.25"});
  return table;
}

TEST(Table, StandsInColumnsWhereThereIsRoom) {
  EXPECT_EQ(sample().text(100),
            "name      ms  what it does\n"
            "alpha    1.5  the first of all, with some words that tell what it is\n"
            "be     12.25\n");
}

TEST(Table, WrapsItsWords) {
  EXPECT_EQ(sample().text(44),
            "name      ms  what it does\n"
            "alpha    1.5  the first of all, with some\n"
            "              words that tell what it is\n"
            "be     12.25\n");
}

TEST(Table, BecomesParagraphsWhereColumnsDoNotFit) {
  EXPECT_EQ(sample().text(30),
            "alpha\n"
            "  ms 1.5\n"
            "  the first of all, with some\n"
            "    words that tell what it is\n"
            "be\n"
            "  ms 12.25\n");
}

TEST(Table, WithoutTitlesHasNoFirstLineAndMayBeIndented) {
  Table table({{""}, {"", Column::Kind::kText}});
  EXPECT_EQ(table.text(80), "");
  table.add({"a", "b"});
  EXPECT_EQ(table.text(80, 2), "  a  b\n");
}

// Whatever the width, no line is longer, unless one word alone is, and no word is lost.
TEST(Table, FitsEveryWidth) {
  for (std::size_t width = 20; width <= 100; ++width) {
    const std::string text = sample().text(width);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      EXPECT_LE(text_columns(text.substr(at, end - at)), width) << text;
      at = end + 1;
    }
    for (const char* word : {"alpha", "1.5", "words", "12.25"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace doppler
