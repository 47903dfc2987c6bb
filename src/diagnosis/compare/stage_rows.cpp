#include "diagnosis/compare/stage_rows.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "backend/row_tokens.h"
#include "base/text.h"
#include "plan/residual.h"

namespace doppler::diagnosis {
namespace {

// Stages that some models' modules compute in one tensor; the stages are its columns, in this order.
struct Composite {
  std::string_view name;
  std::array<Stage, 3> parts;
};
constexpr std::array<Composite, 2> kComposites = {{
    {"qkv_proj", {Stage::kQProj, Stage::kKProj, Stage::kVProj}},
    {"ffn_gate_up", {Stage::kFfnGate, Stage::kFfnUp, Stage::kNone}},
}};

// Whether the stage is what the layer takes in, which other stages hold, too; of several streams a layer
// mixes its own input.
bool is_input(const Plan& plan, Stage stage, int layer) {
  const bool exists = layer >= 0 && static_cast<std::size_t>(layer) < plan.kv_layers.size();
  return exists && !plan.has_streams && stage == input_stage(plan, layer);
}

// Other names under which the same values are known.
std::vector<std::pair<Stage, int>> names_of(const Plan& plan, Stage stage, int layer) {
  const int layers = static_cast<int>(plan.kv_layers.size());
  std::vector<std::pair<Stage, int>> names = {{stage, layer}};
  if (plan.has_streams) return names;
  if (stage == Stage::kAttnInput || is_input(plan, stage, layer))
    names.emplace_back(layer == 0 ? Stage::kEmbedOut : Stage::kLayerOut, layer - 1);
  if (stage == Stage::kEmbedOut && layers > 0) names.emplace_back(input_stage(plan, 0), 0);
  if (stage == Stage::kLayerOut) {
    names.emplace_back(layer + 1 < layers ? input_stage(plan, layer + 1) : Stage::kPreFinalNorm,
                       layer + 1 < layers ? layer + 1 : -1);
  }
  if (stage == Stage::kPreFinalNorm && layers > 0) names.emplace_back(Stage::kLayerOut, layers - 1);
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kSoftcap) continue;
    const auto& head = std::get<SoftcapParams>(op.params);
    if (head.cap != 0 || head.scale != 1) continue;  // else it changes them
    if (stage == Stage::kLogits) names.emplace_back(Stage::kLogitsFinal, -1);
    if (stage == Stage::kLogitsFinal) names.emplace_back(Stage::kLogits, -1);
  }
  return names;
}

std::size_t row_width(const TensorView& tensor) {
  return tensor.shape.size() == 3 ? tensor.shape[1] * tensor.shape[2] : tensor.cols();
}

std::optional<StageColumns> locate_part(const StageRows& rows, const Plan& plan, Stage stage, int layer) {
  for (const Composite& composite : kComposites) {
    const TensorView* tensor = rows.find(fmt::format("layers.{}.{}", layer, composite.name));
    if (tensor == nullptr) continue;
    StageColumns found{.row_width = row_width(*tensor)};
    std::size_t column = 0;
    for (const Stage part : composite.parts) {
      if (part == Stage::kNone) continue;
      const std::size_t width = stage_width(plan, part, layer);
      if (part == stage) found.tensor = tensor, found.column = column, found.width = width;
      column += width;
    }
    if (found.tensor != nullptr && column == found.row_width) return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Stage> parts_of(std::string_view key) {
  const std::string_view name = key.substr(key.rfind('.') + 1);
  std::vector<Stage> parts;
  for (const Composite& composite : kComposites) {
    if (composite.name == name) parts.assign(composite.parts.begin(), composite.parts.end());
  }
  std::erase(parts, Stage::kNone);
  if (const auto stage = stage_from_name(name); parts.empty() && stage) parts.push_back(*stage);
  return parts;
}

int layer_of(std::string_view key) {
  constexpr std::string_view kPrefix = "layers.";
  if (!key.starts_with(kPrefix)) return -1;
  key.remove_prefix(kPrefix.size());
  int layer = -1;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), layer);
  return parsed.ec == std::errc() && layer >= 0 ? layer : -1;
}

std::size_t stage_width(const Plan& plan, Stage stage, int layer) {
  if ((stage == Stage::kAttnInput && !plan.has_streams) || is_input(plan, stage, layer)) {
    if (layer < 0 || static_cast<std::size_t>(layer) >= plan.kv_layers.size()) return 0;
    return layer == 0 ? stage_width(plan, Stage::kEmbedOut, -1)
                      : stage_width(plan, Stage::kLayerOut, layer - 1);
  }
  for (const Value& value : plan.values) {
    if (value.stage == stage && value.layer == layer) return value.width;
  }
  return 0;
}

std::optional<StageColumns> StageRows::locate(const Plan& plan, Stage stage, int layer) const {
  const std::size_t width = stage_width(plan, stage, layer);
  if (width == 0) return std::nullopt;
  for (const auto& [name, at] : names_of(plan, stage, layer)) {
    const TensorView* tensor = find(stage_key(name, at));
    if (tensor == nullptr && name == Stage::kFfnNormed) tensor = find(fmt::format("layers.{}.ffn_in", at));
    const bool fits = tensor != nullptr && tensor->shape.size() >= 2 && tensor->shape[0] == ids().size() &&
                      row_width(*tensor) == width;
    if (fits) return StageColumns{tensor, 0, width, width};
  }
  if (layer < 0) return std::nullopt;
  return locate_part(*this, plan, stage, layer);
}

Result<std::vector<float>> StageRows::read(const Plan& plan, Stage stage, int layer) const {
  const std::optional<StageColumns> at = locate(plan, stage, layer);
  if (!at) return fail(ErrorCode::kNotFound, "The stage {} is not recorded.", stage_key(stage, layer));
  return rows_at(*at);
}

std::optional<StageColumns> StageRows::locate(const Plan& plan, ValueId id) const {
  const Value& value = plan.values[id];
  if (value.stage != Stage::kNone) return locate(plan, value.stage, value.layer);
  const TensorView* tensor = find(value_name(plan, id));
  if (tensor == nullptr || tensor->shape.size() != 2 || tensor->rows() != ids().size() ||
      tensor->cols() != value.width)
    return std::nullopt;
  return StageColumns{tensor, 0, value.width, value.width};
}

Result<std::vector<float>> StageRows::read(const Plan& plan, ValueId id) const {
  const std::optional<StageColumns> at = locate(plan, id);
  if (!at) return fail(ErrorCode::kNotFound, "The stage {} is not recorded.", value_name(plan, id));
  return rows_at(*at);
}

Result<std::vector<float>> StageRows::rows_at(const StageColumns& at) const {
  std::vector<float> rows(ids().size() * at.width);
  if (at.width == at.row_width) {
    DOPPLER_TRY(decode_f32(*at.tensor, 0, rows));
    return rows;
  }
  for (std::size_t t = 0; t < ids().size(); ++t) {
    DOPPLER_TRY(decode_f32(*at.tensor, t * at.row_width + at.column,
                           std::span(rows).subspan(t * at.width, at.width)));
  }
  return rows;
}

const TensorView* CapturedRows::find(const std::string& key) const {
  const auto found = stages_.find(key);
  return found == stages_.end() ? nullptr : &found->second.view;
}

std::vector<TensorView> CapturedRows::views() const {
  std::vector<TensorView> views;
  for (const auto& [name, kept] : stages_) views.push_back(kept.view);
  return views;
}

void CapturedRows::on_stage(const TapEvent& event) {
  Kept& kept = stages_[stage_key(event.stage, event.layer)];
  const std::vector<std::size_t> tokens = row_tokens(event);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (event.input->slots[tokens[row]] != 0) continue;
    if (event.stage == Stage::kEmbedOut) ids_.push_back(event.input->ids[tokens[row]]);
    const auto values = event.data.subspan(row * event.width, event.width);
    kept.rows.insert(kept.rows.end(), values.begin(), values.end());
  }
  const std::size_t width = std::max<std::size_t>(event.width, 1);
  kept.view = {stage_key(event.stage, event.layer),
               DType::kF32,
               {kept.rows.size() / width, event.width},
               std::as_bytes(std::span(kept.rows))};
}

}  // namespace doppler::diagnosis
