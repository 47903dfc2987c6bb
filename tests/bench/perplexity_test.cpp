#include "bench/perplexity.h"

#include <cmath>

#include "engine/logprobs.h"
#include "model/family.h"
#include "testing.h"

namespace doppler::bench {
namespace {

using Chunks = std::vector<std::vector<TokenId>>;

TEST(ChunkText, CutsAtTheContext) {
  const std::vector<TokenId> ids = {11, 12, 13, 14, 15};
  EXPECT_EQ(chunk_text(ids, 3, -1), (Chunks{{11, 12, 13}, {14, 15}}));
}

TEST(ChunkText, GivesEachChunkItsBosAndCountsIt) {
  const std::vector<TokenId> ids = {11, 12, 13, 14, 15};
  EXPECT_EQ(chunk_text(ids, 3, 2), (Chunks{{2, 11, 12}, {2, 13, 14}, {2, 15}}));
}

TEST(ChunkText, ABosInTheTextBeginsAChunk) {
  const std::vector<TokenId> ids = {2, 11, 12, 1, 2, 13};
  EXPECT_EQ(chunk_text(ids, 100, 2), (Chunks{{2, 11, 12, 1}, {2, 13}}));
}

TEST(ChunkText, DropsChunksThatPredictNothing) {
  EXPECT_EQ(chunk_text(std::vector<TokenId>{11, 12, 13}, 2, -1), (Chunks{{11, 12}}));
  EXPECT_TRUE(chunk_text(std::vector<TokenId>{}, 8, 2).empty());
}

TEST(TokenLoss, IsTheNegativeLogOfTheSoftmax) {
  EXPECT_NEAR(token_loss(std::vector<float>{0, 0, 0, 0}, 2), std::log(4.0), 1e-12);
  const std::vector<float> logits = {1, 2, 3};
  EXPECT_NEAR(token_loss(logits, 1), std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)) - 2, 1e-12);
  // Beyond what exp can hold.
  EXPECT_NEAR(token_loss(std::vector<float>{10000, 0}, 1), 10000, 1e-9);
}

// Every token by itself from its whole prefix, softmax as the formula says.
double straightforward_loss(Backend& backend, const Chunks& chunks) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& chunk : chunks) {
    for (std::size_t t = 1; t < chunk.size(); ++t, ++count) {
      backend.clear(0);
      StepInput input;
      for (std::size_t i = 0; i < t; ++i) input.add(chunk[i], i, 0, i + 1 == t);
      const auto logits = backend.step(input, nullptr);
      EXPECT_TRUE(logits.has_value());
      long double total = 0;
      for (const float logit : *logits) total += std::exp(static_cast<long double>(logit));
      const auto target = static_cast<long double>((*logits)[static_cast<std::size_t>(chunk[t])]);
      sum += static_cast<double>(-std::log(std::exp(target) / total));
    }
  }
  return sum / static_cast<double>(count);
}

TEST(Perplexity, EqualsAStraightforwardComputation) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(testing::data_path("models/gemma3")));
  std::vector<TokenId> ids;
  for (int i = 0; i < 41; ++i) ids.push_back((i * 37 + 5) % static_cast<int>(model.spec.vocab_size));
  const Chunks chunks = chunk_text(ids, 16, 2);
  const BackendOptions options{.threads = 1, .context = 16, .max_step_tokens = 5};
  ASSERT_OK_AND_ASSIGN(const auto fast, make_backend("cpu", model.spec, model.weights, options));
  ASSERT_OK_AND_ASSIGN(const auto oracle,
                       make_backend("reference", model.spec, model.weights, {.threads = 1, .context = 16}));
  ASSERT_OK_AND_ASSIGN(const PerplexityResult result, measure_perplexity(*fast, chunks, {}));
  EXPECT_EQ(result.tokens, 41u);  // with a BOS in front, every token is predicted
  EXPECT_EQ(result.chunks, 3u);
  EXPECT_NEAR(result.loss, straightforward_loss(*oracle, chunks), 1e-4);
  EXPECT_NEAR(result.perplexity(), std::exp(result.loss), 1e-9);
  EXPECT_GT(result.standard_error, 0);
}

TEST(Perplexity, OfNothingIsAnError) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(testing::data_path("models/llama")));
  ASSERT_OK_AND_ASSIGN(const auto backend,
                       make_backend("cpu", model.spec, model.weights, {.threads = 1, .context = 16}));
  EXPECT_ERROR(measure_perplexity(*backend, {}, {}), "no token to predict", "Give a longer one");
}

}  // namespace
}  // namespace doppler::bench
