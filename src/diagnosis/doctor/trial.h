// Trial: a copy of the examined model with something changed in memory, to see whether text becomes likelier.
// Suspects are the changes that are tried: repairs of the whole model, where repairs.h has those of single
// ops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "diagnosis/doctor/doctor.h"
#include "diagnosis/doctor/relayouts.h"

namespace doppler::diagnosis {

class Trial {
 public:
  explicit Trial(const Subject& examined) : subject_(examined) {}

  const Subject& subject() const { return subject_; }
  ModelSpec& spec() { return subject_.spec; }
  Weights& weights() { return subject_.weights; }
  std::vector<LayerSpec>& layers() { return subject_.spec.layers; }
  bool has(WeightRole role, int layer) const { return subject_.weights.find(role, layer) != kNoWeight; }
  const TensorView& weight(WeightRole role, int layer) const {
    return subject_.weights[subject_.weights.find(role, layer)];
  }

  // Changes the plan after everything that changes it already.
  void change_plan(std::function<void(Plan&)> change);
  // Two weights take each other's place. Errors: kNotFound, and kMismatch if their shapes differ.
  Status exchange(WeightRole a, int layer_a, WeightRole b, int layer_b);
  // What makes the files of `examined` hold this model; empty where the plan was changed, for which files
  // have no words.
  std::vector<Fix> fixes(const Subject& examined) const;

  // A weight's rows are read anew; rows that cannot be read so stay as they are. Errors: kNotFound if there
  // is no such weight.
  using ReadRow = std::function<Status(std::uint64_t row, std::span<float> values)>;
  Status read_anew(WeightRole role, int layer, const ReadRow& read);

 private:
  Subject subject_;
  bool plan_changed_ = false;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> owned_;  // values of weights that were read anew
};

struct Suspect {
  std::string cause;   // an id of all_causes()
  std::string says;    // "theta is 1000000": completes "The loss falls when"
  std::string repair;  // empty: that of the cause
  Stage stage = Stage::kNone;
  int layer = -1;
  std::function<Status(Trial& trial)> change;  // an error: it does not apply to this model
  int turn = 0;  // likely ones have the first turn, many values of one thing the second
  // Only tells whether a part of the model is of any use; no repair.
  bool control = false;
  bool late = false;  // shows only at later positions: a window
};

// suspects_description.cpp: what a configuration may say wrongly, for the whole model. Likeliest first.
std::vector<Suspect> description_suspects(const Subject& subject);
// suspects_weights.cpp: weights that changed places or order on every layer alike, and the embedding.
std::vector<Suspect> order_suspects(const Subject& subject);
// The same for one half of a layer alone: attention, or feed-forward.
enum class Half : std::uint8_t { kAttention, kFeedForward };
std::vector<Suspect> layer_suspects(const Subject& subject, int layer, Half half);
// What of it may be shifted or cut at other places: many, for a half that is known to be broken.
std::vector<Suspect> layer_searches(const Subject& subject, int layer, Half half);
// The layer's half adds nothing: what the model says without it.
Suspect without(const Subject& subject, int layer, Half half);

}  // namespace doppler::diagnosis
