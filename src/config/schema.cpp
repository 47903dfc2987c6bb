#include "config/schema.h"

#include <algorithm>

#include "base/json.h"
#include "config/setting.h"

namespace doppler::config {
namespace {

Json integers(bool negative) {
  Json item = {{"type", "integer"}};
  if (!negative) item["minimum"] = 0;
  return {{"type", "array"}, {"items", std::move(item)}};
}

// Lists of layers may be written "0,17" and "0-5".
Json layers() {
  return {{"anyOf", Json::array({integers(false),
                                 {{"type", "integer"}, {"minimum", 0}},
                                 {{"type", "string"},
                                  {"pattern", "^ *[0-9]+([-:][0-9]+)? *(, *[0-9]+([-:][0-9]+)? *)*$"}},
                                 {{"type", "null"}}})}};
}

Json probes() {
  Json fields = Json::object(), needed = Json::array();
  for (const ProbeField& field : all_probe_fields()) {
    Json schema;
    switch (field.type) {
      case ValueType::kText:
        schema = {{"type", field.needed ? Json("string") : Json::array({"string", "null"})}};
        break;
      case ValueType::kLayers:
        schema = layers();
        break;
      default:
        schema = integers(field.type == ValueType::kNumber);
        schema["type"] = {"array", "null"};
    }
    schema["description"] = field.meaning;
    fields[std::string(field.name)] = std::move(schema);
    if (field.needed) needed.push_back(field.name);
  }
  return {
      {"type", Json::array({"array", "null"})},
      {"items",
       {{"type", "object"}, {"properties", fields}, {"required", needed}, {"additionalProperties", false}}}};
}

Json number(const SettingInfo& info, const char* type) {
  Json schema = {{"type", Json::array({type, "null"})}};
  const double least = info.type == ValueType::kWhole ? std::max(info.least, 0.0) : info.least;
  if (least > -1e308) schema["minimum"] = least;
  if (info.most < 1e308) schema["maximum"] = info.most;
  return schema;
}

Json shape(const SettingInfo& info) {
  switch (info.type) {
    case ValueType::kBool:
      return {{"type", Json::array({"boolean", "null"})}};
    case ValueType::kWhole:
      return number(info, "integer");
    case ValueType::kNumber:
      return number(info, "number");
    case ValueType::kText: {
      if (info.choices.empty()) return {{"type", Json::array({"string", "null"})}};
      Json choices(info.choices);
      choices.push_back(nullptr);
      return {{"enum", std::move(choices)}};
    }
    case ValueType::kTexts:
      return {{"type", Json::array({"array", "string", "null"})}, {"items", {{"type", "string"}}}};
    case ValueType::kLayers:
      return layers();
    case ValueType::kBiases:
      return {{"type", Json::array({"object", "array", "string", "null"})},
              {"additionalProperties", {{"type", Json::array({"number", "string", "null"})}}},
              {"items", {{"type", "string"}}}};
    case ValueType::kProbes:
      return probes();
  }
  return {};
}

Json leaf(const SettingInfo& info) {
  Json schema = shape(info);
  schema["description"] = info.meaning;
  schema["default"] = Json::parse(info.fallback, nullptr, false);
  return schema;
}

Json empty_group() {
  return {{"type", Json::array({"object", "null"})},
          {"properties", Json::object()},
          {"additionalProperties", false}};
}

// The schema of the group that holds `path`, made where it is missing; `path` becomes its last part.
Json& group_of(Json& root, std::string_view& path) {
  Json* node = &root;
  for (std::size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1)) {
    Json& properties = (*node)["properties"];
    const std::string name(path.substr(0, dot));
    if (!properties.contains(name)) properties[name] = empty_group();
    node = &properties[name];
  }
  return *node;
}

void add(Json& root, std::string_view path, Json schema) {
  Json& group = group_of(root, path);
  group["properties"][std::string(path)] = std::move(schema);
}

// "runtime.shared.debug" as "#/properties/runtime/properties/shared/properties/debug".
std::string reference(std::string_view path) {
  std::string text = "#";
  for (;;) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    text += "/properties/" + std::string(path.substr(0, dot));
    if (dot == path.size()) return text;
    path.remove_prefix(dot + 1);
  }
}

Json deprecated(std::string_view now) {
  return {{"$ref", reference(now)}, {"deprecated", true}, {"description", "now " + std::string(now)}};
}

}  // namespace

Json config_schema() {
  Json root = empty_group();
  root["type"] = "object";
  root["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  root["title"] = "Doppler configuration";
  for (const char* remark : {"$schema", "id", "name", "description"})
    root["properties"][remark] = {{"type", Json::array({"string", "null"})}};
  root["properties"]["extends"] = {
      {"type", Json::array({"string", "null"})},
      {"description", "the preset, or file beside this one, that this configuration changes"}};
  for (const SettingInfo& info : all_settings()) add(root, info.path, leaf(info));
  const Json shared = root["properties"]["runtime"]["properties"]["shared"]["properties"];
  for (const auto& [name, ignored] : shared.items())
    add(root, "runtime." + name, deprecated("runtime.shared." + name));
  for (const SettingAlias& alias : all_setting_aliases()) add(root, alias.old_path, deprecated(alias.path));
  return root;
}

}  // namespace doppler::config
