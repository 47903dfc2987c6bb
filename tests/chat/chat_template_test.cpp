// Chat templates: equal to python jinja2 byte for byte, and bounded whatever they try.
#include "chat/chat_template.h"

#include "base/json.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "testing.h"

namespace doppler::chat {
namespace {

using testing::data_path;
using testing::TempDir;
using testing::write_file;

// Monday, 3 February 2025, 14:05:09, as in make_cases.py.
std::tm fixed_time() {
  std::tm t{};
  t.tm_year = 125;
  t.tm_mon = 1;
  t.tm_mday = 3;
  t.tm_hour = 14;
  t.tm_min = 5;
  t.tm_sec = 9;
  t.tm_wday = 1;
  t.tm_yday = 33;
  return t;
}

Result<std::string> render(const std::string& source, const OrderedJson& variables = OrderedJson::object()) {
  auto compiled = ChatTemplate::compile(source, "test.jinja");
  if (!compiled) return std::unexpected(compiled.error());
  RenderOptions options;
  options.now = fixed_time();
  return compiled->render(variables, options);
}

TEST(ChatTemplate, RendersEveryCaseAsPythonDoes) {
  auto all = parse_ordered_json(testing::read_file(data_path("chat/cases.json")), "cases.json");
  ASSERT_OK(all);
  int texts = 0;
  for (const OrderedJson& one : (*all)["cases"]) {
    const std::string source = (*all)["templates"][one["template"].get<std::size_t>()];
    const auto result = render(source, one["variables"]);
    const std::string name = one["name"];
    if (one.contains("text")) {
      EXPECT_TRUE(result.has_value()) << name << "\n" << result.error().message;
      EXPECT_EQ(result.value_or(""), one["text"].get<std::string>()) << name;
      ++texts;
    } else {
      EXPECT_FALSE(result.has_value()) << name << "\n" << *result;
      if (result || !one.contains("error")) continue;
      const std::string wanted = one["error"];
      EXPECT_NE(result.error().message.find(wanted), std::string::npos)
          << name << "\nexpected: " << wanted << "\nmessage: " << result.error().message;
    }
  }
  EXPECT_GT(texts, 200);
}

TEST(ChatTemplate, SaysWhatTheTemplateRaisesAndWhere) {
  EXPECT_ERROR(render("one\n\n{{ raise_exception('Roles must alternate') }}"), "test.jinja", "line 3",
               "Roles must alternate");
}

TEST(ChatTemplate, NamesWhatItDoesNotKnow) {
  EXPECT_ERROR(render("\n{{ 1 | foo }}"), "unknown filter \"foo\"", "line 2");
  EXPECT_ERROR(render("\n{{ 1 is foo }}"), "unknown test \"foo\"", "line 2");
  EXPECT_ERROR(render("\n{% foo %}"), "unknown statement \"foo\"", "line 2");
  EXPECT_ERROR(render("\n{{ foo() }}"), "'foo' is undefined", "line 2");
}

TEST(ChatTemplate, EndsWhatWouldNeverEnd) {
  RenderOptions options;
  options.max_steps = 100'000;
  for (const char* source : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set ns = namespace(v=[]) %}{% for i in range(999) %}{% set ns.v = [ns.v] %}{% endfor %}",
           "{{ 'a' * 999999999999 }}",
           "{{ [0] * 999999999999 }}",
           "{{ '%99999999d' % 1 }}",
           "{{ 'a'.center(99999999999) }}",
           "{{ range(999999999) | list }}",
           "{{ [[1]] | tojson(indent=99999999999) }}",
           "{{ 9 ** 9 ** 9 }}",
       }) {
    auto compiled = ChatTemplate::compile(source, "test.jinja");
    ASSERT_OK(compiled);
    const auto result = compiled->render(OrderedJson::object(), options);
    ASSERT_FALSE(result.has_value()) << source;
    EXPECT_EQ(result.error().code, ErrorCode::kLimit) << source << "\n" << result.error().message;
  }
}

TEST(ChatTemplate, RefusesDeepNesting) {
  const auto repeated = [](const std::string& part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  EXPECT_ERROR(render("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"), "nests deeper");
  EXPECT_ERROR(render("{{ " + repeated("not ", 5000) + "1 }}"), "nests deeper");
  EXPECT_ERROR(render("{{ " + repeated("-", 5000) + "1 }}"), "nests deeper");
  EXPECT_ERROR(render(repeated("{% if 1 %}", 5000)), "nests deeper");
  EXPECT_ERROR(render("{{ 1" + repeated(" + 1", 5000) + " }}"), "nests evaluations deeper");
}

TEST(ChatTemplate, KeepsBigIntegersExact) {
  ASSERT_OK_AND_ASSIGN(const auto variables, parse_ordered_json(R"({"n": 18446744073709551615})", "test"));
  ASSERT_OK_AND_ASSIGN(const std::string text, render("{{ n }} {{ n + 1 }} {{ n | tojson }}", variables));
  EXPECT_EQ(text, "18446744073709551615 18446744073709551616 18446744073709551615");
}

TEST(ChatTemplateFiles, PrefersTheJinjaFile) {
  const TempDir folder;
  EXPECT_ERROR(load_chat_template(folder.path()), "no chat template", "tokenizer_config.json");
  write_file(folder / "tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(*load_chat_template(folder.path())->render(OrderedJson::object()), "config");
  write_file(folder / "chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(*load_chat_template(folder.path())->render(OrderedJson::object()), "json");
  write_file(folder / "chat_template.jinja", "jinja\n");
  EXPECT_EQ(*load_chat_template(folder.path())->render(OrderedJson::object()), "jinja");
}

TEST(ChatTemplateFiles, ChoosesByName) {
  const TempDir folder;
  write_file(
      folder / "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(*load_chat_template(folder.path())->render(OrderedJson::object()), "d");
  EXPECT_EQ(*load_chat_template(folder.path(), {"", true})->render(OrderedJson::object()), "t");
  EXPECT_ERROR(load_chat_template(folder.path(), {"rag", false}), "\"rag\"", "default, tool_use");
}

TEST(ChatTemplateFiles, AreKeysOfGgufFiles) {
  const TempDir folder;
  const auto write = [&](const std::vector<std::pair<std::string, std::string>>& pairs) -> Result<GgufFile> {
    DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(folder / "x.gguf"));
    for (const auto& [key, text] : pairs) DOPPLER_TRY(writer.add<std::string_view>(key, text));
    DOPPLER_TRY(writer.add<std::uint32_t>("tokenizer.chat_templates", 1));  // not needed, so not looked at
    DOPPLER_TRY(writer.write_header());
    DOPPLER_TRY(writer.finish());
    return open_gguf(folder / "x.gguf");
  };
  ASSERT_OK_AND_ASSIGN(const GgufFile file, write({{"tokenizer.chat_template.tool_use", "t"},
                                                   {"tokenizer.chat_template", "d"},
                                                   {"tokenizer.chat_template.a.b", "{{ 1 + }}"}}));
  EXPECT_EQ(*load_chat_template(file.metadata)->render(OrderedJson::object()), "d");
  EXPECT_EQ(*load_chat_template(file.metadata, {"", true})->render(OrderedJson::object()), "t");
  EXPECT_ERROR(load_chat_template(file.metadata, {"a.b", false}), "template tokenizer.chat_template.a.b has",
               "line 1");
  EXPECT_ERROR(load_chat_template(file.metadata, {"rag", false}), "\"rag\"", "a.b, default, tool_use");
  ASSERT_OK_AND_ASSIGN(const GgufFile none, write({}));
  EXPECT_ERROR(load_chat_template(none.metadata), "The GGUF file has no chat template");
}

}  // namespace
}  // namespace doppler::chat
