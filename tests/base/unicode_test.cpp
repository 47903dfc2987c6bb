#include "base/unicode.h"

#include <gtest/gtest.h>

#include "testing.h"

namespace doppler {
namespace {

// One character of every category, from UnicodeData.txt: the enum counts as the library does.
TEST(Unicode, CategoriesAreTheDatabases) {
  using enum UnicodeCategory;
  const std::pair<char32_t, UnicodeCategory> expected[] = {
      {0x0378, kCn}, {U'A', kLu},   {U'a', kLl},   {0x01c5, kLt}, {0x02b0, kLm}, {0x05d0, kLo},
      {0x0300, kMn}, {0x0903, kMc}, {0x20dd, kMe}, {U'7', kNd},   {0x2160, kNl}, {0x00b2, kNo},
      {U'_', kPc},   {U'-', kPd},   {U'(', kPs},   {U')', kPe},   {0x00ab, kPi}, {0x00bb, kPf},
      {U'!', kPo},   {U'+', kSm},   {U'$', kSc},   {U'^', kSk},   {0x00a6, kSo}, {U' ', kZs},
      {0x2028, kZl}, {0x2029, kZp}, {U'\n', kCc},  {0x00ad, kCf}, {0xd800, kCs}, {0xe000, kCo}};
  for (const auto& [c, category] : expected)
    EXPECT_EQ(category_of(c), category) << "U+" << std::hex << static_cast<std::uint32_t>(c);
}

TEST(Unicode, CodePointsGoInAndOut) {
  for (const char32_t c : {U'a', U'\u00e9', U'\u20ac', U'\U0001f600', U'\U0010ffff'}) {
    std::string text = "x";
    append_utf8(text, c);
    EXPECT_EQ(last_code_point(text).value, c);
    EXPECT_EQ(first_code_point(std::string_view(text).substr(1)).length, text.size() - 1);
    EXPECT_EQ(count_code_points(text), 2u);
  }
  EXPECT_EQ(first_code_point("\xff").value, U'\ufffd');
  EXPECT_EQ(to_valid_utf8("a\xff"), "a\xef\xbf\xbd");
}

TEST(Unicode, CasesOfOneCharacter) {
  EXPECT_EQ(to_upper(U'\u00e9'), U'\u00c9');
  EXPECT_EQ(to_title(U'\u01c6'), U'\u01c5');
  std::string lower;
  for (const char32_t c : {U'A', U'\u00c9', U'\u0130'}) append_lowercase(lower, c);
  EXPECT_EQ(lower, "a\u00e9i\u0307");
}

TEST(Unicode, NormalFormsComposeAndOrderMarks) {
  ASSERT_OK_AND_ASSIGN(const std::string composed, normalize_unicode("e\u0301", UnicodeForm::kNfc));
  EXPECT_EQ(composed, "\u00e9");
  ASSERT_OK_AND_ASSIGN(const std::string apart, normalize_unicode("\ufb01", UnicodeForm::kNfkd));
  EXPECT_EQ(apart, "fi");
  // Classes 230 and 220: the lower one comes first, however long the run is.
  std::string marks = "q", ordered = "q";
  for (int i = 0; i < 1000; ++i) marks += "\u0307\u0323";
  for (int i = 0; i < 1000; ++i) ordered += "\u0323";
  for (int i = 0; i < 1000; ++i) ordered += "\u0307";
  ASSERT_OK_AND_ASSIGN(const std::string sorted, normalize_unicode(marks, UnicodeForm::kNfd));
  EXPECT_EQ(sorted, ordered);
}

TEST(Unicode, ClustersAreWholeCharacters) {
  EXPECT_EQ(grapheme_length("e\u0301x"), 3u);
  EXPECT_EQ(grapheme_length("\U0001f1e9\U0001f1ea\U0001f1eb"), 8u);  // two regional indicators are a flag
}

}  // namespace
}  // namespace doppler
