// The public Engine: what its header promises about threads, sequences, looks and messages.
#include "doppler/doppler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/access.h"
#include "engines.h"

namespace doppler {
namespace {

const std::filesystem::path kDemoModel = testing::source_path("demo");
constexpr std::string_view kDemoPrompt = "The color of the sky is";

Engine demo(std::uint32_t sequences = 0, const std::string& backend = "cpu") {
  return load_engine(kDemoModel, {.backend = backend, .context = 256, .sequences = sequences});
}

GenerateOptions at_most(std::uint32_t most) {
  return {.max_tokens = most};
}

TEST(Engine, AMovedFromOneAnswersWithErrors) {
  Engine engine = demo();
  Sequence sequence = engine.sequence().value();
  const Engine moved = std::move(engine);
  EXPECT_ERROR(engine.generate(kDemoPrompt, at_most(4)), "moved from");
  EXPECT_ERROR(engine.chat(std::vector<Message>{{"user", "Hi"}}, at_most(4)), "moved from");
  EXPECT_ERROR(engine.tokenize("a"), "moved from");
  EXPECT_ERROR(engine.detokenize(Ids{5}), "moved from");
  EXPECT_ERROR(engine.render_chat(std::vector<Message>{}), "moved from");
  EXPECT_ERROR(engine.render_chat_json("[]"), "moved from");
  EXPECT_ERROR(engine.look(Ids{5}, {.stages = {"logits"}}), "moved from");
  EXPECT_ERROR(engine.score(Ids{5}), "moved from");
  EXPECT_ERROR(engine.sequence(), "moved from");
  EXPECT_ERROR(engine.new_sequence(), "moved from");
  EXPECT_ERROR(engine.another(), "moved from");
  EXPECT_EQ(engine.context(), 0u);
  EXPECT_EQ(engine.backend_name(), "");
  EXPECT_EQ(engine.backend_choice(), "");
  EXPECT_FALSE(engine.has_tokenizer() || engine.has_chat_template());
  EXPECT_TRUE(engine.info().facts.empty() && engine.stages().empty() && engine.notes().empty());
  EXPECT_EQ(engine.default_options().max_tokens, GenerateOptions().max_tokens);
  EXPECT_TRUE(moved.has_tokenizer());

  const Sequence kept = std::move(sequence);
  EXPECT_ERROR(sequence.generate(kDemoPrompt, at_most(4)), "moved from");
  EXPECT_ERROR(sequence.append(Ids{5}), "moved from");
  EXPECT_ERROR(sequence.resume(at_most(1)), "moved from");
  EXPECT_ERROR(sequence.cut(0), "moved from");
  EXPECT_ERROR(sequence.clear(), "moved from");
  EXPECT_ERROR(sequence.fork(), "moved from");
  EXPECT_ERROR(sequence.save("/tmp/never"), "moved from");
  EXPECT_ERROR(sequence.load("/tmp/never"), "moved from");
  EXPECT_EQ(sequence.length(), 0u);
}

// A fallback that the backend meets while it computes is a sentence after the call, once.
TEST(Engine, NotesSayWhatIsSlower) {
  Engine engine = demo();
  EXPECT_TRUE(engine.notes().empty());
  Backend& backend = *EngineAccess::loaded(engine).backend;
  backend.note({"Single tokens are computed as batches of one.", "A check refuses the program for them."});
  const std::vector<std::string> expected = {
      "Single tokens are computed as batches of one. A check refuses the program for them."};
  for (int call = 0; call < 2; ++call) {
    ASSERT_OK(engine.generate(kDemoPrompt, at_most(1)));
    EXPECT_EQ(engine.notes(), expected);
  }
  backend.note({"Tokens are chosen on the host.", "The device has no such sampler."});
  EXPECT_EQ(engine.notes(), expected) << "another thread may compute: not before the end of its call";
  ASSERT_OK(engine.generate(kDemoPrompt, at_most(1)));
  EXPECT_EQ(engine.notes().size(), 2u);
  EXPECT_EQ(engine.notes().front(), expected.front());
  const auto another = engine.another({.backend = "cpu", .threads = 1, .context = 64});
  ASSERT_OK(another);
  EXPECT_TRUE(another->notes().empty()) << "it has a backend of its own";
}

// A fallback that is known when the model is loaded.
TEST(Engine, NotesSayThatAGpuIsSoftware) {
  const auto engine = Engine::load(kDemoModel, {.backend = "gpu", .threads = 2, .context = 64});
  if (!engine) GTEST_SKIP() << engine.error().message;
  const DeviceView* const device = EngineAccess::loaded(*engine).backend->device();
  ASSERT_NE(device, nullptr);
  if (!device->info().software()) GTEST_SKIP() << "a real GPU";
  const std::vector<std::string> notes = engine->notes();
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes.front().find("The gpu backend runs without a GPU."), std::string::npos) << notes.front();
  EXPECT_NE(notes.front().find(device->info().describe()), std::string::npos) << notes.front();
}

TEST(Engine, ASequenceOutlivesItsEngine) {
  std::optional<Engine> engine = demo();
  Sequence sequence = engine->sequence().value();
  ASSERT_OK_AND_ASSIGN(const Generation before, engine->generate(kDemoPrompt, at_most(4)));
  engine.reset();
  ASSERT_OK_AND_ASSIGN(const Generation after, sequence.generate(kDemoPrompt, at_most(4)));
  EXPECT_EQ(after.ids, before.ids);
}

TEST(Engine, ACallFromItsOwnCallbackIsAnError) {
  Engine engine = demo();
  std::string error, tokenised;
  ASSERT_OK(engine.generate(kDemoPrompt, at_most(2), [&](std::string_view) {
    const auto inner = engine.generate(kDemoPrompt, at_most(1));
    error = inner ? "" : inner.error().message;
    tokenised = engine.detokenize(engine.tokenize("sky", false).value_or(Ids{})).value_or("");
    return true;
  }));
  EXPECT_NE(error.find("callback"), std::string::npos) << error;
  EXPECT_EQ(tokenised, "sky") << "what does not compute needs no turn";
  ASSERT_OK(engine.generate(kDemoPrompt, at_most(2)));  // the turn is given back
}

TEST(Engine, AHandleMayDieInItsOwnCallback) {
  std::optional<Engine> engine = demo();
  ASSERT_OK_AND_ASSIGN(const Generation result,
                       engine->generate(kDemoPrompt, at_most(3), [&](std::string_view) {
                         engine.reset();
                         return true;
                       }));
  EXPECT_EQ(result.ids.size(), 3u);
}

TEST(Engine, ATokenOutlivesItsCallAndStaysCancelled) {
  Engine engine = demo();
  auto token = std::make_unique<CancelToken>();
  const CancelToken copy = *token;
  ASSERT_OK_AND_ASSIGN(const Generation result, engine.generate(
                                                    kDemoPrompt, at_most(20),
                                                    [&](std::string_view) {
                                                      token.reset();  // the call has a copy
                                                      copy.cancel();
                                                      return true;
                                                    },
                                                    token.get()));
  EXPECT_EQ(result.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(result.ids.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const Generation again, engine.generate(kDemoPrompt, at_most(20), {}, &copy));
  EXPECT_TRUE(again.ids.empty());
  copy.reset();
  ASSERT_OK_AND_ASSIGN(const Generation whole, engine.generate(kDemoPrompt, at_most(20), {}, &copy));
  EXPECT_GT(whole.ids.size(), 1u);
}

TEST(Engine, TokensAreToldOneByOneAndCanEndIt) {
  Engine engine = demo();
  Ids seen;
  ASSERT_OK_AND_ASSIGN(const Generation result,
                       engine.generate(kDemoPrompt, at_most(20),
                                       Callbacks{.on_token = [&](TokenId id, const TokenLogprobs* logprobs) {
                                         EXPECT_EQ(logprobs, nullptr);
                                         seen.push_back(id);
                                         return seen.size() < 3;
                                       }}));
  EXPECT_EQ(result.ids, seen);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(result.stop_reason, StopReason::kCancelled);
}

TEST(Engine, AnotherHasACacheOfItsOwn) {
  Engine engine = load_engine(testing::data_path("gguf/llama_k256.Q4_K_M.gguf"));
  ASSERT_OK_AND_ASSIGN(Engine other, engine.another({.backend = "cpu", .threads = 1, .context = 64}));
  EXPECT_EQ(other.context(), 64u);
  const Ids prompt = {5, 9, 20};
  ASSERT_OK_AND_ASSIGN(const Generation one, engine.generate(prompt, at_most(8)));
  ASSERT_OK_AND_ASSIGN(const Generation two, other.generate(prompt, at_most(8)));
  EXPECT_EQ(one.ids, two.ids);
  EXPECT_EQ(two.timings.cached_tokens, 0u);
  {
    const Engine gone = std::move(engine);
  }
  ASSERT_OK_AND_ASSIGN(const Generation three, other.generate(Ids{7, 9, 20}, at_most(8)));
  EXPECT_FALSE(three.ids.empty()) << "files and weights live as long as anyone uses them";
}

TEST(Engine, SaysWhatTheModelIsAndTakes) {
  Engine engine = demo(2);
  const ModelInfo info = engine.info();
  EXPECT_EQ(info.family, "gemma3");
  EXPECT_EQ(info.layers, engine.stages().at(1).layers.size());
  ASSERT_FALSE(info.facts.empty());
  for (const Fact& fact : info.facts) EXPECT_FALSE(fact.name.empty() || fact.because.empty()) << fact.name;
  EXPECT_EQ(info.memory.context, 256u);
  EXPECT_EQ(info.memory.sequences, 3u);
  EXPECT_GT(info.memory.weights, 11'000'000u);
  EXPECT_GT(info.memory.activations, 0u);
  ASSERT_OK_AND_ASSIGN(const ModelInfo alone, describe_model(kDemoModel, {.context = 256}));
  EXPECT_EQ(alone.memory.cache * 3, info.memory.cache);
  EXPECT_EQ(alone.facts.size(), info.facts.size());
  EXPECT_ERROR(describe_model("/nowhere"), "/nowhere");
}

// --- log probabilities

double sum_of(const std::vector<LikelyToken>& top) {
  double sum = 0;
  for (const LikelyToken& token : top) sum += std::exp(double{token.logprob});
  return sum;
}

TEST(Engine, LogprobsAreThoseOfTheModel) {
  Engine engine = demo();
  GenerateOptions options = at_most(6);
  options.temperature = 0.7;  // does not change them
  const auto vocab = static_cast<std::int32_t>(engine.info().vocab_size);
  options.logprobs = vocab;
  ASSERT_OK_AND_ASSIGN(const Generation result, engine.generate(kDemoPrompt, options));
  ASSERT_EQ(result.logprobs.size(), result.ids.size());
  Ids all = result.prompt_ids;
  all.insert(all.end(), result.ids.begin(), result.ids.end());
  ASSERT_OK_AND_ASSIGN(const auto scores, engine.score(all, 3));
  ASSERT_EQ(scores.size(), all.size() - 1);
  for (std::size_t i = 0; i < result.ids.size(); ++i) {
    const TokenLogprobs& of = result.logprobs[i];
    EXPECT_EQ(of.id, result.ids[i]);
    EXPECT_EQ(of.top.size(), static_cast<std::size_t>(vocab));
    EXPECT_NEAR(sum_of(of.top), 1, 1e-4);
    EXPECT_GE(of.top.front().logprob, of.logprob);
    const TokenLogprobs& scored = scores[result.prompt_ids.size() - 1 + i];
    EXPECT_EQ(scored.id, of.id);
    EXPECT_FLOAT_EQ(scored.logprob, of.logprob) << "a cpu computes the same in any company";
    ASSERT_EQ(scored.top.size(), 3u);
    EXPECT_EQ(scored.top[0].id, of.top[0].id);
  }
  options.logprobs = vocab + 1;
  EXPECT_ERROR(engine.generate(kDemoPrompt, options), "out of range");
  EXPECT_ERROR(engine.score(Ids{vocab}), "outside the vocabulary");
}

// --- looking

TEST(Engine, LooksAtAnyStage) {
  Engine engine = demo();
  ASSERT_OK_AND_ASSIGN(const Ids prompt, engine.tokenize(kDemoPrompt));
  std::set<std::string> names;
  for (const StageDescription& stage : engine.stages()) {
    names.insert(stage.name);
    EXPECT_FALSE(stage.meaning.empty());
    ASSERT_OK_AND_ASSIGN(const auto seen, engine.look(prompt, {.stages = {stage.name}}));
    ASSERT_EQ(seen.size(), stage.layers.empty() ? 1 : stage.layers.size()) << stage.name;
    for (const StageValues& values : seen) {
      EXPECT_EQ(values.stage, stage.name);
      EXPECT_EQ(values.tokens.size(), prompt.size());
      EXPECT_EQ(values.heads, stage.heads);
      EXPECT_EQ(values.width, stage.width != 0 ? stage.width : stage.heads * prompt.size());
      EXPECT_EQ(values.values.size(), values.tokens.size() * values.columns());
    }
  }
  EXPECT_TRUE(names.contains("embed_out") && names.contains("layer_out") && names.contains("logits"));
}

TEST(Engine, ALookSeesWhatTheRunComputes) {
  Engine engine = demo();
  ASSERT_OK_AND_ASSIGN(const Ids prompt, engine.tokenize(kDemoPrompt));
  ASSERT_OK_AND_ASSIGN(const auto seen, engine.look(prompt, {.stages = {"logits"}, .tokens = {-1}}));
  ASSERT_EQ(seen.size(), 1u);
  ASSERT_EQ(seen[0].tokens, (std::vector<std::int64_t>{static_cast<std::int64_t>(prompt.size()) - 1}));
  const auto best = std::ranges::max_element(seen[0].values) - seen[0].values.begin();
  ASSERT_OK_AND_ASSIGN(const Generation next, engine.generate(prompt, at_most(1)));
  EXPECT_EQ(next.ids, Ids{static_cast<TokenId>(best)});
}

TEST(Engine, ALookTakesLayersTokensDimsAndStatistics) {
  Engine engine = demo();
  ASSERT_OK_AND_ASSIGN(const Ids prompt, engine.tokenize(kDemoPrompt));
  ASSERT_OK_AND_ASSIGN(const auto whole, engine.look(prompt, {.stages = {"layer_out"}, .layers = {1}}));
  ASSERT_OK_AND_ASSIGN(const auto part, engine.look(prompt, {.stages = {"layer_out"},
                                                             .layers = {1},
                                                             .tokens = {0, 2, -1},
                                                             .dims = {7, 3},
                                                             .statistics = true}));
  ASSERT_EQ(part.size(), 1u);
  EXPECT_EQ(part[0].layer, 1);
  EXPECT_EQ(part[0].columns(), 2u);
  const std::size_t rows[] = {0, 2, prompt.size() - 1};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(part[0].values[i * 2], whole[0].values[rows[i] * whole[0].width + 7]);
    EXPECT_EQ(part[0].values[i * 2 + 1], whole[0].values[rows[i] * whole[0].width + 3]);
  }
  EXPECT_EQ(part[0].statistics.count, 6u);
  EXPECT_EQ(part[0].statistics.max, *std::ranges::max_element(part[0].values));
  ASSERT_OK_AND_ASSIGN(const auto measured,
                       engine.look(prompt, {.stages = {"all"}, .values = false, .statistics = true}));
  EXPECT_GT(measured.size(), 50u);
  for (const StageValues& values : measured) {
    EXPECT_TRUE(values.values.empty());
    EXPECT_EQ(values.statistics.count, values.tokens.size() * values.width) << values.stage;
    EXPECT_TRUE(values.statistics.finite());
  }
}

TEST(Engine, ALookPutsThePromptsStepsTogether) {
  Engine engine = load_engine(testing::data_path("models/llama"), {.backend = "cpu", .context = 400});
  Ids prompt(300);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * 7 % 60);
  ASSERT_OK_AND_ASSIGN(const auto seen,
                       engine.look(prompt, {.stages = {"attn_scores", "layer_out"}, .layers = {0}}));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].tokens.size(), 300u);
  EXPECT_EQ(seen[1].tokens.back(), 299);
  const StageValues& scores = seen[0];
  ASSERT_EQ(scores.width, scores.heads * 300);
  ASSERT_EQ(scores.values.size(), 300 * scores.width);
  for (const std::size_t token : {std::size_t{10}, std::size_t{290}}) {
    for (std::size_t position = 0; position < 300; ++position) {
      const float score = scores.values[token * scores.width + 300 + position];  // of head 1
      EXPECT_EQ(std::isinf(score), position > token) << token << " " << position;
    }
  }
}

TEST(Engine, ALookSaysWhatThereIs) {
  Engine engine = demo();
  const Ids prompt = {5, 9};
  EXPECT_ERROR(engine.look(prompt, {}), "names no stage", "layer_out");
  EXPECT_ERROR(engine.look(prompt, {.stages = {"layer_outt"}}), "no stage layer_outt", "layer_out");
  EXPECT_ERROR(engine.look(prompt, {.stages = {"layer_out"}, .layers = {99}}), "layer 99");
  EXPECT_ERROR(engine.look(prompt, {.stages = {"layer_out"}, .tokens = {2}}), "token 2", "2 tokens");
  EXPECT_ERROR(engine.look(prompt, {.stages = {"layer_out"}, .tokens = {-3}}), "token -3");
  EXPECT_ERROR(engine.look(prompt, {.stages = {"layer_out"}, .dims = {100000}}), "dim 100000");
  EXPECT_ERROR(engine.look(prompt, {.stages = {"all"}, .most_bytes = 1000}), "more than its bound of 1000");
  EXPECT_ERROR(engine.look({}, {.stages = {"all"}}), "no tokens");
  EXPECT_ERROR(engine.look(Ids(300, 5), {.stages = {"logits"}}), "context holds 256");
}

TEST(Engine, AWatchSeesEveryTokenOfAGeneration) {
  Engine engine = demo();
  std::vector<std::int64_t> positions;
  std::vector<float> last_logits;
  const Callbacks callbacks{
      .watches = {{.what = {.stages = {"layer_out"}, .layers = {2}, .dims = {4}},
                   .on_values =
                       [&](const StageValues& values) {
                         positions.insert(positions.end(), values.tokens.begin(), values.tokens.end());
                         EXPECT_EQ(values.values.size(), values.tokens.size());
                       }},
                  {.what = {.stages = {"logits"}},
                   .on_values = [&](const StageValues& values) { last_logits = values.values; }}}};
  ASSERT_OK_AND_ASSIGN(const Generation result, engine.generate(kDemoPrompt, at_most(5), callbacks));
  ASSERT_EQ(result.ids.size(), 5u);
  std::vector<std::int64_t> expected(result.prompt_ids.size() + 4);  // the last token is not fed
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(positions, expected);
  EXPECT_EQ(std::ranges::max_element(last_logits) - last_logits.begin(), result.ids.back());
  ASSERT_OK_AND_ASSIGN(const Generation unseen, engine.generate(kDemoPrompt, at_most(5)));
  EXPECT_EQ(unseen.ids, result.ids);
  EXPECT_ERROR(
      engine.generate(kDemoPrompt, at_most(1), Callbacks{.watches = {{.what = {.stages = {"logits"}}}}}),
      "nothing to call");
}

// --- messages

TEST(Engine, MessagesHaveTheirParts) {
  Engine engine = demo();
  const std::vector<Message> plain = {{"user", "Hello"}};
  ASSERT_OK_AND_ASSIGN(const std::string text, engine.render_chat(plain));
  ASSERT_OK_AND_ASSIGN(const std::string same,
                       engine.render_chat_json(R"([{"role": "user", "content": "Hello"}])"));
  EXPECT_EQ(text, same);
  ASSERT_OK_AND_ASSIGN(const std::string open, engine.render_chat(plain, {.add_generation_prompt = false}));
  EXPECT_TRUE(text.starts_with(open) && open.size() < text.size());
  EXPECT_ERROR(engine.render_chat(std::vector<Message>{{"", "x"}}), "no role");
  EXPECT_ERROR(engine.render_chat(std::vector<Message>{{.role = "user", .parts = {{"image", ""}}}}),
               "type image");
  EXPECT_ERROR(
      engine.render_chat(std::vector<Message>{{.role = "user", .content = "a", .parts = {{"text", "b"}}}}),
      "both content and parts");
  EXPECT_ERROR(engine.render_chat(plain, {.tools = {{.name = "f", .parameters = "[]"}}}), "tool f",
               "no JSON object");
  EXPECT_ERROR(engine.render_chat(plain, {.variables = "{"}), "variables");
  EXPECT_ERROR(engine.render_chat_json("{}"), "no conversation");
  EXPECT_ERROR(engine.render_chat_json("nonsense"), "The conversation");
}

// A model whose template shows everything that it is handed.
std::filesystem::path model_with_template(const testing::TempDir& folder, const std::string& source) {
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "generation_config.json"})
    std::filesystem::copy_file(kDemoModel / file, folder / file);
  testing::write_file(folder / "chat_template.jinja", source);
  return folder.path();
}

TEST(Engine, TemplatesGetToolsCallsResultsAndParts) {
  const testing::TempDir folder;
  Engine engine =
      load_engine(model_with_template(folder, "{{ messages | tojson }}|{{ tools | tojson }}|{{ mood }}"));
  const std::vector<Message> messages = {
      {.role = "user", .parts = {{"text", "What is"}, {"text", " the weather?"}}},
      {.role = "assistant", .tool_calls = {{"call_1", "weather", R"({"city": "Bonn"})"}}},
      {.role = "tool", .content = "rain", .tool_call_id = "call_1", .name = "weather"}};
  const ChatOptions chat{.tools = {{"weather", "looks out", R"({"type": "object"})"}},
                         .variables = R"({"mood": "dry"})"};
  ASSERT_OK_AND_ASSIGN(const std::string text, engine.render_chat(messages, chat));
  EXPECT_EQ(
      text,
      R"([{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " the weather?"}]}, )"
      R"({"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": )"
      R"({"name": "weather", "arguments": {"city": "Bonn"}}}]}, )"
      R"({"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "call_1"}]|)"
      R"([{"type": "function", "function": {"name": "weather", "description": "looks out", "parameters": {"type": "object"}}}]|dry)");
  // As services send them: arguments are a text.
  ASSERT_OK_AND_ASSIGN(const std::string json,
                       engine.render_chat_json(
                           R"({"messages": [{"role": "assistant", "tool_calls": [{"function": )"
                           R"({"name": "f", "arguments": "{\"a\": 1}"}}]}], "tools": [], "mood": "wet"})"));
  EXPECT_EQ(
      json,
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}]|[]|wet)");
}

}  // namespace
}  // namespace doppler
