// What the backend tests share: running token sequences in steps of any shape, and keeping every stage they
// pass through.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "formats/safetensors.h"
#include "model/family.h"
#include "model/stage.h"
#include "tensors.h"
#include "testing.h"

namespace doppler::testing {

inline constexpr const char* kDenseFixtures[] = {
    "llama",   "llama3",           "mistral", "qwen2",   "qwen3",   "phi3",       "gemma2",
    "gemma3",  "gemma3_k288",      "olmo3",   "granite", "cohere",  "phi",        "nemotron",
    "exaone4", "hunyuan_v1_dense", "glm4",    "gpt2",    "apertus", "ministral3", "falcon_alibi"};

// The largest error that the design allows for float weights, relative to the largest value of the stage.
inline double tolerance_of(const std::string& fixture) {
  return fixture == "gemma2" ? 1e-3 : 2e-4;
}

// The same where a backend may multiply prompts on tensor cores: a half has eleven bits, and a few layers
// pass its error on. What a comparison allows (diagnosis/compare/comparison.cpp), and gemma2 as much more.
inline constexpr double kHalvesOverFloats = 100;
inline double tolerance_of(const std::string& fixture, const Backend& backend) {
  return tolerance_of(fixture) * (backend.rounding() == Rounding::kHalf ? kHalvesOverFloats : 1);
}

// One token of a step: which sequence it belongs to is its slot.
struct Token {
  std::int32_t id, position, slot;
};

inline StepInput step_of(const std::vector<Token>& tokens, bool wants = true) {
  StepInput input;
  for (const Token& token : tokens) {
    input.ids.push_back(token.id);
    input.positions.push_back(token.position);
    input.slots.push_back(token.slot);
    input.wants_logits.push_back(wants ? 1 : 0);
  }
  return input;
}

// Keeps the stages of one slot's tokens, step after step, as rows in the order of positions. Of attn_scores,
// whose width depends on the step, it keeps the positions up to the token's own.
class KeepStages : public Tap {
 public:
  explicit KeepStages(std::int32_t slot = 0) : slot_(slot) {}
  bool wants(Stage, int) const override { return true; }
  void on_stage(const TapEvent& event) override {
    std::vector<float>& kept = stages[stage_key(event.stage, event.layer)];
    EXPECT_EQ(event.data.size(), event.rows * event.width);
    std::size_t row = 0;
    for (std::size_t t = 0; t < event.input->size(); ++t) {
      const bool has_row = event.rows == event.input->size() || event.input->wants_logits[t];
      if (!has_row) continue;
      const auto values = event.data.subspan(row++ * event.width, event.width);
      if (event.input->slots[t] != slot_) continue;
      const std::size_t longest = event.width / event.heads;
      const bool scores = event.stage == Stage::kAttnScores;
      const std::size_t count = scores ? static_cast<std::size_t>(event.input->positions[t]) + 1 : longest;
      for (std::size_t h = 0; h < event.heads; ++h) {
        kept.insert(kept.end(), values.begin() + static_cast<std::ptrdiff_t>(h * longest),
                    values.begin() + static_cast<std::ptrdiff_t>(h * longest + count));
      }
    }
  }
  std::map<std::string, std::vector<float>> stages;

 private:
  std::int32_t slot_;
};

// Feeds a sequence in steps of the given sizes (the last one repeats), from the position `first` on, and
// returns the logits of every token.
inline std::vector<float> run_in_pieces(Backend& backend, const std::vector<std::int32_t>& ids,
                                        const std::vector<std::size_t>& sizes, Tap* tap = nullptr,
                                        std::int32_t slot = 0, std::size_t first = 0) {
  std::vector<float> logits;
  std::size_t done = 0;
  for (std::size_t piece = 0; done < ids.size(); ++piece) {
    const std::size_t size = std::min(sizes[std::min(piece, sizes.size() - 1)], ids.size() - done);
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < size; ++i, ++done)
      tokens.push_back({ids[done], static_cast<std::int32_t>(first + done), slot});
    const auto result = backend.step(step_of(tokens), tap);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    if (!result) return logits;
    logits.insert(logits.end(), result->begin(), result->end());
  }
  return logits;
}

// The largest difference, relative to the largest expected value; infinite where one is not finite and the
// other differs.
inline double relative_error(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size()) return HUGE_VAL;
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(expected[i])) largest = std::max<double>(largest, std::abs(expected[i]));
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    if (same) continue;
    const double difference = std::abs(static_cast<double>(got[i]) - expected[i]);
    error = std::isfinite(difference) ? std::max(error, difference) : HUGE_VAL;
  }
  return error == 0 ? 0 : error / std::max(largest, 1e-30);
}

// A fixture with what transformers recorded of it.
struct FixtureModel {
  Model model;
  TensorStore recording;
  std::vector<std::int32_t> prompt, greedy;

  std::vector<float> recorded(const std::string& name) const {
    const TensorView* tensor = recording.find(name);
    if (tensor == nullptr) return {};
    std::vector<float> values(*element_count(tensor->shape));
    EXPECT_TRUE(decode_f32(*tensor, 0, values).has_value());
    return values;
  }
};

inline Result<std::unique_ptr<FixtureModel>> load_fixture(const std::string& name) {
  auto fixture = std::make_unique<FixtureModel>();
  DOPPLER_ASSIGN(fixture->model, load_model(data_path("models/" + name)));
  DOPPLER_ASSIGN(fixture->recording,
                 open_safetensors(data_path("models/" + name + "/reference.safetensors")));
  const auto ids = [&](const char* key) -> Result<std::vector<std::int32_t>> {
    const TensorView* tensor = fixture->recording.find(key);
    if (tensor == nullptr) return fail(ErrorCode::kNotFound, "The recording has no {}.", key);
    DOPPLER_ASSIGN(const std::vector<std::int64_t> values, testing::read_ids(*tensor));
    return std::vector<std::int32_t>(values.begin(), values.end());
  };
  DOPPLER_ASSIGN(fixture->prompt, ids("prompt_ids"));
  DOPPLER_ASSIGN(fixture->greedy, ids("greedy_ids"));
  return fixture;
}

}  // namespace doppler::testing
