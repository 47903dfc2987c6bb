// Helpers that the files of the fault table (faults_*.cpp) share.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis::faults {

// Weights with some replaced by altered copies of themselves.
class AlteredWeights {
 public:
  using Change = std::function<void(TensorView& tensor, std::vector<std::byte>& bytes)>;
  // `change` sees the tensor as it is (its data included) and a copy of its bytes to alter.
  void alter(Weights& weights, WeightRole role, int layer, const Change& change);
  // Row r gets the values of row source(r).
  void permute_rows(Weights& weights, WeightRole role, int layer,
                    const std::function<std::size_t(std::size_t)>& source);

 private:
  std::deque<std::vector<std::byte>> bytes_;
};

// A fault made of functions, each of which may be empty.
class HookFault final : public Fault {
 public:
  // Alters the tokens as the op sees them; false if it leaves them as they are.
  std::function<bool(const Op& op, Moment moment, StepInput& seen)> tokens;
  // Whether `change` wants to see a stage; `change` alters its values and returns whether it did.
  std::function<bool(Stage stage, int layer)> watches;
  std::function<bool(const Computed& computed, Stage stage, int layer)> change;

  const StepInput& seen_by(const Op& op, Moment moment, const StepInput& step) override;
  bool wants(const Plan& plan, ValueId value) const override;
  bool after(const Computed& computed) override;

 private:
  StepInput seen_;
};

// A subject with the operations that put a fault into it.
class Site {
 public:
  explicit Site(Subject& subject);
  ModelSpec& spec() { return subject_.spec; }
  Weights& weights() { return subject_.weights; }
  Subject& subject() { return subject_; }
  int layers() const { return static_cast<int>(subject_.spec.layers.size()); }

  void change_plan(std::function<void(Plan&)> change);
  // Every backend of the subject runs with its own fault object.
  void run_with(std::function<std::unique_ptr<Fault>(const BackendOptions& options)> make);
  // Replaces the text `from` by `to` in a shader of the gpu backend.
  void edit_shader(std::string file, std::string from, std::string to);
  std::span<const ShaderEdit> shader_edits() const { return kept_->edits; }

  void alter(WeightRole role, int layer, const AlteredWeights::Change& change);
  void permute_rows(WeightRole role, int layer, const std::function<std::size_t(std::size_t)>& source);
  void swap(WeightRole a, WeightRole b, int layer);
  // The tensors of a layer's experts, none where the model has no such weight; and others in their place.
  std::vector<TensorView> experts(WeightRole role, int layer);
  void set_experts(WeightRole role, int layer, std::vector<TensorView> tensors);
  std::span<const std::byte> keep(std::vector<std::byte> bytes);

 private:
  // Lives as long as any copy of the subject.
  struct Kept {
    AlteredWeights altered;
    std::deque<std::vector<std::byte>> bytes;
    std::function<std::unique_ptr<Fault>(const BackendOptions&)> make;
    std::vector<std::unique_ptr<Fault>> faults;
    std::vector<ShaderEdit> edits;
  };
  Subject& subject_;
  std::shared_ptr<Kept> kept_;
};

struct FaultRow {
  FaultInfo info;
  std::function<bool(const Subject& subject)> applies;  // empty: to every subject
  std::function<FaultPlace(const Subject& subject)> place;
  std::function<void(Site& site)> put;
};

std::vector<FaultRow> description_faults();
std::vector<FaultRow> data_faults();
std::vector<FaultRow> expert_faults();  // of description and data
std::vector<FaultRow> text_faults();
std::vector<FaultRow> port_faults();  // data faults that porting makes
std::vector<FaultRow> execution_faults();
std::vector<FaultRow> shader_faults();  // execution faults of the gpu backend's kernels
std::vector<FaultRow> latent_faults();  // of latent attention, parts that rotate, multipliers, gates
std::vector<FaultRow> recurrent_weight_faults();     // data faults of layers that keep a state
std::vector<FaultRow> recurrent_execution_faults();  // and execution faults of such

// Ways to break execution. Every backend runs with a fault that `fill` has filled.
std::function<void(Site&)> hook(std::function<void(HookFault&, const BackendOptions&)> fill);
// Applies `change` to the value of one stage of one layer (-2: of every layer).
std::function<void(Site&)> spoil(Stage stage, int layer, std::function<bool(const Fault::Computed&)> change);
// Changes the step as every op of that kind sees it, at that moment.
std::function<void(Site&)> see(OpKind kind, Fault::Moment moment,
                               std::function<bool(StepInput&, const BackendOptions&)> change);

// Places and conditions that many rows of the table share.
inline auto at(Stage stage, int layer, FaultPlace::When when = FaultPlace::When::kPrompt) {
  return [=](const Subject&) { return FaultPlace{stage, layer, when}; };
}
inline int last_layer(const Subject& subject) {
  return static_cast<int>(subject.spec.layers.size()) - 1;
}
// Makes a weight [out][in] be read as [in][out]; float types only.
void transpose(TensorView& tensor, std::vector<std::byte>& bytes);
// The first layer of that kind, or -1.
int first_layer(const ModelSpec& spec, AttentionKind kind);
bool has_layers(const Subject& subject, int count);
bool is_gemma(const Subject& subject);  // its checkpoints store norm weights as w - 1
// The op that computes a stage of a layer; null: none.
Op* op_of(Plan& plan, Stage stage, int layer);
ValueId value_of(const Plan& plan, Stage stage, int layer);

}  // namespace doppler::diagnosis::faults
