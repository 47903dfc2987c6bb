// Opening recordings: reads them and checks their tensors.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "diagnosis/compare/compare_states.h"
#include "diagnosis/compare/recording.h"
#include "formats/safetensors.h"

namespace doppler::diagnosis {
namespace {

constexpr std::string_view kIdTensors[] = {"prompt_ids", "greedy_ids"};

Result<std::vector<std::int32_t>> read_ids(const TensorView& tensor) {
  if (tensor.shape.size() != 1 || (tensor.dtype != DType::kI32 && tensor.dtype != DType::kI64)) {
    return fail(ErrorCode::kMismatch,
                "The recording's {} is {} of shape {}, but it must be a list of I32 or I64.", tensor.name,
                dtype_name(tensor.dtype), describe_shape(tensor.shape));
  }
  const std::size_t size = tensor.dtype == DType::kI32 ? 4 : 8;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < tensor.shape[0]; ++i) {
    std::int64_t id = 0;  // little-endian, as safetensors stores it
    std::memcpy(&id, tensor.data.data() + i * size, size);
    if (size == 4) id = static_cast<std::int32_t>(id);
    if (id < 0 || id > INT32_MAX) {
      return fail(ErrorCode::kMismatch, "The recording's {} holds {} at place {}, which is no token id.",
                  tensor.name, id, i);
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

// Stages may be stored in 16 bits, as models that run in them give their values: read as the floats that they
// are. That they were rounded shows in the values, and is judged as such (recording_form.h).
Status widen_stages(TensorStore& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if ((tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16) && tensor.shape.size() > 1)
      names.push_back(name);
  }
  for (const std::string& name : names) {
    const Shape shape = tensors.find(name)->shape;
    std::vector<float> values(element_count(shape).value_or(0));
    DOPPLER_TRY(decode_f32(*tensors.find(name), 0, values));
    tensors.drop(name);
    DOPPLER_ASSIGN(const std::span<std::byte> wide, tensors.create(name, DType::kF32, shape));
    std::ranges::copy(std::as_bytes(std::span(values)), wide.begin());
  }
  return {};
}

// transformers keeps several residual streams as [streams, tokens, width]; here a token's lie side by side.
Status put_tokens_first(TensorStore& tensors, std::size_t tokens) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors.tensors()) {
    const std::string_view stage = std::string_view(name).substr(name.rfind('.') + 1);
    const bool streams = stage.starts_with("altup_") || stage == "layer_out";
    if (streams && tensor.dtype == DType::kF32 && tensor.shape.size() == 3 && tensor.shape[1] == tokens)
      names.push_back(name);
  }
  for (const std::string& name : names) {
    const Shape shape = tensors.find(name)->shape;
    const std::size_t streams = shape[0], bytes = shape[2] * sizeof(float);
    DOPPLER_TRY(tensors.rewrite(name, [&](std::span<const std::byte> from, std::span<std::byte> to) {
      for (std::size_t row = 0; row < streams * tokens; ++row) {
        const std::size_t there = row % tokens * streams + row / tokens;
        std::memcpy(&to[there * bytes], &from[row * bytes], bytes);
      }
    }));
    tensors.reshape(name, {tokens, streams, shape[2]});
  }
  return {};
}

Status check_stage_tensor(const TensorView& tensor, std::size_t prompt_tokens, std::size_t greedy_tokens) {
  if (tensor.dtype != DType::kF32 || tensor.shape.size() < 2 || tensor.shape.size() > 3) {
    return fail(ErrorCode::kMismatch,
                "The recording's {} is {} of shape {}, but stages are F32, F16 or BF16 of [tokens, width] or "
                "[tokens, heads, dim].",
                printable(tensor.name), dtype_name(tensor.dtype), describe_shape(tensor.shape));
  }
  const bool decode = tensor.name == "decode_logits";
  const std::size_t rows = decode ? greedy_tokens - std::min<std::size_t>(1, greedy_tokens) : prompt_tokens;
  const bool state = is_recorded_state(tensor.name);
  if (!state && tensor.shape[0] != rows) {
    return fail(ErrorCode::kMismatch, "The recording's {} has {} rows, but {} ask for {}.",
                printable(tensor.name), tensor.shape[0], decode ? "greedy_ids" : "prompt_ids", rows);
  }
  std::vector<float> row(*element_count(tensor.shape) / std::max<std::uint64_t>(tensor.shape[0], 1));
  for (std::size_t r = 0; r < tensor.shape[0]; ++r) {
    DOPPLER_TRY(decode_f32(tensor, r * row.size(), row));
    // Infinity is refused too: errors are shares of the largest value, so
    // beside it every difference would vanish.
    const auto bad = std::find_if(row.begin(), row.end(), [](float x) { return !std::isfinite(x); });
    if (bad != row.end()) {
      return fail(
          ErrorCode::kMismatch,
          "The recording's {} holds {} at token {}, place {}. Record it again with a model that works.",
          printable(tensor.name), *bad, r, bad - row.begin());
    }
  }
  return {};
}

}  // namespace

std::int32_t argmax(std::span<const float> row) {
  std::int32_t best = -1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) continue;
    if (best < 0 || row[i] > row[static_cast<std::size_t>(best)]) best = static_cast<std::int32_t>(i);
  }
  return best;
}

Result<Recording> open_recording(const std::filesystem::path& file) {
  DOPPLER_ASSIGN(TensorStore tensors, open_safetensors(file));
  return read_recording(std::move(tensors), file.string());
}

Result<Recording> read_recording(TensorStore tensors, std::string_view file) {
  Recording recording;
  recording.tensors = std::move(tensors);
  const TensorView* prompt = recording.tensors.find("prompt_ids");
  if (prompt == nullptr) {
    return fail(ErrorCode::kMismatch,
                "The file {} has no tensor prompt_ids, so it is no recording. Give a file made by doppler "
                "record or its transformers counterpart.",
                file);
  }
  DOPPLER_ASSIGN(recording.prompt_ids, read_ids(*prompt));
  if (recording.prompt_ids.empty())
    return fail(ErrorCode::kMismatch, "The recording {} has no prompt tokens.", file);
  if (const TensorView* greedy = recording.tensors.find("greedy_ids")) {
    DOPPLER_ASSIGN(recording.greedy_ids, read_ids(*greedy));
  }
  DOPPLER_TRY(widen_stages(recording.tensors));
  DOPPLER_TRY(put_tokens_first(recording.tensors, recording.prompt_ids.size()));
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    if (std::find(std::begin(kIdTensors), std::end(kIdTensors), name) != std::end(kIdTensors)) continue;
    if (name.ends_with(".attn_scores")) continue;  // -inf where masked, and of its own shape
    DOPPLER_TRY(check_stage_tensor(tensor, recording.prompt_ids.size(), recording.greedy_ids.size()));
  }
  const auto& metadata = recording.tensors.metadata();
  if (const auto text = metadata.find(kTextEntry); text != metadata.end()) {
    DOPPLER_ASSIGN(recording.text, read_text_truth(text->second));
  }
  return recording;
}

}  // namespace doppler::diagnosis
