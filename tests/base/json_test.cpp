#include "base/json.h"

#include "testing.h"

namespace doppler {
namespace {

std::string nested(int depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(Json, ParsesADocument) {
  ASSERT_OK_AND_ASSIGN(const Json json,
                       parse_json("\n {\"a\": [1, -2, 0.5, true, null, \"x\\u00e9\"]} \n", "The text"));
  EXPECT_EQ(json["a"].dump(), "[1,-2,0.5,true,null,\"xé\"]");
}

TEST(Json, ErrorsNameSourceLineColumnAndText) {
  EXPECT_ERROR(parse_json("{\n  \"a\": 1,\n  \"b\": NaN\n}", "The file config.json"), "The file config.json",
               "line 3, column 8", "near \"NaN\\n}\"");
  EXPECT_ERROR(parse_json("{\"a\": Infinity}", "The text"), "line 1, column 7", "Infinity");
  EXPECT_ERROR(parse_json("{\"a\": 1,}", "The text"), "line 1, column 9", "near \"}\"");
  EXPECT_ERROR(parse_json("{\"a\": 1} x", "The text"), "line 1, column 10", "near \"x\"");
  EXPECT_ERROR(parse_json("{\"a\": \"\xff\"}", "The text"), "line 1, column 8", "\\xff");
  EXPECT_ERROR(parse_json("{\"a\": \"two\nlines\"}", "The text"), "line 1, column 11");
  EXPECT_ERROR(parse_json("{\"a\": 1e999}", "The text"), "line 1");
  EXPECT_ERROR(parse_json(std::string_view("{}\n\0{", 5), "The text"), "line 2, column 1", "\\x00");
  EXPECT_ERROR(parse_json("// comment\n{}", "The text"), "line 1, column 1");
}

TEST(Json, ATruncatedDocumentEndsTooSoon) {
  for (const char* text : {"", "  ", "{", "{\"a\"", "{\"a\":", "[1,", "\"abc", "tru"}) {
    EXPECT_ERROR(parse_json(text, "The text"), "The text is not valid JSON", "where it ends");
  }
}

TEST(Json, DepthIsBoundedWhateverTheText) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "The text").has_value());
  EXPECT_ERROR(parse_json("\n" + nested(kMaxJsonDepth + 1), "The text"), "deeper than 64",
               "line 2, column 65");
  EXPECT_ERROR(parse_json(std::string(1'000'000, '['), "The text"), "deeper than 64");
  EXPECT_ERROR(parse_json(std::string(1'000'000, '{'), "The text"), "deeper than 64");
}

TEST(Json, BracketsInStringsAreNotDepth) {
  const std::string text = "[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\\\\\"]";
  EXPECT_TRUE(parse_json(text, "The text").has_value());
}

TEST(Json, TheLastOfTwoEqualKeysCounts) {
  ASSERT_OK_AND_ASSIGN(const Json json, parse_json("{\"a\": 1, \"b\": 2, \"a\": {\"c\": 3}}", "The text"));
  EXPECT_EQ(json.dump(), "{\"a\":{\"c\":3},\"b\":2}");
}

TEST(Json, PositionsCountFromOne) {
  EXPECT_EQ(describe_position("ab\ncd\n", 0), "line 1, column 1");
  EXPECT_EQ(describe_position("ab\ncd\n", 2), "line 1, column 3");
  EXPECT_EQ(describe_position("ab\ncd\n", 3), "line 2, column 1");
  EXPECT_EQ(describe_position("ab\ncd\n", 4), "line 2, column 2");
  EXPECT_EQ(describe_position("ab\ncd\n", 99), "line 3, column 1");
}

}  // namespace
}  // namespace doppler
