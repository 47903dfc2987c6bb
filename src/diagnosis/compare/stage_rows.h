// Rows of a run's stages: from a recording, or kept by a tap.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "diagnosis/compare/recording.h"
#include "plan/plan.h"

namespace doppler::diagnosis {

// The stages side by side in a tensor of that name: q_proj, k_proj and v_proj for "layers.3.qkv_proj", one
// stage for a stage's own name, and none for any other name.
std::vector<Stage> parts_of(std::string_view key);
// The layer in a recording's name, -1 if it names none.
int layer_of(std::string_view key);
// Values in a row of the stage, attn_input included; 0 if the plan does not compute it.
std::size_t stage_width(const Plan& plan, Stage stage, int layer);

// Where the rows of one stage lie: columns [column, column + width) of a tensor [tokens, row_width].
struct StageColumns {
  const TensorView* tensor = nullptr;
  std::size_t column = 0, width = 0, row_width = 0;
};

// The prompt's ids, and float32 rows of its stages, one per prompt token: token i stands at position i.
class StageRows {
 public:
  virtual ~StageRows() = default;
  virtual std::span<const std::int32_t> ids() const = 0;
  // By a recording's names: "layers.3.q_rope", "qkv_proj" included. Null if there is none.
  virtual const TensorView* find(const std::string& key) const = 0;

  // The stage, also under another name: as part of qkv_proj or ffn_gate_up, the input of a layer as the
  // output of the layer before (and the reverse), logits without a softcap as logits_final. Nothing if no
  // tensor of the right shape holds it.
  std::optional<StageColumns> locate(const Plan& plan, Stage stage, int layer) const;
  // A value of the plan; those without a name are in no recording, but may have been filled in.
  std::optional<StageColumns> locate(const Plan& plan, ValueId id) const;
  // Its rows, [tokens, width]. Errors: kNotFound naming the stage.
  Result<std::vector<float>> read(const Plan& plan, Stage stage, int layer) const;
  Result<std::vector<float>> read(const Plan& plan, ValueId id) const;

 private:
  Result<std::vector<float>> rows_at(const StageColumns& at) const;
};

// The recording must outlive it.
class RecordedRows final : public StageRows {
 public:
  explicit RecordedRows(const Recording& recording) : recording_(recording) {}
  std::span<const std::int32_t> ids() const override { return recording_.prompt_ids; }
  const TensorView* find(const std::string& key) const override { return recording_.tensors.find(key); }

 private:
  const Recording& recording_;
};

// Keeps every stage except the attention scores, for the tokens of slot 0 in the order of their positions.
// The run must ask for all logits: stages after the last layer have rows for wanted tokens only.
class CapturedRows final : public StageRows, public Tap {
 public:
  std::span<const std::int32_t> ids() const override { return ids_; }
  const TensorView* find(const std::string& key) const override;

  bool wants(Stage stage, int) const override { return stage != Stage::kAttnScores; }
  void on_stage(const TapEvent& event) override;
  // All kept stages; the views stay valid while this lives and no further stage is shown.
  std::vector<TensorView> views() const;

 private:
  struct Kept {
    std::vector<float> rows;
    TensorView view;
  };
  std::vector<std::int32_t> ids_;
  std::map<std::string, Kept, std::less<>> stages_;
};

}  // namespace doppler::diagnosis
