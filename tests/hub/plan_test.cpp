// What of a repository is taken, and why; and what the Hub's answers may say.
#include "hub/plan.h"

#include "base/json.h"
#include "testing.h"

namespace doppler::hub {
namespace {

constexpr std::uint64_t kGiB = 1 << 30;

RepoFile file(const std::string& path, std::uint64_t size = 100) {
  return {path, size, std::string(64, 'a')};
}

RepoInfo repo(std::vector<RepoFile> files) {
  std::ranges::sort(files, {}, &RepoFile::path);
  return {.repo = "org/name", .commit = std::string(40, 'c'), .files = std::move(files)};
}

Result<PullPlan> plan(const RepoInfo& info, const std::string& pick = "",
                      std::optional<std::uint64_t> memory = std::nullopt) {
  return make_plan(info, "main", pick, {.memory = memory}, [](const RepoFile&) { return std::uint64_t{0}; });
}

std::vector<std::string> taken(const PullPlan& plan) {
  std::vector<std::string> paths;
  for (const std::size_t i : plan.chosen.files) paths.push_back(plan.info.files[i].path);
  return paths;
}

RepoInfo many_types() {
  return repo({file("m-Q2_K.gguf", 2 * kGiB), file("m-Q4_K_M.gguf", 4 * kGiB), file("m-Q8_0.gguf", 8 * kGiB),
               file("m-BF16.gguf", 16 * kGiB), file("mmproj-m-f16.gguf", kGiB), file("imatrix.gguf", 9)});
}

TEST(HubPlan, TakesTheBestTypeThatFitsTheMemory) {
  struct Case {
    std::uint64_t memory;
    const char *label, *why;
  };
  for (const Case& c : std::vector<Case>{{64 * kGiB, "Q8_0", "the best of 4 that fits the memory"},
                                         {9 * kGiB, "Q8_0", "the best of 4 that fits the memory"},
                                         {8 * kGiB, "Q4_K_M", "the best of 4 that fits the memory"},
                                         {3 * kGiB, "Q2_K", "the best of 4 that fits the memory"},
                                         {kGiB, "Q2_K", "the smallest of 4"}}) {
    ASSERT_OK_AND_ASSIGN(const PullPlan found, plan(many_types(), "", c.memory));
    EXPECT_EQ(found.chosen.label, c.label);
    EXPECT_EQ(found.why, c.why);
    EXPECT_EQ(found.fits_memory(), c.memory > kGiB);
  }
}

TEST(HubPlan, PicksByTypeFileOrEndWhateverTheCase) {
  const RepoInfo info = repo({file("Some-Model-UD-Q4_K_XL.gguf"), file("Some-Model-Q4_K_M.gguf"),
                              file("BF16/Some-Model-BF16.gguf"), file("tokenizer.json")});
  const auto picked = [&](const char* pick) {
    const auto found = plan(info, pick);
    return found ? taken(*found).at(0) : found.error().message;
  };
  EXPECT_EQ(picked("q4_k_m"), "Some-Model-Q4_K_M.gguf");
  EXPECT_EQ(picked("UD-Q4_K_XL"), "Some-Model-UD-Q4_K_XL.gguf");
  EXPECT_EQ(picked("Q4_K_XL"), "Some-Model-UD-Q4_K_XL.gguf");
  EXPECT_EQ(picked("some-model-q4_k_m.GGUF"), "Some-Model-Q4_K_M.gguf");
  EXPECT_EQ(picked("BF16/Some-Model-BF16.gguf"), "BF16/Some-Model-BF16.gguf");
  EXPECT_EQ(picked("tokenizer.json"), "tokenizer.json");
  EXPECT_ERROR(plan(info, "Q8_0"), "has no file or type Q8_0", "It has BF16, Q4_K_XL, Q4_K_M");
  EXPECT_ERROR(plan(repo({file("a-Q4_0.gguf"), file("b-Q4_0.gguf")}), "Q4_0"), "a-Q4_0.gguf or b-Q4_0.gguf",
               "Name the file");
}

TEST(HubPlan, ASplitModelIsOne) {
  const RepoInfo info = repo({file("Q4_K_M/m-Q4_K_M-00001-of-00002.gguf"),
                              file("Q4_K_M/m-Q4_K_M-00002-of-00002.gguf"), file("m-Q2_K.gguf")});
  ASSERT_OK_AND_ASSIGN(const PullPlan found, plan(info, "Q4_K_M"));
  EXPECT_EQ(taken(found).size(), 2U);
  EXPECT_EQ(found.chosen.parts, 2U);
  EXPECT_EQ(found.chosen.bytes, 200U);
}

TEST(HubPlan, TypesAreReadFromNames) {
  EXPECT_EQ(type_in_name("llama-2-7b.Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(type_in_name("gemma-3-1b-it-q4_0.gguf"), "Q4_0");
  EXPECT_EQ(type_in_name("Q8_0/model-00001-of-00002.gguf"), "Q8_0");
  EXPECT_EQ(type_in_name("F16-tuned-IQ4_XS.gguf"), "IQ4_XS");
  EXPECT_EQ(type_in_name("model.gguf"), "");
  EXPECT_EQ(type_in_name("XQ4_0X.gguf"), "");
}

TEST(HubPlan, WhatIsNoModelIsNamedForWhatItIs) {
  EXPECT_ERROR(plan(repo({file("adapter_config.json"), file("adapter_model.safetensors")})), "LoRA adapter",
               "Merge");
  EXPECT_ERROR(plan(repo({file("config.json"), file("pytorch_model.bin")})), "pytorch_model.bin (a PyTorch",
               "GGUF");
  EXPECT_ERROR(plan(repo({file("consolidated.safetensors"), file("params.json")})), "Mistral's own layout");
  EXPECT_ERROR(plan(repo({file("README.md")})), "holds no weights");
}

TEST(HubPlan, SafetensorsAreTakenBeforeGgufUnlessTheyDoNotFit) {
  const RepoInfo info =
      repo({file("config.json"), file("model.safetensors", 8 * kGiB), file("m.Q4_0.gguf", 2 * kGiB)});
  ASSERT_OK_AND_ASSIGN(const PullPlan roomy, plan(info, "", 32 * kGiB));
  EXPECT_EQ(taken(roomy), (std::vector<std::string>{"model.safetensors", "config.json"}));
  ASSERT_OK_AND_ASSIGN(const PullPlan narrow, plan(info, "", 4 * kGiB));
  EXPECT_EQ(taken(narrow), std::vector<std::string>{"m.Q4_0.gguf"});
}

TEST(HubPlan, ReadsWellInEightyColumns) {
  RepoInfo info = many_types();
  info.files.push_back(file("m-" + std::string(120, 'x') + "-Q6_K.gguf", 6 * kGiB));
  ASSERT_OK_AND_ASSIGN(const PullPlan found, plan(info, "", 9 * kGiB));
  const std::string text = describe(found);
  EXPECT_NE(text.find("> Q8_0"), std::string::npos) << text;
  EXPECT_NE(text.find("too big"), std::string::npos) << text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    std::size_t columns = 0;
    for (std::size_t i = at; i < end; ++i)
      columns += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 ? 1 : 0;
    EXPECT_LE(columns, 80U) << text.substr(at, end - at);
    at = end + 1;
  }
  EXPECT_EQ(plan_json(found)["chosen"], "Q8_0");
}

Result<RepoInfo> parse(const std::string& siblings) {
  return parse_repo_info(
      R"({"id":"org/name","sha":")" + std::string(40, 'c') + R"(","siblings":)" + siblings + "}",
      "The answer");
}

TEST(HubApi, NamesThatLeaveTheFolderAreLeftOut) {
  ASSERT_OK_AND_ASSIGN(
      const RepoInfo info,
      parse(R"([{"rfilename":"../../.bashrc"},{"rfilename":"/etc/passwd"},{"rfilename":"a\\b.gguf"},
                                 {"rfilename":"C:x.gguf"},{"rfilename":"ok.gguf","size":5}])"));
  ASSERT_EQ(info.files.size(), 1U);
  EXPECT_EQ(info.files[0].path, "ok.gguf");
  EXPECT_EQ(info.unsafe_names, 4U);
}

TEST(HubApi, AnswersThatAreNoneAreRefused) {
  EXPECT_ERROR(parse_repo_info("<html>", "The answer"), "not valid JSON");
  EXPECT_ERROR(parse_repo_info("[]", "The answer"), "not an object", "HF_ENDPOINT");
  EXPECT_ERROR(parse_repo_info(R"({"id":"../x","sha":"0","siblings":[]})", "The answer"),
               "names no repository");
  EXPECT_ERROR(parse_repo_info(R"({"id":"a/b","sha":"../../x","siblings":[]})", "The answer"),
               "names no commit");
  EXPECT_ERROR(parse("{}"), "lists no files");
  EXPECT_ERROR(parse("[{}]"), "a file without a name");
  EXPECT_ERROR(parse(R"([{"rfilename":"a"},{"rfilename":"a"}])"), "lists the file a twice");
}

TEST(HubApi, HashesAndSizesThatCannotBeAreNotSaid) {
  ASSERT_OK_AND_ASSIGN(const RepoInfo info, parse(R"([{"rfilename":"a","size":-1,"blobId":"../../x"},
      {"rfilename":"b","size":99999999999999999,"lfs":{"sha256":"ABC","size":"7"}},{"rfilename":"c","lfs":[1]}])"));
  for (const RepoFile& file : info.files) {
    EXPECT_FALSE(file.size.has_value()) << file.path;
    EXPECT_EQ(file.hash, "") << file.path;
  }
}

}  // namespace
}  // namespace doppler::hub
