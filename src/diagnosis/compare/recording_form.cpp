#include "diagnosis/compare/recording_form.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/float16.h"
#include "base/text.h"
#include "diagnosis/compare/stage_rows.h"

namespace doppler::diagnosis {
namespace {

// Twice half a unit of the last place: a value that is computed in that type is rounded more than once.
constexpr StoredType kBf16 = {"bfloat16", 0x1p-8}, kF16 = {"float16", 0x1p-10};

bool is_stage(const TensorView& tensor) {
  return tensor.dtype == DType::kF32 && tensor.shape.size() >= 2 && !parts_of(tensor.name).empty();
}

std::optional<std::vector<float>> values_of(const TensorView* tensor) {
  if (tensor == nullptr) return std::nullopt;
  std::vector<float> values(element_count(tensor->shape).value_or(0));
  if (values.empty() || !decode_f32(*tensor, 0, values)) return std::nullopt;
  return values;
}

// Whether every row, less the norm's bias (may be empty) and divided by its weight, has the length that a
// norm gives it.
bool is_normed(std::span<const float> rows, std::span<const float> weight, std::span<const float> bias,
               double offset) {
  const std::size_t width = weight.size();
  if (width == 0 || rows.empty() || rows.size() % width != 0) return false;
  constexpr double kNear = 0.02;  // epsilon takes less than a hundredth, unless the stream is nearly zero
  for (std::size_t begin = 0; begin < rows.size(); begin += width) {
    double squares = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double factor = weight[i] + offset;
      if (std::abs(factor) < 1e-3) continue;
      squares += std::pow((rows[begin + i] - (bias.empty() ? 0 : bias[i])) / factor, 2);
      ++count;
    }
    if (count == 0 || !(std::abs(std::sqrt(squares / static_cast<double>(count)) - 1) < kNear)) return false;
  }
  return true;
}

}  // namespace

StoredType stored_type(const Recording& recording) {
  bool bf16 = true, f16 = true, any = false;
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    // Rows of an embedding that is stored in 16 bits have 16 bits in every recording.
    if (!is_stage(tensor) || name == stage_key(Stage::kEmbedOut, -1) ||
        name == stage_key(Stage::kAttnInput, 0))
      continue;
    std::vector<float> row(tensor.shape[0] == 0 ? 0 : *element_count(tensor.shape) / tensor.shape[0]);
    for (std::uint64_t t = 0; t < tensor.shape[0] && (bf16 || f16); ++t) {
      if (!decode_f32(tensor, t * row.size(), row)) return {};
      for (const float x : row) {
        any |= x != 0;
        bf16 &= (std::bit_cast<std::uint32_t>(x) & 0xffff) == 0;
        f16 &= f16_to_f32(f32_to_f16(x)) == x;
      }
    }
    if (!bf16 && !f16) return {};
  }
  if (!any) return {};
  return bf16 ? kBf16 : kF16;  // values of bfloat16 mostly fit into float16, too
}

std::optional<Recording> with_named_last_norm(const Recording& recording, const ModelSpec& spec,
                                              const Weights& weights) {
  if (spec.layers.empty()) return std::nullopt;
  const std::string last = stage_key(Stage::kLayerOut, static_cast<int>(spec.layers.size()) - 1);
  const std::string normed = stage_key(Stage::kFinalNorm, -1);
  const auto rows = values_of(recording.tensors.find(last));
  const WeightId id = weights.find(WeightRole::kFinalNorm);
  if (!rows || id == kNoWeight) return std::nullopt;
  const TensorView* known = recording.tensors.find(normed);
  const auto weight = values_of(&weights[id]);
  std::vector<float> bias;
  if (const WeightId added = weights.find(WeightRole::kFinalNormBias); added != kNoWeight)
    bias = values_of(&weights[added]).value_or(bias);
  if (weight && bias.size() != weight->size()) bias.clear();
  // The description may have the offset wrong.
  const bool is = known != nullptr
                      ? values_of(known) == rows
                      : weight && (is_normed(*rows, *weight, bias, 0) || is_normed(*rows, *weight, bias, 1));
  if (!is) return std::nullopt;
  Recording meant = recording;
  meant.tensors = {};
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    TensorView view = tensor;
    if (name == last && known != nullptr) continue;
    if (name == last) view.name = normed;
    if (!meant.tensors.add(std::move(view))) return std::nullopt;
  }
  for (const auto& [key, value] : recording.tensors.metadata()) meant.tensors.add_metadata(key, value);
  meant.notes.push_back(fmt::format(
      "{} is normed already, as the last of transformers' hidden_states: taken as {}", last, normed));
  return meant;
}

}  // namespace doppler::diagnosis
