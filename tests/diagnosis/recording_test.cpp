// Recordings made by Doppler, read back and compared; and recordings that are refused.
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "backend/reference/reference_backend.h"
#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/compare.h"
#include "model_fixture.h"

namespace doppler::diagnosis {
namespace {

using testing::data_path;
using testing::TempDir;
using testing::TinyTensor;

class RecordingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_model(data_path("models/gemma3"));
    ASSERT_OK(loaded);
    model_ = std::move(*loaded);
  }
  std::unique_ptr<Backend> backend(BackendOptions options = {.context = 40, .disabled_passes = {}}) const {
    auto made = make_reference_backend(model_.spec, model_.weights, options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }
  // A recording's tensors, to be changed and written again.
  std::map<std::string, TinyTensor> recorded() {
    EXPECT_TRUE(record_run(*backend(), {.prompt_ids = {2, 10, 11, 12}, .decode_steps = 3}, path_));
    const auto store = open_safetensors(path_);
    EXPECT_TRUE(store.has_value());
    std::map<std::string, TinyTensor> tensors;
    for (const auto& [name, tensor] : store->tensors()) {
      tensors[name] = {tensor.dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()}};
    }
    return tensors;
  }
  Result<Recording> reopened(const std::map<std::string, TinyTensor>& tensors) {
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors) views.push_back(tensor.view(name));
    DOPPLER_TRY(testing::write_tensors(path_, views));
    return open_recording(path_);
  }
  Result<Comparison> compared(const std::map<std::string, TinyTensor>& tensors,
                              const CompareOptions& options = {}) {
    DOPPLER_ASSIGN(const Recording recording, reopened(tensors));
    return compare_run(*backend(), model_.spec, recording, options);
  }
  static TinyTensor ids(std::vector<std::int32_t> values) {
    TinyTensor tensor{DType::kI32, {values.size()}, std::vector<std::byte>(values.size() * 4)};
    if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
  }
  static void set_float(TinyTensor& tensor, std::size_t at, float value) {
    std::memcpy(&tensor.bytes[at * sizeof value], &value, sizeof value);
  }

  Model model_;
  TempDir dir_;
  const std::filesystem::path path_ = dir_ / "run.safetensors";
};

TEST_F(RecordingTest, RunAgreesExactlyWithItself) {
  const auto made = backend();
  for (const bool scores : {false, true}) {
    ASSERT_OK(record_run(*made,
                         {.prompt_ids = {2, 9, 40, 7, 7, 120, 33, 5, 91, 17, 64},
                          .decode_steps = 5,
                          .attention_scores = scores},
                         path_));
    ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(path_));
    EXPECT_EQ(recording.prompt_ids.size(), 11u);
    EXPECT_EQ(recording.greedy_ids.size(), 6u);
    ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_run(*made, model_.spec, recording, {}));
    EXPECT_TRUE(comparison.agrees());
    for (const StageComparison& stage : comparison.stages) EXPECT_EQ(stage.error, 0) << stage.key;
    EXPECT_EQ(comparison.decode->error, 0);
    EXPECT_EQ(comparison.top1_equal, 6u);
  }
}

TEST_F(RecordingTest, HoldsTheStagesThatTransformersRecords) {
  ASSERT_OK(record_run(*backend(), {.prompt_ids = {2, 9}}, path_));
  ASSERT_OK_AND_ASSIGN(const Recording ours, open_recording(path_));
  ASSERT_OK_AND_ASSIGN(const Recording theirs,
                       open_recording(data_path("models/gemma3/reference.safetensors")));
  for (const auto& [name, tensor] : theirs.tensors.tensors()) {
    if (name == "greedy_ids" || name == "decode_logits" || name == "prompt_ids") continue;
    const TensorView* own = ours.tensors.find(name);
    ASSERT_NE(own, nullptr) << name;
    EXPECT_EQ(own->shape.size(), tensor.shape.size()) << name;
    EXPECT_EQ(own->shape.back(), tensor.shape.back()) << name;
  }
}

TEST_F(RecordingTest, AttentionScoresAreMaskedAndPadded) {
  // Steps of two tokens, so that early rows must be widened for positions that come later.
  const auto made = backend({.context = 40, .max_step_tokens = 2, .disabled_passes = {}});
  ASSERT_OK(record_run(*made, {.prompt_ids = {2, 9, 40, 7, 8}, .attention_scores = true}, path_));
  ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(path_));
  const TensorView* scores = store.find("layers.0.attn_scores");
  ASSERT_NE(scores, nullptr);
  ASSERT_EQ(scores->shape, (Shape{5, 4, 5}));
  std::vector<float> values(5 * 4 * 5);
  ASSERT_OK(decode_f32(*scores, 0, values));
  for (std::size_t token = 0; token < 5; ++token) {
    for (std::size_t head = 0; head < 4; ++head) {
      for (std::size_t position = 0; position < 5; ++position) {
        const float score = values[(token * 4 + head) * 5 + position];
        EXPECT_EQ(std::isfinite(score), position <= token) << token << " sees " << position;
      }
    }
  }
}

TEST_F(RecordingTest, WhatCannotBeRecordedIsRefusedAndLeavesNoFile) {
  const auto made = backend();
  EXPECT_ERROR(record_run(*made, {.prompt_ids = {}}, path_), "no tokens");
  EXPECT_ERROR(record_run(*made, {.prompt_ids = {2, 256}}, path_), "token id 256", "vocabulary of 256");
  EXPECT_ERROR(record_run(*made, {.prompt_ids = {2, -1}}, path_), "token id -1");
  EXPECT_ERROR(record_run(*made, {.prompt_ids = std::vector<std::int32_t>(41, 5)}, path_), "41 tokens",
               "context of 40");
  EXPECT_ERROR(record_run(*made, {.prompt_ids = {2}, .decode_steps = 40}, path_), "40 decode steps",
               "context of 40");
  EXPECT_ERROR(record_run(*made, {.prompt_ids = {2}}, dir_ / "nowhere/run.safetensors"), "nowhere");
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  EXPECT_EQ(made->length(0), 0u) << "a refused recording runs nothing";
  ASSERT_OK(record_run(*made, {.prompt_ids = {2}, .decode_steps = 39}, path_));  // fills the context exactly
  ASSERT_OK_AND_ASSIGN(const Recording full, open_recording(path_));
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_run(*made, model_.spec, full, {}));
  EXPECT_TRUE(comparison.agrees());
}

// A prompt of several steps goes through a file beside the recording; the bytes are the same.
TEST_F(RecordingTest, PiecesGiveTheSameFile) {
  const RecordOptions options{
      .prompt_ids = {2, 9, 40, 7, 8, 11, 3}, .decode_steps = 2, .attention_scores = true};
  ASSERT_OK(record_run(*backend(), options, path_));
  const std::string whole = testing::read_file(path_);
  for (const std::uint32_t step : {1u, 3u}) {
    const auto made = backend({.context = 40, .max_step_tokens = step, .disabled_passes = {}});
    ASSERT_OK(record_run(*made, options, dir_ / "pieces.safetensors"));
    EXPECT_EQ(testing::read_file(dir_ / "pieces.safetensors"), whole) << step;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 2) << "nothing else is left";
}

TEST_F(RecordingTest, TheHeaderSaysWhatWasRun) {
  RecordOptions options{.prompt_ids = {2, 9}};
  options.metadata = model_metadata("some/where/gemma3/", model_.weights);
  ASSERT_OK(record_run(*backend(), options, path_));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(path_));
  const auto& metadata = recording.tensors.metadata();
  EXPECT_EQ(metadata.at("producer"), "doppler reference");
  EXPECT_EQ(metadata.at("model"), "gemma3");
  EXPECT_EQ(metadata.at("kv_type"), "f32");
  EXPECT_EQ(metadata.at("weights"), describe_weights(model_.weights));
  EXPECT_EQ(metadata.at("fingerprint").size(), 16u);
  ASSERT_OK_AND_ASSIGN(const Model other, load_model(data_path("models/qwen3")));
  EXPECT_NE(model_metadata("gemma3", other.weights).at("fingerprint"), metadata.at("fingerprint"));
}

// A full disk, played by a limit on the size of files.
TEST_F(RecordingTest, AFullDiskIsAnErrorAndLeavesNoFile) {
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 50'000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status whole = record_run(*backend(), {.prompt_ids = {2, 9, 40, 7}}, path_);
  const Status pieces = record_run(*backend({.context = 40, .max_step_tokens = 1, .disabled_passes = {}}),
                                   {.prompt_ids = {2, 9, 40, 7}}, path_);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_ERROR(whole, "run.safetensors", "File too large");
  EXPECT_ERROR(pieces, "run.safetensors", "File too large");
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(RecordingTest, TruncatedFiles) {
  ASSERT_OK(record_run(*backend(), {.prompt_ids = {2, 9}}, path_));
  const std::string bytes = testing::read_file(path_);
  for (const std::size_t left : {std::size_t{4}, std::size_t{300}, bytes.size() / 2, bytes.size() - 1}) {
    testing::write_file(path_, bytes.substr(0, left));
    EXPECT_ERROR(open_recording(path_), "run.safetensors", "byte");
  }
}

TEST_F(RecordingTest, FilesThatAreNoRecordings) {
  EXPECT_ERROR(open_recording(dir_ / "missing.safetensors"), "missing.safetensors");
  EXPECT_ERROR(open_recording(data_path("models/gemma3/model.safetensors")), "prompt_ids", "no recording");
  auto tensors = recorded();
  tensors.erase("prompt_ids");
  EXPECT_ERROR(reopened(tensors), "prompt_ids");
  tensors["prompt_ids"] = ids({});
  EXPECT_ERROR(reopened(tensors), "no prompt tokens");
  tensors["prompt_ids"] = TinyTensor::of({4}, {2, 10, 11, 12});
  EXPECT_ERROR(reopened(tensors), "prompt_ids is F32", "I32 or I64");
  tensors["prompt_ids"] = ids({2, 10, -3, 12});
  EXPECT_ERROR(reopened(tensors), "prompt_ids holds -3 at place 2");
}

TEST_F(RecordingTest, StagesThatContradictTheRest) {
  const auto good = recorded();
  auto tensors = good;
  tensors["prompt_ids"] = ids({2, 10, 11});
  EXPECT_ERROR(reopened(tensors), "has 4 rows", "prompt_ids ask for 3");
  tensors = good;
  tensors["greedy_ids"] = ids({1, 2, 3});
  EXPECT_ERROR(reopened(tensors), "decode_logits has 3 rows", "greedy_ids ask for 2");
  tensors = good;
  tensors["embed_out"].dtype = DType::kI32;
  EXPECT_ERROR(reopened(tensors), "embed_out is I32", "stages are F32");
  tensors = good;
  tensors["embed_out"].shape = {4 * 96};
  EXPECT_ERROR(reopened(tensors), "embed_out is F32 of shape 384");
  for (const float poison : {NAN, INFINITY}) {
    tensors = good;
    set_float(tensors["layers.1.q_rope"], 128 + 7, poison);
    EXPECT_ERROR(reopened(tensors), "layers.1.q_rope holds", "at token 1, place 7");
  }
}

TEST_F(RecordingTest, RecordingsOfOtherModels) {
  const auto good = recorded();
  auto tensors = good;
  tensors["prompt_ids"] = ids({2, 10, 256, 12});
  EXPECT_ERROR(compared(tensors), "token id 256", "vocabulary has 256 tokens");
  tensors = good;
  tensors["greedy_ids"] = ids({2, 10, 11, 300});
  EXPECT_ERROR(compared(tensors), "token id 300");
  tensors = good;
  tensors["layers.0.ffn_out"] = testing::random_tensor("other", {4, 80}, 0, 1);
  EXPECT_ERROR(compared(tensors), "layers.0.ffn_out is 80 wide", "computes 96");
  tensors = good;
  tensors["decode_logits"] = testing::random_tensor("other", {3, 255}, 0, 1);
  EXPECT_ERROR(compared(tensors), "decode_logits", "3 x 255", "256 tokens");
  for (const char* name : {"nonsense", "layers.0.nonsense", "layers.x.q_proj", "layers.0", "q_proj",
                           "layers.0.logits", "layers..q_proj"}) {
    tensors = good;
    tensors[name] = testing::random_tensor("other", {4, 96}, 0, 1);
    EXPECT_ERROR(compared(tensors), name, "no stage", "ffn_normed");
  }
  ASSERT_OK_AND_ASSIGN(const Recording llama,
                       open_recording(data_path("models/llama/reference.safetensors")));
  EXPECT_ERROR(compare_run(*backend(), model_.spec, llama, {}), "wide");
}

TEST_F(RecordingTest, StageUnderTwoNames) {
  auto tensors = recorded();
  tensors["layers.0.ffn_in"] = tensors["layers.0.ffn_normed"];
  EXPECT_ERROR(compared(tensors), "layers.0.ffn_normed twice", "layers.0.ffn_in");
  tensors.erase("layers.0.ffn_normed");
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compared(tensors));
  EXPECT_TRUE(comparison.agrees());  // the alias alone is fine
}

TEST_F(RecordingTest, StageOrLayerThatTheModelLacks) {
  auto tensors = recorded();
  tensors["layers.9.q_proj"] = testing::random_tensor("other", {4, 96}, 0, 1);
  tensors["layers.0.router_logits"] = testing::random_tensor("other", {4, 8}, 0, 1);
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compared(tensors));
  ASSERT_NE(comparison.first_divergence(), nullptr);
  EXPECT_EQ(comparison.first_divergence()->key, "layers.0.router_logits");
  EXPECT_EQ(comparison.first_divergence()->stage, Stage::kNone);
}

TEST_F(RecordingTest, LongerThanTheContext) {
  const auto tensors = recorded();
  ASSERT_OK_AND_ASSIGN(const Recording recording, reopened(tensors));
  // 4 tokens of prompt and 3 of the 4 greedy ids are fed.
  EXPECT_ERROR(compare_run(*backend({.context = 6, .disabled_passes = {}}), model_.spec, recording, {}),
               "7 tokens", "context of 6");
  ASSERT_OK_AND_ASSIGN(const Comparison fits, compare_run(*backend({.context = 7, .disabled_passes = {}}),
                                                          model_.spec, recording, {}));
  EXPECT_TRUE(fits.agrees());
}

TEST_F(RecordingTest, CompanionNeedsASecondSlot) {
  ASSERT_OK_AND_ASSIGN(const Recording recording, reopened(recorded()));
  EXPECT_ERROR(compare_run(*backend(), model_.spec, recording, {.companion = true}), "2 slots", "has 1");
}

TEST_F(RecordingTest, DifferenceIsAShareOfTheLargestValue) {
  auto tensors = recorded();
  set_float(tensors["layers.3.ffn_gate"], 2 * 160 + 5, 1e4f);  // token 2
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compared(tensors));
  const StageComparison* first = comparison.first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, "layers.3.ffn_gate");
  EXPECT_EQ(first->first_bad_token, 2u);
  EXPECT_EQ(first->worst_token, 2u);
  EXPECT_NEAR(first->error, 1, 0.01);
  EXPECT_EQ(comparison.top1_equal, comparison.decode_steps) << "only the recording was wrong";
  ASSERT_OK_AND_ASSIGN(const Comparison tolerant, compared(tensors, {.tolerance = 2}));
  EXPECT_TRUE(tolerant.agrees());
}

TEST_F(RecordingTest, StageOfZerosAllowsNoDifference) {
  auto tensors = recorded();
  auto& bytes = tensors["layers.2.ffn_out"].bytes;
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compared(tensors));
  ASSERT_NE(comparison.first_divergence(), nullptr);
  EXPECT_EQ(comparison.first_divergence()->key, "layers.2.ffn_out");
}

TEST_F(RecordingTest, WrongAnswersInDecodingAreCounted) {
  auto tensors = recorded();
  tensors.erase("decode_logits");
  ASSERT_OK_AND_ASSIGN(const Recording recording, reopened(tensors));
  const std::int32_t last = recording.greedy_ids.back();
  std::vector<std::int32_t> greedy = recording.greedy_ids;
  greedy.back() = (last + 1) % 256;
  tensors["greedy_ids"] = ids(greedy);
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compared(tensors));
  EXPECT_EQ(comparison.first_divergence(), nullptr);
  EXPECT_EQ(comparison.top1_equal, comparison.decode_steps - 1);
  EXPECT_FALSE(comparison.agrees());
}

TEST(Argmax, TakesTheLowerIdOfEqualsAndSkipsNan) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax(std::vector<float>{NAN, -INFINITY, NAN}), 1);
  EXPECT_EQ(argmax(std::vector<float>{NAN, NAN}), -1);
  EXPECT_EQ(argmax({}), -1);
}

}  // namespace
}  // namespace doppler::diagnosis
