// The demo model says what transformers says: the same tokens in, the same greedy tokens and text out.
#include <map>

#include "base/json.h"
#include "doppler/doppler.h"
#include "testing.h"

namespace doppler {
namespace {

const std::filesystem::path kDemo = testing::source_path("demo");
// The reference backend takes thirty tokens a second; the long stories are left to the cpu backend.
constexpr std::size_t kLongForReference = 30;

Json samples() {
  return Json::parse(testing::read_file(kDemo / "training" / "samples.json"), nullptr, false);
}

Engine load_demo(const std::string& backend) {
  auto engine = Engine::load(kDemo, {.backend = backend});
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(*engine);
}

void expect_sample(const Json& sample, const Result<Generation>& result) {
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(Json(result->prompt_ids), sample["prompt_ids"]);
  EXPECT_EQ(Json(result->ids), sample["ids"]);
  EXPECT_EQ(result->text, sample["text"].get<std::string>());
  EXPECT_EQ(result->stop_reason, StopReason::kEos);
}

class Demo : public ::testing::TestWithParam<const char*> {
 protected:
  bool skips(const Json& sample) const {
    return std::string(GetParam()) == "reference" && sample["ids"].size() > kLongForReference;
  }
};

TEST_P(Demo, ContinuesTextAsTransformersDoes) {
  Engine engine = load_demo(GetParam());
  GenerateOptions options = engine.default_options();
  EXPECT_EQ(options.temperature, 0);
  const Json all = samples();
  ASSERT_FALSE(all["raw"].empty());
  for (const Json& sample : all["raw"]) {
    if (!skips(sample)) expect_sample(sample, engine.generate(sample["prompt"].get<std::string>(), options));
  }
}

TEST_P(Demo, AnswersInItsChatFormAsTransformersDoes) {
  Engine engine = load_demo(GetParam());
  const Json all = samples();
  ASSERT_FALSE(all["chat"].empty());
  for (const Json& sample : all["chat"]) {
    if (skips(sample)) continue;
    std::vector<Message> messages;
    for (const Json& message : sample["messages"]) messages.push_back({message["role"], message["content"]});
    EXPECT_EQ(engine.render_chat(messages).value_or(""), sample["prompt_text"].get<std::string>());
    expect_sample(sample, engine.chat(messages, engine.default_options()));
  }
}

TEST_P(Demo, StreamsItsTextAndStopsWhenTold) {
  Engine engine = load_demo(GetParam());
  std::string streamed;
  const auto whole =
      engine.generate("The color of the sky is", engine.default_options(), [&](std::string_view text) {
        streamed += text;
        return true;
      });
  ASSERT_OK(whole);
  EXPECT_EQ(streamed, whole->text);
  EXPECT_TRUE(whole->text.starts_with(" blue"));

  const auto declined = engine.generate("The color of the sky is", engine.default_options(),
                                        [](std::string_view) { return false; });
  ASSERT_OK(declined);
  EXPECT_EQ(declined->stop_reason, StopReason::kCancelled);
  EXPECT_EQ(declined->ids.size(), 1u);

  GenerateOptions stopping = engine.default_options();
  stopping.stop = {"clear day"};
  const auto stopped = engine.generate("The color of the sky is", stopping);
  ASSERT_OK(stopped);
  EXPECT_EQ(stopped->stop_reason, StopReason::kStopString);
  EXPECT_EQ(stopped->text, " blue. On a ");
}

TEST_P(Demo, AConversationComputesEachTurnOnce) {
  Engine engine = load_demo(GetParam());
  std::vector<Message> messages = {{"user", "What does a bear eat?"}};
  const auto first = engine.chat(messages, engine.default_options());
  ASSERT_OK(first);
  EXPECT_EQ(first->timings.cached_tokens, 0u);
  messages.push_back({"assistant", first->text});
  messages.push_back({"user", "And where does it live?"});
  const auto second = engine.chat(messages, engine.default_options());
  ASSERT_OK(second);
  EXPECT_GE(second->timings.cached_tokens, first->prompt_ids.size());

  // A fresh engine that reads the whole conversation at once says the same.
  Engine fresh = load_demo(GetParam());
  const auto again = fresh.chat(messages, fresh.default_options());
  ASSERT_OK(again);
  EXPECT_EQ(again->timings.cached_tokens, 0u);
  EXPECT_EQ(again->ids, second->ids);
}

INSTANTIATE_TEST_SUITE_P(Backends, Demo, ::testing::Values("reference", "cpu"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace doppler
