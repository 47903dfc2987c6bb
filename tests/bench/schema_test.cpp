// docs/bench.schema.json says what doppler bench prints: each suite's JSON fits it, and has nothing that it
// leaves out.
#include <filesystem>

#include "base/json.h"
#include "bench/baseline.h"
#include "bench/kernels.h"
#include "bench/loading.h"
#include "bench/report.h"
#include "testing.h"

namespace doppler::bench {
namespace {

// As much of JSON Schema as that file uses. What does not fit is named by its place; empty if all does.
class Schema {
 public:
  explicit Schema(Json root) : root_(std::move(root)) {}

  std::string misfit(const Json& value) const {
    std::string all;
    for (const Json& choice : root_["oneOf"]) {
      const std::string why = misfit(value, choice, "");
      if (why.empty()) return why;
      all += why + "; ";
    }
    return all;
  }

 private:
  static bool is_type(const Json& value, const std::string& name) {
    if (name == "integer") return value.is_number_integer();
    if (name == "number") return value.is_number();
    return (name == "object" && value.is_object()) || (name == "array" && value.is_array()) ||
           (name == "string" && value.is_string()) || (name == "boolean" && value.is_boolean()) ||
           (name == "null" && value.is_null());
  }

  std::string misfit(const Json& value, const Json& schema, const std::string& place) const {
    if (schema.contains("$ref")) {
      const std::string name = schema["$ref"].get<std::string>();
      return misfit(value, root_["$defs"][name.substr(name.rfind('/') + 1)], place);
    }
    if (schema.contains("const") && value != schema["const"]) return place + " is another value";
    if (schema.contains("enum") && std::ranges::count(schema["enum"], value) == 0)
      return place + " is none of the values";
    if (schema.contains("type")) {
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      const bool fits =
          std::ranges::any_of(types, [&](const Json& t) { return is_type(value, t.get<std::string>()); });
      if (!fits) return place + " has another type";
    }
    if (value.is_array() && schema.contains("items")) {
      for (const Json& item : value)
        if (std::string why = misfit(item, schema["items"], place + "[]"); !why.empty()) return why;
    }
    if (!value.is_object()) return {};
    for (const Json& name : schema.value("required", Json::array()))
      if (!value.contains(name.get<std::string>())) return place + " lacks " + name.get<std::string>();
    for (const auto& [name, member] : value.items()) {
      if (!schema["properties"].contains(name))
        return place + " has " + name + ", which the schema does not name";
      if (std::string why = misfit(member, schema["properties"][name], place + "/" + name); !why.empty())
        return why;
    }
    return {};
  }

  const Json root_;
};

Schema schema() {
  return Schema(Json::parse(testing::read_file(testing::source_path("docs/bench.schema.json"))));
}

TEST(BenchSchema, InferenceFits) {
  const BenchOptions small{.prefill = 8,
                           .decode = 2,
                           .depths = {0},
                           .sequences = {2},
                           .repetitions = 1,
                           .loads = 1,
                           .yardstick_bytes = 1 << 20};
  for (const char* model : {"demo", "tests/data/models/llama"}) {  // with a tokenizer, and without
    ASSERT_OK_AND_ASSIGN(const BenchResult result,
                         run_bench(testing::source_path(model), {.backend = "cpu", .threads = 1}, small, {}));
    Json json = to_json(result);
    EXPECT_EQ(schema().misfit(json), "");
    ASSERT_OK_AND_ASSIGN(const BaselineComparison same, compare_with_baseline(json, json, 0.05));
    json["comparison"] = to_json(same);
    EXPECT_EQ(schema().misfit(json), "");
  }
}

TEST(BenchSchema, LoadingFits) {
  ASSERT_OK_AND_ASSIGN(const LoadingResult result,
                       measure_loading(testing::data_path("models/llama"), {.backend = "cpu"}, 1, {}));
  EXPECT_EQ(schema().misfit(to_json(result)), "");
}

TEST(BenchSchema, KernelsFit) {
  KernelTable table{.model = "m", .backend = "gpu", .device = {"a", "b", "c", "d"}};
  table.rows = {{"down", "gemv.wgsl", 4, 30e-6, 15}};
  Json json = to_json(table);
  json["fallbacks"] = Json::array({{{"what", "a"}, {"why", "b"}}});
  EXPECT_EQ(schema().misfit(json), "");
}

TEST(BenchSchema, AMisfitIsFound) {
  ASSERT_OK_AND_ASSIGN(const LoadingResult result,
                       measure_loading(testing::data_path("models/llama"), {.backend = "cpu"}, 1, {}));
  Json json = to_json(result);
  json["more"] = 1;
  EXPECT_NE(schema().misfit(json).find("has more, which the schema does not name"), std::string::npos);
  json.erase("more");
  json.erase("warm");
  EXPECT_NE(schema().misfit(json).find("lacks warm"), std::string::npos);
}

}  // namespace
}  // namespace doppler::bench
