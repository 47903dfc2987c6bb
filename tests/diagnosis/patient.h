// A patient: a fixture model with one thing made wrong, and what the comparison with its recording says.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/reference/reference_backend.h"
#include "diagnosis/compare/compare.h"
#include "model/family.h"
#include "testing.h"

namespace doppler::testing {

// Passes every event on, and lets a fault write into the buffers around it.
class FaultyTap final : public Tap {
 public:
  using Fault = std::function<void(const TapEvent& event, std::span<float> data)>;
  FaultyTap(Tap* observer, const StepInput* outer, const Fault& in_op, const Fault& afterwards)
      : observer_(observer), outer_(outer), in_op_(in_op), afterwards_(afterwards) {}

  bool wants(Stage stage, int layer) const override {
    return stage != Stage::kAttnScores || (observer_ != nullptr && observer_->wants(stage, layer));
  }
  void on_stage(const TapEvent& event) override {
    // The reference backend's own buffers: only the tap's view of them is const.
    const std::span data(const_cast<float*>(event.data.data()), event.data.size());
    if (in_op_) in_op_(event, data);
    if (observer_ != nullptr && observer_->wants(event.stage, event.layer)) {
      TapEvent seen = event;
      seen.input = outer_;
      observer_->on_stage(seen);
    }
    if (afterwards_) afterwards_(event, data);
  }

 private:
  Tap* observer_;
  const StepInput* outer_;
  const Fault &in_op_, &afterwards_;
};

// The reference backend with faults in its execution.
class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  FaultyTap::Fault in_op;       // the op that computes the stage is wrong: compare sees what the fault leaves
  FaultyTap::Fault afterwards;  // the value is damaged after compare saw it, before the next op reads it
  bool clear_does_nothing = false;
  bool clear_keeps_positions = false;  // the length starts at 0 again, but positions and cache go on

  std::string_view name() const override { return inner_->name(); }
  const Plan& plan() const override { return inner_->plan(); }
  const BackendOptions& options() const override { return inner_->options(); }
  std::uint64_t length(std::uint32_t slot) const override { return inner_->length(slot) - hidden_; }
  void clear(std::uint32_t slot) override {
    if (clear_keeps_positions) hidden_ = inner_->length(slot);
    if (!clear_does_nothing && !clear_keeps_positions) inner_->clear(slot);
  }
  MemoryUse memory() const override { return inner_->memory(); }
  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    StepInput shifted = input;
    for (std::int32_t& position : shifted.positions) position += static_cast<std::int32_t>(hidden_);
    FaultyTap faulty(tap, &input, in_op, afterwards);
    return inner_->step(shifted, &faulty);
  }

 private:
  std::unique_ptr<Backend> inner_;
  std::uint64_t hidden_ = 0;
};

// Public parts are copies that a test may alter before it calls compare().
class Patient {
 public:
  explicit Patient(const std::string& family)
      : Patient(data_path("models") / family, "reference.safetensors") {}
  Patient(const std::filesystem::path& folder, const std::string& recording_name) {
    auto loaded = load_model(folder);
    auto opened = open_recording(folder / recording_name);
    if (!loaded || !opened) {
      ADD_FAILURE() << (loaded ? opened.error().message : loaded.error().message);
      return;
    }
    model_ = std::move(*loaded);
    recording = std::move(*opened);
    spec = model_.spec;
    weights = model_.weights;
  }

  ModelSpec spec;
  Weights weights;
  Recording recording;
  std::function<void(Plan&)> alter_plan;
  std::function<void(FaultyBackend&)> alter_backend;

  // Replaces a weight by an altered copy of itself.
  void alter(WeightRole role, int layer,
             const std::function<void(TensorView&, std::vector<std::byte>&)>& change) {
    TensorView tensor = weights[weights.find(role, layer)];
    bytes_.emplace_back(tensor.data.begin(), tensor.data.end());
    change(tensor, bytes_.back());
    tensor.data = bytes_.back();
    weights.add(role, layer, std::move(tensor));
  }
  // Row r becomes what row source(r) was.
  void permute_rows(WeightRole role, int layer, const std::function<std::size_t(std::size_t)>& source) {
    alter(role, layer, [&](TensorView& tensor, std::vector<std::byte>& bytes) {
      const std::size_t row = bytes.size() / tensor.rows();
      for (std::size_t r = 0; r < tensor.rows(); ++r) {
        std::copy_n(tensor.data.begin() + static_cast<std::ptrdiff_t>(source(r) * row), row,
                    bytes.begin() + static_cast<std::ptrdiff_t>(r * row));
      }
    });
  }

  Result<std::unique_ptr<FaultyBackend>> backend() const {
    const BackendOptions options{.context = 64, .slots = 2, .max_step_tokens = 64, .disabled_passes = {}};
    DOPPLER_ASSIGN(Plan plan, build_plan(spec, weights, options.context));
    if (alter_plan) alter_plan(plan);
    DOPPLER_ASSIGN(auto inner, make_reference_backend_for_plan(std::move(plan), weights, options));
    auto faulty = std::make_unique<FaultyBackend>(std::move(inner));
    if (alter_backend) alter_backend(*faulty);
    return faulty;
  }

  Result<Comparison> compare() const {
    DOPPLER_ASSIGN(const auto made, backend());
    return compare_run(*made, spec, recording, {}, &weights);
  }

 private:
  Model model_;
  std::deque<std::vector<std::byte>> bytes_;
};

// The comparison sees the fault first at this stage, and there first at this token.
inline void expect_diverges(const Result<Comparison>& comparison, const std::string& key, std::size_t token) {
  ASSERT_TRUE(comparison.has_value()) << comparison.error().message;
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr) << "the fault was not seen";
  EXPECT_EQ(first->key, key) << "error " << first->error;
  ASSERT_TRUE(first->first_bad_token.has_value());
  EXPECT_EQ(*first->first_bad_token, token);
}

// The recording has a stage that the model does not compute.
inline void expect_missing(const Result<Comparison>& comparison, const std::string& key) {
  ASSERT_TRUE(comparison.has_value()) << comparison.error().message;
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, key);
  EXPECT_EQ(first->stage, Stage::kNone);
}

}  // namespace doppler::testing
