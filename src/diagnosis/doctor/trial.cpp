#include "diagnosis/doctor/trial.h"

#include <cstring>

#include "diagnosis/doctor/settings.h"

namespace doppler::diagnosis {

void Trial::change_plan(std::function<void(Plan&)> change) {
  plan_changed_ = true;
  subject_.alter_plan = [before = std::move(subject_.alter_plan), change = std::move(change)](Plan& plan) {
    if (before) before(plan);
    change(plan);
  };
}

Status Trial::exchange(WeightRole a, int layer_a, WeightRole b, int layer_b) {
  const WeightId first = weights().find(a, layer_a), second = weights().find(b, layer_b);
  if (first == kNoWeight || second == kNoWeight)
    return fail(ErrorCode::kNotFound, "The model lacks one of the two weights.");
  if (weights()[first].shape != weights()[second].shape)
    return fail(ErrorCode::kMismatch, "The two weights have different shapes.");
  weights().alias(a, layer_a, second);
  weights().alias(b, layer_b, first);
  return {};
}

Status Trial::read_anew(WeightRole role, int layer, const ReadRow& read) {
  const WeightId id = weights().find(role, layer);
  if (id == kNoWeight) return fail(ErrorCode::kNotFound, "The model lacks the weight.");
  TensorView tensor = weights()[id];
  const std::uint64_t rows = tensor.rows(), cols = tensor.cols();
  auto bytes = std::make_shared<std::vector<std::byte>>(rows * cols * sizeof(float));
  std::vector<float> row(cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    if (!read(r, row)) DOPPLER_TRY(decode_f32(tensor, r * cols, row));
    std::memcpy(bytes->data() + r * cols * sizeof(float), row.data(), cols * sizeof(float));
  }
  tensor.dtype = DType::kF32;
  tensor.data = *bytes;
  tensor.mapped = false;
  owned_.push_back(std::move(bytes));
  const bool tied = weights().find(WeightRole::kHead) == id && role == WeightRole::kTokenEmbedding;
  const WeightId made = weights().add(role, layer, std::move(tensor));
  if (tied) weights().alias(WeightRole::kHead, -1, made);
  return {};
}

std::vector<Fix> Trial::fixes(const Subject& examined) const {
  std::vector<Fix> all;
  if (plan_changed_) return all;
  for (SettingBetween& setting : settings_between(examined.spec, subject_.spec))
    all.push_back(std::move(setting.fix));
  const auto id_of = [](const Weights& weights, const WeightInfo& info, int layer) {
    return weights.find(info.role, layer);
  };
  for (int layer = -1; layer < static_cast<int>(examined.spec.layers.size()); ++layer) {
    for (const WeightInfo& info : weight_table()) {
      const WeightId was = id_of(examined.weights, info, layer), is = id_of(subject_.weights, info, layer);
      if (was == kNoWeight || is == kNoWeight) continue;
      const TensorView &before = examined.weights[was], &now = subject_.weights[is];
      if (before.data.data() == now.data.data() || before.shape != now.shape) continue;
      const WeightId embedding = subject_.weights.find(WeightRole::kTokenEmbedding);
      const bool tied = info.role == WeightRole::kHead && is == embedding;
      if (tied && examined.weights.find(WeightRole::kTokenEmbedding) == was) continue;  // one tensor
      if (tied) {
        all.push_back({.kind = Fix::Kind::kSetting, .target = "head.tied", .value = "true"});
        all.push_back({.kind = Fix::Kind::kDrop, .target = before.name, .value = "left out"});
        continue;
      }
      all.push_back({Fix::Kind::kTensor,
                     before.name,
                     "as in the trial that reads best",
                     {},
                     [now, kept = owned_](std::uint64_t row, std::span<float> values) {
                       return decode_f32(now, row * values.size(), values);
                     }});
    }
  }
  return all;
}

}  // namespace doppler::diagnosis
