#include "formats/hf_config.h"

#include <limits>

#include "base/json.h"
#include "testing.h"

namespace doppler {
namespace {

Json parsed_config(std::string_view text) {
  auto json = parse_json(text, "The test's text");
  EXPECT_TRUE(json.has_value());
  return json ? *json : Json::object();
}

// The value of a getter that must not fail.
template <typename T>
std::optional<T> value_of(const Result<std::optional<T>>& result) {
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(std::nullopt);
}

TEST(ConfigReader, ReadsEveryKindOfValue) {
  const Json json =
      parsed_config(R"({"layers": 4, "eps": 1e-6, "tied": true, "type": "gemma3", "stops": [1, 106],
                              "kinds": ["full", "sliding"], "factors": [1, 2.5], "whole": 8.0})");
  const ConfigReader config(json, "config.json");
  EXPECT_EQ(value_of(config.get_uint("layers")), std::optional(std::uint64_t{4}));
  EXPECT_EQ(value_of(config.get_uint("whole")), std::optional(std::uint64_t{8}));
  EXPECT_EQ(value_of(config.get_number("eps")), std::optional(1e-6));
  EXPECT_EQ(value_of(config.get_number("layers")), std::optional(4.0));
  EXPECT_EQ(value_of(config.get_bool("tied")), std::optional(true));
  EXPECT_EQ(value_of(config.get_string("type")), std::optional<std::string>("gemma3"));
  EXPECT_EQ(value_of(config.get_uints("stops")), std::optional(std::vector<std::uint64_t>{1, 106}));
  EXPECT_EQ(value_of(config.get_strings("kinds")),
            std::optional(std::vector<std::string>{"full", "sliding"}));
  EXPECT_EQ(value_of(config.get_numbers("factors")), std::optional(std::vector<double>{1, 2.5}));
}

TEST(ConfigReader, AbsentAndNullAreNothing) {
  const Json json = parsed_config(R"({"head_dim": null, "rope_scaling": {"factor": null}})");
  const ConfigReader config(json, "config.json");
  for (const char* key :
       {"head_dim", "missing", "rope_scaling.factor", "rope_scaling.none", "head_dim.deeper", ""}) {
    EXPECT_FALSE(config.has(key)) << key;
    EXPECT_EQ(value_of(config.get_uint(key)), std::optional<std::uint64_t>()) << key;
    EXPECT_EQ(value_of(config.get_strings(key)), std::optional<std::vector<std::string>>()) << key;
    ASSERT_OK_AND_ASSIGN(const auto object, config.get_object(key));
    EXPECT_FALSE(object.has_value()) << key;
  }
  EXPECT_TRUE(config.has("rope_scaling"));
}

TEST(ConfigReader, WrongTypesNameFileKeyAndValue) {
  const Json json =
      parsed_config(R"({"layers": -1, "heads": 2.5, "name": ["a", 7], "eps": "small", "huge": 1e300,
                              "tied": 1, "text_config": 3, "list": {"a": 1}})");
  const ConfigReader config(json, "config.json");
  EXPECT_ERROR(config.get_uint("layers"), "config.json: layers", "-1", "whole number");
  EXPECT_ERROR(config.get_uint("heads"), "config.json: heads", "2.5", "whole number");
  EXPECT_ERROR(config.get_uint("huge"), "config.json: huge", "1e+300");
  EXPECT_ERROR(config.get_number("eps"), "config.json: eps", "\"small\"", "finite number");
  EXPECT_ERROR(config.get_bool("tied"), "config.json: tied", " 1 ", "true or false");
  EXPECT_ERROR(config.get_string("layers"), "config.json: layers", "a string");
  EXPECT_ERROR(config.get_strings("name"), "config.json: name[1]", " 7 ", "a string");
  EXPECT_ERROR(config.get_uints("list"), "config.json: list", "an object instead of a list");
  EXPECT_ERROR(config.get_object("text_config"), "config.json: text_config", " 3 ", "an object");
  EXPECT_ERROR(config.get_uint("text_config.layers"), "config.json: text_config is 3", "an object");
}

TEST(ConfigReader, PathsReachIntoNestedObjectsAndKeepTheirSource) {
  const Json json = parsed_config(
      R"({"text_config": {"rope_parameters": {"full": {"rope_theta": 1e6}, "bad": true}}, "a.b": 5})");
  const ConfigReader config(json, "config.json");
  EXPECT_EQ(value_of(config.get_number("text_config.rope_parameters.full.rope_theta")), std::optional(1e6));
  EXPECT_EQ(value_of(config.get_uint("a.b")), std::optional(std::uint64_t{5}));
  ASSERT_OK_AND_ASSIGN(const auto text, config.get_object("text_config"));
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->where("rope_parameters.full"), "config.json: text_config.rope_parameters.full");
  EXPECT_ERROR(text->get_number("rope_parameters.bad"), "config.json: text_config.rope_parameters.bad",
               "true");
}

TEST(ConfigReader, ALongValueIsCutInTheMessage) {
  Json json = Json::object();
  json["eps"] = std::string(10000, 'x');
  const auto result = ConfigReader(json, "config.json").get_number("eps");
  ASSERT_FALSE(result.has_value());
  EXPECT_LT(result.error().message.size(), 300u);
}

TEST(ConfigReader, InfinityIsNoNumber) {
  Json json = Json::object();
  json["theta"] = std::numeric_limits<double>::infinity();
  EXPECT_ERROR(ConfigReader(json, "config.json").get_number("theta"), "config.json: theta", "finite");
}

TEST(ConfigReader, ARootThatIsNoObjectIsAnError) {
  const Json json = parsed_config("[1]");
  const ConfigReader config(json, "config.json");
  EXPECT_ERROR(config.get_uint("layers"), "config.json", "[1]", "an object");
  EXPECT_FALSE(config.has("layers"));
}

}  // namespace
}  // namespace doppler
