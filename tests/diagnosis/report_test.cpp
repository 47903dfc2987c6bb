// The report of a comparison: its page and its table, from comparisons made up here; and a diagnosis' page.
#include <gtest/gtest.h>

#include <limits>

#include "diagnosis/patient.h"
#include "diagnosis/report/report_doctor.h"
#include "diagnosis/report/report_html.h"
#include "diagnosis/report/report_text.h"
#include "page_data.h"

namespace doppler::diagnosis {
namespace {

constexpr double kAllowed = 1e-4;

StageComparison stage(Stage stage, int layer, double error = 1e-6, std::size_t tokens = 4) {
  StageComparison c{.key = stage_key(stage, layer), .stage = stage, .layer = layer, .tokens = tokens};
  c.largest = 10, c.error = error, c.tolerance = kAllowed;
  c.token_errors.assign(tokens, static_cast<float>(error / 10));
  c.token_errors.back() = static_cast<float>(error);
  c.worst_token = tokens - 1;
  if (error > kAllowed) c.first_bad_token = tokens - 1;
  return c;
}

// Stages of a small model; `wrong` in the layer `at` and all after it differ.
Comparison comparison(int layers, Stage wrong, int at, std::size_t tokens = 4) {
  Comparison result;
  bool differs = false;
  result.stages.push_back(stage(Stage::kEmbedOut, -1, 1e-6, tokens));
  for (int layer = 0; layer < layers; ++layer) {
    for (const StageInfo& info : all_stages()) {
      if (!info.per_layer || info.stage == Stage::kAttnScores) continue;
      differs |= info.stage == wrong && layer == at;
      result.stages.push_back(stage(info.stage, layer, differs ? 4e-2 : 1e-6, tokens));
    }
  }
  result.stages.push_back(stage(Stage::kFinalNorm, -1, differs ? 4e-2 : 1e-6, tokens));
  result.decode_steps = result.top1_equal = 3;
  return result;
}

OpError op(double excess) {
  OpError error{.error = excess * 1e-6, .allowed = 1e-6, .excess = excess, .token = 2, .index = 5};
  error.worst.push_back({2, 5, 1.5F, -1.5F});
  if (excess > 1) error.first_bad_token = 2;
  return error;
}

StageComparison& find(Comparison& comparison, Stage wanted, int layer) {
  for (StageComparison& c : comparison.stages) {
    if (c.stage == wanted && c.layer == layer) return c;
  }
  ADD_FAILURE() << "no such stage";
  return comparison.stages.front();
}

ReportContext context() {
  return {.model = "models/tiny",
          .reference = "r.safetensors",
          .prompt_ids = {2, 5, 9, 7},
          .pieces = {},
          .findings = nullptr};
}

std::string table(const Comparison& comparison, TableStyle style = {}) {
  return comparison_table(comparison, style);
}

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(ReportPage, HoldsAllItNeedsAndAsksNobody) {
  const std::string page = report_html(comparison(3, Stage::kQRope, 1), context());
  testing::expect_page_alone(page);
  EXPECT_NE(page.find("<p class=\"word\">Differs</p>"), std::string::npos);
  EXPECT_NE(page.find("<h1>tiny against r.safetensors</h1>"), std::string::npos);
  EXPECT_NE(page.find("The first stage that differs is q_rope of layer 1"), std::string::npos);
}

TEST(ReportPage, TextOfModelsAndPromptsCannotBecomeMarkup) {
  const std::string hostile = "</script><script>alert(1)</script><!--<b>\"'&\xff{data}";
  ReportContext context{
      .model = hostile, .reference = hostile, .prompt_ids = {2, 5, 9, 7}, .pieces = {}, .findings = {}};
  context.pieces.assign(4, hostile);
  context.findings = Json::array({{{"cause", hostile}, {"explanation", hostile}}});
  const std::string page = report_html(comparison(1, Stage::kQRope, 0), context);
  testing::expect_page_alone(page);
  const Json data = testing::page_data(page);
  EXPECT_TRUE(data["model"].get<std::string>().starts_with("</script><script>alert(1)"));
  EXPECT_EQ(data["pieces"].size(), 4);
}

TEST(ReportPage, StaysSmallForLongPromptsAndDeepModels) {
  for (const auto& [layers, tokens] : {std::pair<int, std::size_t>{26, 512}, {126, 2048}}) {
    Comparison large = comparison(layers, Stage::kQProj, 3, tokens);
    for (StageComparison& c : large.stages)
      c.execution = op(0.2), c.description = op(0.3), c.inherited = 1.234567e-5;
    ReportContext context = {.model = "m", .reference = "r", .prompt_ids = {}, .pieces = {}, .findings = {}};
    context.prompt_ids.assign(tokens, 123456);
    context.pieces.assign(tokens, "some text");
    const std::string page = report_html(large, context);
    // Every stage there is, in each layer: three times what a model has.
    EXPECT_LT(page.size(), layers == 26 ? 1'200'000 : 4'500'000) << layers;
  }
}

TEST(ReportData, TokensShareANumberAndTheWorstOfThemCounts) {
  Comparison one = comparison(1, Stage::kLayerOut, 0, 512);
  one.stages[3].token_errors.assign(512, 0);
  one.stages[3].token_errors[100] = std::numeric_limits<float>::infinity();
  one.stages[3].token_errors[511] = static_cast<float>(kAllowed * 1000);
  ReportContext context = {.model = "m", .reference = "r", .prompt_ids = {}, .pieces = {}, .findings = {}};
  context.prompt_ids.assign(512, 1);
  const Json data = report_json(one, context);
  EXPECT_EQ(data["bin"], 8);
  const Json& tokens = data["stages"][3]["tokens"];
  ASSERT_EQ(tokens.size(), 64);
  EXPECT_EQ(tokens[0], -100);
  EXPECT_EQ(tokens[12], 127);
  EXPECT_EQ(tokens[63], 30);  // a thousand times: three powers of ten
  EXPECT_FALSE(data.contains("prompt")) << "ids have no place where tokens share a column";
}

TEST(ReportData, PointsAtTheFirstDivergenceAndShowsItsValues) {
  Comparison one = comparison(2, Stage::kKNorm, 1);
  StageComparison& wrong = find(one, Stage::kKNorm, 1);
  wrong.worst.push_back({3, 7, 1.25F, -2.5F});
  Json data = report_json(one, context());
  const std::size_t first = data["first"];
  EXPECT_EQ(data["stages"][first]["key"], "layers.1.k_norm");
  EXPECT_EQ(data["values"][0], (Json{{"token", 3}, {"index", 7}, {"expected", 1.25}, {"found", -2.5}}));
  EXPECT_EQ(data["agrees"], false);

  wrong.execution = op(50);  // now the op alone is known to be wrong: its values say more
  data = report_json(one, context());
  EXPECT_EQ(data["values"][0]["token"], 2);
  EXPECT_EQ(data["value_names"], (Json{"plain loops", "this run"}));
}

// From the recording's inputs the oracle computes what this model makes of them: there the recording is the
// truth, though the oracle's value is the expected one of the experiment.
TEST(ReportData, TheTruthIsWhatWasRecordedWhereTheDescriptionIsWrong) {
  Comparison one = comparison(2, Stage::kKNorm, 1);
  StageComparison& wrong = find(one, Stage::kKNorm, 1);
  wrong.description = op(50);
  wrong.description->worst = {{3, 7, -2.5F, 1.25F}};  // the oracle's, and what was recorded
  const Json data = report_json(one, context());
  EXPECT_EQ(data["value_names"], (Json{"recorded", "this model"}));
  EXPECT_EQ(data["values"][0], (Json{{"token", 3}, {"index", 7}, {"expected", 1.25}, {"found", -2.5}}));
}

TEST(ReportData, HoldsWhatTheDoctorFound) {
  ReportContext asked = context();
  EXPECT_FALSE(report_json(comparison(1, Stage::kQRope, 0), asked).contains("findings"));
  asked.findings = Json::array({{{"cause", "rope_theta"}}});
  asked.looked = "The doctor looked.";
  const Json data = report_json(comparison(1, Stage::kQRope, 0), asked);
  EXPECT_EQ(data["findings"][0]["cause"], "rope_theta");
  EXPECT_EQ(data["looked"], "The doctor looked.");
  const std::string page = report_html(comparison(1, Stage::kQRope, 0), asked);
  EXPECT_NE(page.find("Likely cause: rope_theta."), std::string::npos) << "the head says so, too";
}

Diagnosis diagnosis() {
  Diagnosis sick;
  sick.findings.push_back({.cause = "rope_theta",
                           .stage = "q_rope",
                           .layer = 5,
                           .explanation = "It agrees when <the base> is 10000.",
                           .repair = "Set rope_theta to 10000.",
                           .confidence = 0.9,
                           .check = "truth"});
  sick.checks = {{"truth", "does every op compute what was recorded?", CheckState::kFinding, "2 ops", 0.5},
                 {"quantisation", "has it lost much?", CheckState::kSkipped, "no --source is given", 0}};
  sick.ops = {{"truth", Stage::kQRope, 5, 4000}, {"truth", Stage::kEmbedOut, -1, HUGE_VAL}};
  return sick;
}

TEST(DoctorPage, BeginsWithTheVerdictTheFirstFindingAndItsRepair) {
  const std::string page = report_html(diagnosis(), {.model = "models/tiny"});
  testing::expect_page_alone(page);
  EXPECT_NE(page.find("<title>tiny: Sick: 1 finding</title>"), std::string::npos);
  EXPECT_NE(page.find("<div id=\"verdict\" class=\"bad\">"), std::string::npos);
  EXPECT_NE(page.find("It agrees when &lt;the base&gt; is 10000."), std::string::npos);
  EXPECT_NE(page.find("Repair: Set rope_theta to 10000."), std::string::npos);
  const Json data = testing::page_data(page);
  EXPECT_EQ(data["findings"][0]["kind"], "description");
  EXPECT_EQ(data["order"][0]["stage"], "embed_out") << "rows stand in the order of a step";
  EXPECT_EQ(data["ops"][0], (Json{{"check", "truth"}, {"stage", "q_rope"}, {"layer", 5}, {"excess", 4000}}));
  EXPECT_TRUE(data["ops"][1]["layer"].is_null() && data["ops"][1]["excess"].is_null());
}

TEST(DoctorPage, OfAHealthyModelSaysWhatNobodyLookedAt) {
  Diagnosis healthy = diagnosis();
  healthy.findings.clear();
  healthy.checks[0].state = CheckState::kOk;
  const std::string page = report_html(healthy, {.model = "tiny"});
  EXPECT_NE(page.find("<title>tiny: Healthy</title>"), std::string::npos);
  EXPECT_NE(page.find("1 check found nothing."), std::string::npos);
  EXPECT_NE(page.find("Not examined: quantisation (no --source is given)."), std::string::npos);
}

TEST(DoctorPage, TextOfModelsCannotBecomeMarkup) {
  const std::string hostile = "</script><script>alert(1)</script><!--<b>\"'&\xff{data}";
  Diagnosis sick = diagnosis();
  sick.findings[0].explanation = sick.findings[0].repair = sick.findings[0].cause = hostile;
  sick.checks[0].text = hostile;
  const std::string page = report_html(
      sick,
      {.model = hostile, .reference = hostile, .source = hostile, .backend = hostile, .injected = hostile});
  testing::expect_page_alone(page);
  EXPECT_TRUE(
      testing::page_data(page)["checks"][0]["text"].get<std::string>().starts_with("</script><script>"));
}

TEST(DoctorPage, TheDoctorTellsTheErrorOfEveryOp) {
  const testing::Patient patient("llama");
  const auto found =
      diagnose(patient.subject, {.reference = &patient.recording, .seconds = 600, .only = {"truth", "ops"}});
  ASSERT_TRUE(found.has_value());
  for (const std::string_view check : {"truth", "ops"}) {
    std::size_t rope = 0;
    for (const JudgedOp& judged : found->ops) {
      if (judged.check != check) continue;
      EXPECT_LE(judged.excess, 1) << stage_name(judged.stage) << judged.layer;
      rope += judged.stage == Stage::kQRope;
    }
    EXPECT_EQ(rope, 3) << check << ": one for each layer";
  }
}

TEST(ReportData, InfinityIsNull) {
  Comparison one = comparison(1, Stage::kLayerOut, 0);
  StageComparison& wrong = find(one, Stage::kFfnOut, 0);
  wrong.error = std::numeric_limits<double>::infinity();
  wrong.first_bad_token = 0;
  const Json data = report_json(one, context());
  EXPECT_TRUE(data["stages"][data["first"].get<std::size_t>()]["error"].is_null());
}

TEST(ReportData, TheHistogramCountsEveryValueOfTheWorstStage) {
  Comparison one = comparison(1, Stage::kLayerOut, 0, 10);
  StageComparison& worst = find(one, Stage::kLayerOut, 0);
  worst.error = 5e-2;
  worst.spread.assign(256, 0);
  worst.spread[0] = 100;      // equal
  worst.spread[127 - 1] = 7;  // a half to one: allowed
  worst.spread[127 - 4] = 5;  // a sixteenth
  worst.spread[127] = 2;      // one to two times: beyond
  worst.spread[127 + 3] = 3;  // eight times
  worst.spread[255] = 1;      // NaN
  const Json histogram = report_json(one, context())["histogram"];
  EXPECT_EQ(histogram["key"], "layers.0.layer_out");
  EXPECT_EQ(histogram["equal"], 100);
  EXPECT_EQ(histogram["from"], -2);
  EXPECT_EQ(histogram["counts"], (Json{5, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(ReportData, AComparisonCountsEveryValueByItsError) {
  const testing::Patient patient("llama");
  const auto compared = patient.compare();
  ASSERT_TRUE(compared.has_value());
  const std::size_t tokens = patient.recording.prompt_ids.size();
  for (const StageComparison& c : compared->stages) {
    const std::size_t width = *element_count(patient.recording.tensors.find(c.key)->shape) / tokens;
    std::uint64_t counted = 0, beyond = 0;
    for (std::size_t i = 0; i < c.spread.size(); ++i)
      counted += c.spread[i], beyond += i > 127 ? c.spread[i] : 0;
    EXPECT_EQ(counted, tokens * width) << c.key;
    EXPECT_EQ(beyond, 0) << c.key;
  }
}

TEST(ReportTable, FoldsWhatAgreesIntoOneLine) {
  const std::string text = table(comparison(26, Stage::kNone, 0));
  EXPECT_EQ(text.substr(0, 7), "agrees\n");
  EXPECT_EQ(lines(text), 4) << text;
  EXPECT_NE(text.find("✓ embed_out … final_norm"), std::string::npos) << text;
  EXPECT_NE(text.find("The likeliest token is the recording's in 3 of 3 steps."), std::string::npos);
}

TEST(ReportTable, ShowsTheFirstDivergenceBetweenWhatAgreesAndWhatFollows) {
  const std::string text = table(comparison(26, Stage::kQNorm, 7));
  EXPECT_TRUE(text.starts_with("DIVERGES first at layers.7.q_norm\n")) << text;
  EXPECT_NE(text.find("✓ embed_out … layers.7."), std::string::npos) << text;
  const std::size_t at = text.find("✗ layers.7.q_norm");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  EXPECT_NE(line.find("×400"), std::string::npos) << line;
  EXPECT_NE(line.find("← first"), std::string::npos) << line;
  EXPECT_NE(text.find("✗ layers.7.q_rope … final_norm"), std::string::npos) << text;
  EXPECT_LT(lines(text), 12) << text;
  EXPECT_GT(lines(table(comparison(26, Stage::kQNorm, 7), {.all = true})), 26 * 20);
}

TEST(ReportTable, AnOpThatIsWrongByItselfKeepsItsLineFarFromTheFirst) {
  Comparison one = comparison(8, Stage::kQNorm, 1);
  find(one, Stage::kFfnUp, 6).execution = op(1234);
  find(one, Stage::kQNorm, 1).execution = op(77);
  const std::string text = table(one);
  EXPECT_NE(text.find("✗ layers.6.ffn_up"), std::string::npos) << text;
  EXPECT_NE(text.find("×1.2k  this op alone"), std::string::npos) << text;
  EXPECT_NE(text.find("goes wrong is q_norm of layer 1, from token 2 on"), std::string::npos) << text;
}

TEST(ReportTable, KeepsTheWidthOfTheTerminal) {
  Comparison one = comparison(8, Stage::kQNorm, 1);
  find(one, Stage::kQNorm, 1).description = op(77);
  for (const std::size_t width : {40, 60, 80}) {
    const std::string text = table(one, {.width = width});
    std::size_t column = 0;
    for (const char c : text) {
      column = c == '\n' ? 0 : column + ((static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0);
      ASSERT_LE(column, width) << text;
    }
  }
}

TEST(ReportTable, IsColouredOnlyWhereAsked) {
  const Comparison one = comparison(2, Stage::kQNorm, 1);
  EXPECT_EQ(table(one).find('\033'), std::string::npos);
  EXPECT_NE(table(one, {.colour = true}).find("\033[31m✗\033[0m"), std::string::npos);
}

TEST(ReportVerdict, NamesStagesThatTheModelLacksAndNaN) {
  Comparison one = comparison(1, Stage::kNone, 0);
  StageComparison& wrong = find(one, Stage::kOProj, 0);
  wrong.stage = Stage::kNone;
  EXPECT_EQ(verdict_of(one).front(),
            "The recording holds o_proj of layer 0, which this model does not compute.");
  wrong.stage = Stage::kOProj;
  wrong.error = std::numeric_limits<double>::infinity();
  wrong.first_bad_token = 1;
  EXPECT_EQ(verdict_of(one).front(),
            "The first stage that differs is o_proj of layer 0, from token 1 on: it holds NaN or infinity.");
}

TEST(ReportVerdict, SaysWhetherTheRunOrTheDescriptionIsAtFault) {
  Comparison one = comparison(2, Stage::kQNorm, 1);
  find(one, Stage::kQNorm, 1).description = op(6543);
  EXPECT_NE(verdict_of(one).front().find(
                "this model's description and weights lead elsewhere. The difference is 6,500 times"),
            std::string::npos)
      << verdict_of(one).front();
  one.stages.clear();
  one.top1_equal = 1;
  EXPECT_EQ(verdict_of(one).front(), "Every stage is within what is allowed, but the chosen tokens differ.");
}

TEST(ReportVerdict, SaysHowFarBeyondInFewCharacters) {
  const std::pair<double, const char*> cases[] = {
      {0.012, "×0.012"}, {1, "×1"},        {3.21, "×3.2"},
      {9.96, "×10"},     {45.6, "×46"},    {999.6, "×1k"},
      {12345, "×12k"},   {2.5e6, "×2.5M"}, {1e15, "×1000G and more"}};
  for (const auto& [excess, text] : cases) EXPECT_EQ(describe_excess(excess), text);
  EXPECT_EQ(describe_excess(std::numeric_limits<double>::infinity()), "NaN");
}

}  // namespace
}  // namespace doppler::diagnosis
