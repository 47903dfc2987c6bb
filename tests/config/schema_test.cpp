#include "config/schema.h"

#include <regex>

#include "config/config.h"
#include "config/presets.h"
#include "testing.h"

namespace doppler::config {
namespace {

// The part of JSON Schema that config_schema() uses, by the book. Empty, or what is wrong and where.
class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}
  std::string check(const Json& value) const { return check(root_, value, ""); }

 private:
  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  std::string check(const Json& schema, const Json& value, const std::string& at) const {
    if (schema.contains("$ref")) {
      const std::string pointer = schema["$ref"].get<std::string>().substr(1);
      return check(root_.at(Json::json_pointer(pointer)), value, at);
    }
    if (schema.contains("anyOf")) {
      for (const Json& one : schema["anyOf"])
        if (check(one, value, at).empty()) return "";
      return at + ": none of anyOf";
    }
    if (schema.contains("enum")) {
      const Json& all = schema["enum"];
      if (std::find(all.begin(), all.end(), value) == all.end()) return at + ": not in the enumeration";
    }
    if (schema.contains("type")) {
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      bool right = false;
      for (const Json& type : types) right = right || has_type(value, type);
      if (!right) return at + ": of the wrong type";
    }
    if (value.is_number() && schema.contains("minimum") && value < schema["minimum"])
      return at + ": too small";
    if (value.is_number() && schema.contains("maximum") && value > schema["maximum"])
      return at + ": too large";
    if (value.is_string() && schema.contains("pattern") &&
        !std::regex_search(value.get<std::string>(), std::regex(schema["pattern"].get<std::string>())))
      return at + ": not of the pattern";
    if (value.is_array() && schema.contains("items")) {
      for (std::size_t i = 0; i < value.size(); ++i)
        if (auto wrong = check(schema["items"], value[i], at + "/" + std::to_string(i)); !wrong.empty())
          return wrong;
    }
    return value.is_object() ? check_object(schema, value, at) : "";
  }

  std::string check_object(const Json& schema, const Json& value, const std::string& at) const {
    for (const Json& name : schema.value("required", Json::array()))
      if (!value.contains(name.get<std::string>())) return at + ": lacks " + name.get<std::string>();
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, child] : value.items()) {
      std::string wrong;
      if (properties.contains(key))
        wrong = check(properties[key], child, at + "/" + key);
      else if (schema.contains("additionalProperties") && schema["additionalProperties"] == false)
        wrong = at + "/" + key + ": unknown";
      else if (schema.contains("additionalProperties"))
        wrong = check(schema["additionalProperties"], child, at + "/" + key);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  const Json& root_;
};

TEST(Schema, EveryPresetFollowsIt) {
  const Json schema = config_schema();
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  for (const BuiltinPreset& preset : builtin_presets())
    EXPECT_EQ(Validator(schema).check(Json::parse(preset.json)), "") << preset.name;
}

TEST(Schema, DescribesEverySettingWithItsDefault) {
  const Json schema = config_schema();
  for (const SettingInfo& info : all_settings()) {
    std::string pointer(info.path);
    for (std::size_t dot; (dot = pointer.find('.')) != std::string::npos;)
      pointer.replace(dot, 1, "/properties/");
    const Json& leaf = schema.at(Json::json_pointer("/properties/" + pointer));
    EXPECT_EQ(leaf["description"], info.meaning);
    EXPECT_EQ(leaf["default"], Json::parse(info.fallback));
  }
}

TEST(Schema, AllowsAndRefusesWhatTheProgramDoes) {
  const Json schema = config_schema();
  const Validator validator(schema);
  const auto agrees = [&](const char* text, bool good) {
    EXPECT_EQ(validator.check(Json::parse(text)).empty(), good)
        << text << ": " << validator.check(Json::parse(text));
    const auto config = resolve_config({.configs = {text}, .sets = {}, .flags = {}, .folders = {}});
    EXPECT_EQ(config.has_value(), good) << text << ": " << (config ? "" : config.error().message);
  };
  agrees("{}", true);
  agrees(R"({"runtime": {"threads": 2, "backend": "cpu", "gpu": null}})", true);
  agrees(R"({"runtime": {"threads": -2}})", false);
  agrees(R"({"runtime": {"threads": 2.5}})", false);
  agrees(R"({"runtime": {"thread": 2}})", false);
  agrees(R"({"runtime": {"backend": "tpu"}})", false);
  agrees(R"({"runtime": {"gpu": {"submitTokens": 65}}})", false);
  agrees(R"({"runtime": {"inference": {"sampling": {"topP": 1.5}}}})", false);
  agrees(R"({"runtime": {"inference": {"sampling": {"topP": null, "logitBias": {"5": -1.5}}}}})", true);
  agrees(R"({"runtime": {"debug": {"debugLayers": "0-5"}}})", true);
  agrees(R"({"runtime": {"debug": {"debugLayers": "a"}}})", false);
  agrees(R"({"runtime": {"debug": {"probes": [{"stage": "logits", "tokens": [-1], "dims": [1]}]}}})", true);
  agrees(R"({"runtime": {"debug": {"probes": [{"tokens": [-1]}]}}})", false);
  agrees(R"({"runtime": {"debug": {"probes": [{"stage": "logits", "dims": [-1]}]}}})", false);
  agrees(R"({"runtime": {"inference": {"generation": {"maxTokens": 3}}}})", true);
}

}  // namespace
}  // namespace doppler::config
