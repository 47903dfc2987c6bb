// The template step: every construct gives the text it should, every mistake its sentence.
#include "backend/gpu/shader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/embedded_shaders.h"
#include "testing.h"

namespace doppler::gpu {
namespace {

Result<std::string> expand(std::string_view text, const ShaderValues& values = {},
                           const ShaderValues& common = {}) {
  return expand_shader_text("test.wgsl", text, values, common);
}

// The value of an expression, as text.
std::string value_of(const std::string& expression, const ShaderValues& values = {}) {
  const auto result = expand("${" + expression + "}", {}, values);
  if (!result) return result.error().message;
  return result->substr(0, result->size() - 1);
}

TEST(ShaderExpression, ComputesAsCDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"1 + 2 * 3", "7"},     {"(1 + 2) * 3", "9"},   {"7 / 2 - 7 % 2", "2"},
      {"10 - 4 - 3", "3"},    {"100 / 10 / 5", "2"},  {"1 << 4 >> 2", "4"},
      {"1 + 1 << 2", "8"},    {"3 < 4", "1"},         {"4 < 4", "0"},
      {"4 <= 4", "1"},        {"5 <= 4", "0"},        {"4 > 4", "0"},
      {"5 > 4", "1"},         {"4 >= 4", "1"},        {"3 >= 4", "0"},
      {"4 == 4", "1"},        {"4 != 4", "0"},        {"4 != 5", "1"},
      {"1 + 1 == 2", "1"},    {"1 < 2 == 1", "1"},    {"1 && 2", "1"},
      {"1 && 0", "0"},        {"0 || 3", "1"},        {"0 || 0", "0"},
      {"1 || 0 && 0", "1"},   {"!0 + 1", "2"},        {"!5", "0"},
      {"!(1 == 2)", "1"},     {"-3 + 5", "2"},        {"- -3", "3"},
      {"min(3, 2 + 2)", "3"}, {"max(3, 2 + 2)", "4"}, {"min(1, max(2, 3)) * 2", "2"},
      {"5 / 0", "0"},         {"5 % 0", "0"},         {"4294967296 * 4", "17179869184"},
      {" \t 1\t+ 1 ", "2"},
  };
  for (const auto& [expression, expected] : cases) EXPECT_EQ(value_of(expression), expected) << expression;
  EXPECT_EQ(value_of("A * B_2 + a", {{"A", 2}, {"B_2", 3}, {"a", -1}}), "5");
  EXPECT_EQ(value_of("min_rows", {{"min_rows", 4}}), "4");
}

TEST(ShaderExpression, SaysWhereItIsBroken) {
  const std::pair<const char*, const char*> cases[] = {
      {"1 +", "the expression \"1 +\" is broken at character 3"},
      {"", "the expression \"\" is broken at character 0"},
      {"(1", "is broken at character 2"},
      {"1 2", "is broken at character 2"},
      {"min(1)", "is broken at character 5"},
      {"max 1", "is broken at character 4"},
      {"min(1, 2", "is broken at character 8"},
      {"1 $ 2", "is broken at character 2"},
      {"UNKNOWN + 1", "the name UNKNOWN has no value"},
  };
  for (const auto& [expression, expected] : cases) {
    const auto result = expand(fmt::format("first\n  x = ${{{}}};", expression));
    EXPECT_ERROR(result, "The shader test.wgsl is wrong in line 2: ", expected);
    if (!result) {
      EXPECT_EQ(result.error().code, ErrorCode::kInternal);
    }
  }
  EXPECT_ERROR(expand("${" + std::string(100, '(') + "1" + std::string(100, ')') + "}"),
               "is broken at character");
  EXPECT_EQ(value_of(std::string(60, '(') + "1" + std::string(60, ')')), "1");
}

TEST(ShaderTemplate, PutsValuesIntoLines) {
  EXPECT_EQ(*expand("let a = ${A}u + ${A * 2}u;\nlet b = $1;", {{"A", 3}}),
            "let a = 3u + 6u;\nlet b = $1;\n");
  // Comments and empty lines go; what is in a comment is not looked at.
  EXPECT_EQ(*expand("// ${NONE}\n\n  \nx; // y ${NONE}\n"), "x; \n");
  EXPECT_EQ(*expand(""), "");
  EXPECT_ERROR(expand("a ${1 b"), "line 1: ${ has no }");
}

TEST(ShaderTemplate, ChoosesBranches) {
  const std::string text = "#if A == 0\nzero\n#elif A == 1\none\n#elif B\nb\n#else\nelse\n#endif\nend";
  EXPECT_EQ(*expand(text, {{"A", 0}}, {{"B", 1}}), "zero\nend\n");
  EXPECT_EQ(*expand(text, {{"A", 1}}, {{"B", 1}}), "one\nend\n");
  EXPECT_EQ(*expand(text, {{"A", 2}}, {{"B", 1}}), "b\nend\n");
  EXPECT_EQ(*expand(text, {{"A", 2}}, {{"B", 0}}), "else\nend\n");
  // What is not taken is not evaluated, only matched.
  EXPECT_EQ(*expand("#if 0\n${NONE}\n#if NONE\n#else\n#endif\n#define X NONE\n#else\nyes\n#endif"), "yes\n");
  EXPECT_EQ(*expand("  #if 1\n  yes\n\t#endif\n"), "  yes\n");
  EXPECT_EQ(*expand("#if 0\nno\n#endif"), "");
  EXPECT_EQ(*expand("#if 1\r\nyes\n#endif\r\n"), "yes\n");
}

TEST(ShaderTemplate, RepeatsLoops) {
  EXPECT_EQ(*expand("#for i in 0..3\nx${i}\n#endfor"), "x0\nx1\nx2\n");
  EXPECT_EQ(*expand("#for i in N - 1..N + 1\n#for j in 0..i\n${i}${j}\n#endfor\n#endfor", {{"N", 2}}),
            "10\n20\n21\n");
  EXPECT_EQ(*expand("#for i in 3..3\nx\n#endfor\ny"), "y\n");
  EXPECT_EQ(*expand("#for i in 5..3\nx\n#endfor\ny"), "y\n");
  EXPECT_EQ(*expand("#for i in 0..2\n#if i\nodd\n#else\neven\n#endif\n#endfor"), "even\nodd\n");
  // A name is free again behind its loop, and defines inside take each value.
  EXPECT_EQ(*expand("#for i in 0..2\n#define T i * 10\n${T}\n#endfor\n#for i in 7..8\n${i}\n#endfor"),
            "0\n10\n7\n");
  EXPECT_EQ(std::ranges::count(*expand("#for i in 0..4096\nx\n#endfor"), 'x'), 4096);
}

TEST(ShaderTemplate, AddsNeighboursFirst) {
  const std::string text = "#for i in 0..N\nlet x2_${i} = ${i};\n#sum x${K}, i, N\n#endfor";
  EXPECT_EQ(*expand(text, {{"N", 1}, {"K", 2}}), "let x2_0 = 0;\nlet x2 = x2_0;\n");
  EXPECT_EQ(*expand(text, {{"N", 4}, {"K", 2}}),
            "let x2_0 = 0;\nlet x2_1 = 1;\nlet x2_2x0 = x2_0 + x2_1;\nlet x2_2 = 2;\nlet x2_3 = 3;\n"
            "let x2_2x1 = x2_2 + x2_3;\nlet x2_4x0 = x2_2x0 + x2_2x1;\nlet x2 = x2_4x0;\n");
  // 0s behind the last would not change it.
  const std::string seven = *expand(text, {{"N", 7}, {"K", 2}});
  EXPECT_TRUE(seven.ends_with("let x2_6 = 6;\nlet x2 = x2_4x0 + (x2_2x2 + (x2_6));\n")) << seven;
  EXPECT_TRUE(expand(text, {{"N", 5}, {"K", 2}})->ends_with("let x2 = x2_4x0 + (x2_4);\n"));
  EXPECT_ERROR(expand("#sum x, 1"), "line 1: #sum needs the form: #sum name, i, count");
  EXPECT_ERROR(expand("#sum x, 2, 2"), "line 1: #sum names a value beyond the last");
  EXPECT_ERROR(expand("#sum x, 0 - 1, 2"), "line 1: #sum names a value beyond the last");
  EXPECT_ERROR(expand("#sum x, A, 2"), "line 1: the name A has no value");
  EXPECT_ERROR(expand("#sum x${, 0, 1"), "line 1: ${ has no }");
}

TEST(ShaderTemplate, RefusesBrokenBlocks) {
  EXPECT_ERROR(expand("a\n#if 1\nb"), "line 2: the block has no end");
  EXPECT_ERROR(expand("#for i in 0..2\nb"), "line 1: the block has no end");
  EXPECT_ERROR(expand("#if 1\n#for i in 0..2\n#endif"), "the block has no end");
  EXPECT_ERROR(expand("#if 1\n#endfor"), "line 1: #if ends with #endfor");
  EXPECT_ERROR(expand("#for i in 0..1\n#endif"), "line 1: #for ends with #endif");
  EXPECT_ERROR(expand("x\n#endif"), "line 2: the directive is unknown or has no beginning");
  EXPECT_ERROR(expand("#else"), "line 1: the directive is unknown or has no beginning");
  EXPECT_ERROR(expand("#ifdef A"), "line 1: the directive is unknown or has no beginning");
  EXPECT_ERROR(expand("#for i 0..2\n#endfor"), "#for needs the form: #for name in first..end");
  EXPECT_ERROR(expand("#for i in 0,2\n#endfor"), "#for needs the form: #for name in first..end");
  EXPECT_ERROR(expand("#for  in 0..2\n#endfor"), "#for needs the form: #for name in first..end");
  EXPECT_ERROR(expand("#for i+1 in 0..2\n#endfor"), "#for needs the form: #for name in first..end");
  EXPECT_ERROR(expand("#for A in 0..2\n#endfor", {{"A", 1}}), "line 1: the name A is taken");
  EXPECT_ERROR(expand("#for i in 0..2\n#for i in 0..2\n#endfor\n#endfor"), "line 2: the name i is taken");
  EXPECT_ERROR(expand("#for i in 0..4097\n#endfor"), "line 1: the loop is longer than 4096");
  EXPECT_ERROR(expand("#for i in NONE..2\n#endfor"), "line 1: the name NONE has no value");
  EXPECT_ERROR(expand("#if NONE\n#endif"), "line 1: the name NONE has no value");
  EXPECT_ERROR(expand("#if 0\n#elif NONE\n#endif"), "line 2: the name NONE has no value");
  EXPECT_ERROR(expand("#if 1\n#else\n#else\n#endif"), "line 3: #else comes twice");
  EXPECT_ERROR(expand("#if 0\n#else\n#elif 1\n#endif"), "line 3: #elif comes after #else");
}

TEST(ShaderTemplate, DefinesNames) {
  EXPECT_EQ(*expand("#define A 2 + 1\n#define B A * A\n${B}"), "9\n");
  EXPECT_EQ(*expand("#define A 1\n#define A A + 1\n${A}"), "2\n");
  EXPECT_ERROR(expand("#define 1 + 2"), "line 1: #define needs a name");
  EXPECT_ERROR(expand("#define A"), "line 1: the expression \"\" is broken at character 0");
  EXPECT_ERROR(expand("#define A NONE"), "line 1: the name NONE has no value");
}

TEST(ShaderTemplate, DefinesNamesThatHaveNoValue) {
  EXPECT_EQ(*expand("#default A 3\n${A}"), "3\n");
  EXPECT_EQ(*expand("#default A 3\n${A}", {{"A", 5}}), "5\n");
  EXPECT_ERROR(expand("#default 3"), "line 1: #default needs a name");
}

TEST(ShaderTemplate, TakesFilesAsModules) {
  replace_shader("test_module.wgsl",
                 "@group(0) @binding(2) var<storage, read> codes : array<u32>;\n"
                 "struct Share { total : f32 }\n"
                 "fn add(a : f32) -> f32 { return a + ${A}.0; }\n"
                 "@compute @workgroup_size(${B})\n"
                 "fn main(@builtin(workgroup_id) group : vec3u) { let s = Share(add(1.0)); let a = s.total; "
                 "other(codes[0]); }");
  const std::string text = *expand("#module one \"test_module.wgsl\"\n#module two \"test_module.wgsl\"",
                                   {{"one.A", 1}, {"one.B", 8}, {"two.A", 2}, {"two.B", 8}});
  for (const char* part :
       {"@group(0) @binding(2) var<storage, read> one_codes : array<u32>;",
        "struct one_Share { total : f32 }", "fn one_add(a : f32) -> f32 { return a + 1.0; }",
        "fn one_main( group : vec3u)", "one_Share(one_add(1.0)); let a = s.total; other(one_codes[0]);",
        "@group(0) @binding(34) var<storage, read> two_codes : array<u32>;",
        "fn two_add(a : f32) -> f32 { return a + 2.0; }"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  EXPECT_EQ(text.find("@compute"), std::string::npos);
  EXPECT_ERROR(expand("#module one \"test_module.wgsl\"", {{"one.A", 1}, {"one.B", 8}, {"one.C", 1}}),
               "does not use the value C = 1");
  EXPECT_ERROR(expand("#module one"), "line 1: #module needs the form: #module name \"file.wgsl\"");
  EXPECT_ERROR(expand("#module one \"none.wgsl\""), "line 1: there is no shader file none.wgsl");
}

TEST(ShaderTemplate, IncludesFilesOnce) {
  replace_shader("test_inner.wgsl", "inner ${A}");
  replace_shader("test_outer.wgsl", "#include \"test_inner.wgsl\"\nouter\n#include \"test_outer.wgsl\"");
  EXPECT_EQ(*expand("#include \"test_inner.wgsl\"\n  #include \"test_outer.wgsl\"\nend", {{"A", 4}}),
            "inner 4\nouter\nend\n");
  EXPECT_EQ(*expand_shader("test_inner.wgsl", {{"A", 5}}), "inner 5\n");
  // Errors name the file that has the line.
  EXPECT_ERROR(expand("x\n#include \"test_inner.wgsl\""), "The shader test_inner.wgsl is wrong in line 1");
  EXPECT_ERROR(expand("#include \"none.wgsl\""), "line 1: there is no shader file none.wgsl");
  EXPECT_ERROR(expand("#include none.wgsl"), "line 1: #include needs a name in quotes");
  EXPECT_ERROR(expand("#include \""), "line 1: #include needs a name in quotes");
  EXPECT_ERROR(expand_shader("none.wgsl", {}), "There is no shader file none.wgsl");
}

TEST(ShaderTemplate, NoticesValuesThatNobodyReads) {
  EXPECT_ERROR(expand("${A}", {{"A", 1}, {"B", 7}}), "The shader test.wgsl does not use the value B = 7");
  // Common values, the device's own, need not be used; given ones win over them.
  EXPECT_EQ(*expand("${A}", {{"A", 1}}, {{"A", 2}, {"B", 3}}), "1\n");
  // A branch that is not taken uses nothing.
  EXPECT_ERROR(expand("#if 0\n${A}\n#endif", {{"A", 1}}), "does not use the value A = 1");
}

TEST(ShaderTemplate, ExpandsEveryEmbeddedFileOnlyWithItsValues) {
  for (const EmbeddedShader& shader : embedded_shaders()) {
    if (shader.text.find("fn main(") == std::string_view::npos) continue;
    EXPECT_ERROR(expand_shader(shader.name, {}), "has no value");
    EXPECT_ERROR(expand_shader(shader.name, {{"NOBODY_READS_THIS", 1}}), "");
  }
}

}  // namespace
}  // namespace doppler::gpu
