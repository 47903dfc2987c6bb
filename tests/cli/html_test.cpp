// The flag --html of doctor, bench and compare: a page beside everything else that they print.
#include "cli/program.h"
#include "page_data.h"

namespace doppler::testing {
namespace {

// A model whose sixth layer rotates by a wrong base, in a folder.
std::string broken_model(const TempDir& dir) {
  const std::filesystem::path from = data_path("models/gemma3"), to = dir / "broken";
  std::filesystem::create_directory(to);
  std::filesystem::copy(from / "model.safetensors", to / "model.safetensors");
  Json config = Json::parse(read_file(from / "config.json"));
  config["rope_parameters"]["full_attention"]["rope_theta"] = 10000.0;
  write_file(to / "config.json", config.dump());
  return to.string();
}

const std::string kTruth = data_path("models/gemma3/reference.safetensors").string();

TEST(HtmlFlag, OfTheDoctorWritesAPageBesideTheAnswerAndSaysWhere) {
  const TempDir dir;
  const std::string page = dir / "page.html";
  const Outcome outcome = doppler({"doctor", broken_model(dir), "--reference", kTruth, "--backend",
                                   "reference", "--check", "recording,truth", "--html", page, "--json"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(outcome.json()["findings"][0]["cause"], "rope_theta");
  EXPECT_NE(outcome.err.find("page.html: open it in any browser."), std::string::npos) << outcome.err;
  const std::string made = read_file(page);
  expect_page_alone(made);
  EXPECT_EQ(page_data(made)["findings"], outcome.json()["findings"]);
  EXPECT_GT(page_data(made)["ops"].size(), 100u);
}

// A model that does not load has a page, too.
TEST(HtmlFlag, OfTheDoctorNamesWhyAModelIsRefused) {
  const TempDir dir;
  const std::string page = dir / "page.html", model = broken_model(dir);
  write_file(std::filesystem::path(model) / "config.json", "{}");
  const Outcome outcome = doppler({"doctor", model, "--html", page});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_NE(read_file(page).find("Sick: 1 finding"), std::string::npos);
}

TEST(HtmlFlag, OfCompareHoldsTheLikelyCause) {
  const TempDir dir;
  const std::string page = dir / "page.html";
  const Outcome outcome = doppler(
      {"compare", broken_model(dir), "--reference", kTruth, "--backend", "reference", "--html", page});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("DIVERGES first"), std::string::npos);
  const Json data = page_data(read_file(page));
  EXPECT_EQ(data["findings"][0]["cause"], "rope_theta");
  EXPECT_EQ(data["value_names"][0], "recorded");
  const Outcome healthy = doppler({"compare", data_path("models/gemma3").string(), "--reference", kTruth,
                                   "--backend", "reference", "--html", page});
  EXPECT_EQ(healthy.status, 0) << healthy.err;
  EXPECT_FALSE(page_data(read_file(page)).contains("findings")) << "nobody looks for a cause of nothing";
}

TEST(HtmlFlag, OfBenchWritesEverySuite) {
  const TempDir dir;
  const std::string page = dir / "page.html", model = data_path("models/llama").string();
  const Outcome timed = doppler({"bench", model, "--prefill", "8", "--decode", "2", "--depths", "0",
                                 "--repetitions", "2", "--loads", "1", "--html", page, "--json"});
  ASSERT_EQ(timed.status, 0) << timed.err;
  expect_page_alone(read_file(page));
  EXPECT_EQ(page_data(read_file(page)), timed.json());
  EXPECT_EQ(timed.json()["decode"][0]["token_seconds"]["each"].size(), 4u);
  ASSERT_EQ(doppler({"bench", "loading", model, "--loads", "1", "--html", page}).status, 0);
  EXPECT_EQ(page_data(read_file(page))["suite"], "loading");
  write_file(dir / "text.txt", "Once upon a time there was a cheerful girl.");
  const Outcome loss =
      doppler({"bench", source_path("demo").string(), "--perplexity", dir / "text.txt", "--html", page});
  ASSERT_EQ(loss.status, 0) << loss.err;
  EXPECT_EQ(page_data(read_file(page))["chunk_losses"].size(), 1u);
}

// Before the work begins: nothing is printed, and nothing is left beside.
TEST(HtmlFlag, APageThatCannotBeWrittenIsSaidAtOnce) {
  const TempDir dir;
  const std::string page = dir / "missing" / "page.html", model = data_path("models/llama").string();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"doctor", model},
                                                  {"bench", model},
                                                  {"bench", model, "--save", page},
                                                  {"compare", model, "--reference", kTruth}}) {
    std::vector<std::string> arguments = command;
    if (command.back() != page) arguments.insert(arguments.end(), {"--html", page});
    const Outcome outcome = doppler(arguments);
    EXPECT_EQ(outcome.status, 3) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("missing"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(doppler({"doctor", model, "--html", dir.path().string()}).status, 3) << "a folder";
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(HtmlFlag, HasNothingToShowForLists) {
  EXPECT_EQ(doppler({"doctor", "--list", "--html", "x.html"}).status, 2);
}

}  // namespace
}  // namespace doppler::testing
