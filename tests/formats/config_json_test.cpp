#include "formats/config_json.h"

#include "testing.h"

namespace doppler {
namespace {

TEST(ConfigJson, PythonsInfinitiesBecomeObjects) {
  ASSERT_OK_AND_ASSIGN(const Json json,
                       parse_config_json(R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN})", "The file"));
  EXPECT_EQ(json.dump(),
            R"({"a":[0.0,{"__float__":"Infinity"}],"b":{"__float__":"-Infinity"},"c":{"__float__":"NaN"}})");
}

TEST(ConfigJson, WordsInStringsAndKeysStay) {
  constexpr const char* kText = R"({"Infinity": "NaN", "a": "\"Infinity", "b": "\\"})";
  ASSERT_OK_AND_ASSIGN(const Json json, parse_config_json(kText, "The file"));
  EXPECT_EQ(json["Infinity"], "NaN");
  EXPECT_EQ(json["a"], "\"Infinity");
  ASSERT_OK_AND_ASSIGN(const Json plain, parse_json(kText, "The file"));
  EXPECT_EQ(json, plain);
}

TEST(ConfigJson, OtherWordsAreErrorsAsEver) {
  for (const char* text : {"{\"a\": Infinityx}", "{\"a\": xInfinity}", "{\"a\": --Infinity}", "{\"a\": 1NaN}",
                           "{\"a\": +Infinity}", "{Infinity: 1}", "{\"a\": Infinity.5}", "{\"a\": NaN NaN}",
                           "{\"a\": infinity}", "{\"a\": nan}"}) {
    SCOPED_TRACE(text);
    EXPECT_ERROR(parse_config_json(text, "The file"), "not valid JSON");
  }
}

TEST(ConfigJson, ErrorsNameTheFilesOwnPlaces) {
  EXPECT_ERROR(parse_config_json("{\"a\": Infinity,\n \"b\": [NaN, -Infinity, oops]}", "The file"),
               "The file", "line 2, column 24");
  EXPECT_ERROR(parse_config_json("{\"a\": Infinity", "The file"), "where it ends");
}

}  // namespace
}  // namespace doppler
