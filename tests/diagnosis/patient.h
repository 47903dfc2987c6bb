// A patient: a fixture model with one thing made wrong, and what the comparison with its recording says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "diagnosis/compare/compare.h"
#include "diagnosis/faults/faults_table.h"
#include "model/family.h"
#include "testing.h"

namespace doppler::testing {

// On the reference backend. What is wrong is a fault of the table, or is put in with the same tools.
class Patient {
 public:
  // What an op has computed, and may be changed before anything else sees it.
  using ChangeValues = std::function<void(const TapEvent& event, std::span<float> data)>;

  explicit Patient(const std::string& family)
      : Patient(data_path("models") / family, "reference.safetensors") {}
  Patient(const std::string& family, ChangeValues change) : Patient(family) {
    change_values(std::move(change));
  }
  Patient(const std::filesystem::path& folder, const std::string& recording_name) {
    auto loaded = load_model(folder);
    auto opened = diagnosis::open_recording(folder / recording_name);
    if (!loaded || !opened) {
      ADD_FAILURE() << (loaded ? opened.error().message : loaded.error().message);
      return;
    }
    model_ = std::move(*loaded);
    recording = std::move(*opened);
    subject.model = &model_;
    subject.spec = model_.spec;
    subject.weights = model_.weights;
    subject.backend_name = "reference";
  }
  Patient(const Patient&) = delete;
  Patient& operator=(const Patient&) = delete;

  diagnosis::Subject subject;
  ModelSpec& spec = subject.spec;
  Weights& weights = subject.weights;
  diagnosis::Recording recording;

  // A fault of the table.
  void inject(std::string_view fault) {
    const auto place = doppler::diagnosis::inject(fault, subject);
    EXPECT_TRUE(place.has_value()) << place.error().message;
  }
  // Where others are put in.
  diagnosis::faults::Site& site() { return site_ ? *site_ : site_.emplace(subject); }
  void change_values(ChangeValues change) {
    site().run_with([change = std::move(change)](const BackendOptions&) {
      auto fault = std::make_unique<diagnosis::faults::HookFault>();
      fault->watches = [](Stage stage, int) { return stage != Stage::kNone; };
      fault->change = [change](const Fault::Computed& computed, Stage stage, int layer) {
        const Value& value = computed.plan.values[computed.value];
        change({.stage = stage,
                .layer = layer,
                .data = computed.data,
                .rows = computed.rows,
                .width = value.width,
                .heads = value.heads,
                .input = &computed.step},
               computed.data);
        return true;
      };
      return fault;
    });
  }

  Result<std::unique_ptr<Backend>> backend() const {
    return subject.make({.context = 64, .slots = 2, .max_step_tokens = 64, .disabled_passes = {}});
  }

  Result<diagnosis::Comparison> compare() const {
    DOPPLER_ASSIGN(const auto made, backend());
    return diagnosis::compare_run(*made, spec, recording, {}, &weights);
  }

 private:
  Model model_;
  std::optional<diagnosis::faults::Site> site_;
};

// The comparison sees the fault first at this stage, and there first at this token.
inline void expect_diverges(const Result<diagnosis::Comparison>& comparison, const std::string& key,
                            std::size_t token) {
  ASSERT_TRUE(comparison.has_value()) << comparison.error().message;
  const diagnosis::StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr) << "the fault was not seen";
  EXPECT_EQ(first->key, key) << "error " << first->error;
  ASSERT_TRUE(first->first_bad_token.has_value());
  EXPECT_EQ(*first->first_bad_token, token);
}

// The recording has a stage that the model does not compute.
inline void expect_missing(const Result<diagnosis::Comparison>& comparison, const std::string& key) {
  ASSERT_TRUE(comparison.has_value()) << comparison.error().message;
  const diagnosis::StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, key);
  EXPECT_EQ(first->stage, Stage::kNone);
}

}  // namespace doppler::testing
