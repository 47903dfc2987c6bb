#include "inspect/recording.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "inspect/allowance.h"
#include "inspect/recording_writer.h"

namespace doppler {
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

Status check_stage_tensor(const TensorView& tensor, std::size_t prompt_tokens, std::size_t greedy_tokens) {
  if (tensor.dtype != DType::kF32 || tensor.shape.size() < 2 || tensor.shape.size() > 3) {
    return fail(ErrorCode::kMismatch,
                "The recording's {} is {} of shape {}, but stages are F32 of [tokens, width] or [tokens, "
                "heads, dim].",
                printable(tensor.name), dtype_name(tensor.dtype), describe_shape(tensor.shape));
  }
  const bool decode = tensor.name == "decode_logits";
  const std::size_t rows = decode ? greedy_tokens - std::min<std::size_t>(1, greedy_tokens) : prompt_tokens;
  if (tensor.shape[0] != rows) {
    return fail(ErrorCode::kMismatch, "The recording's {} has {} rows, but {} ask for {}.",
                printable(tensor.name), tensor.shape[0], decode ? "greedy_ids" : "prompt_ids", rows);
  }
  std::vector<float> row(*element_count(tensor.shape) / std::max<std::uint64_t>(rows, 1));
  for (std::size_t r = 0; r < rows; ++r) {
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

// How it was computed, for whoever compares it.
std::map<std::string, std::string> run_metadata(const Backend& backend) {
  std::map<std::string, std::string> metadata = arithmetic_metadata(arithmetic_of(backend));
  metadata["producer"] = fmt::format("doppler {}", backend.name());
  metadata["dtype"] = "float32";
  if (const auto device = backend.device()) metadata["device"] = device->describe();
  return metadata;
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

Result<std::span<const float>> feed(Backend& backend, std::uint32_t slot, std::span<const std::int32_t> ids,
                                    std::uint32_t piece, bool all_logits, Tap* tap) {
  const std::size_t most =
      piece == 0 ? backend.options().max_step_tokens : std::min(piece, backend.options().max_step_tokens);
  std::span<const float> logits;
  for (std::size_t begin = 0; begin < ids.size(); begin += most) {
    const std::size_t count = std::min(most, ids.size() - begin);
    StepInput input;
    for (std::size_t i = 0; i < count; ++i) {
      input.add(ids[begin + i], backend.length(slot) + i, slot, all_logits || begin + i + 1 == ids.size());
    }
    DOPPLER_ASSIGN(logits, backend.step(input, tap));
  }
  return logits;
}

Result<Recording> open_recording(const std::filesystem::path& file) {
  Recording recording;
  DOPPLER_ASSIGN(recording.tensors, open_safetensors(file));
  const TensorView* prompt = recording.tensors.find("prompt_ids");
  if (prompt == nullptr) {
    return fail(ErrorCode::kMismatch,
                "The file {} has no tensor prompt_ids, so it is no recording. Give a file made by doppler "
                "record or its transformers counterpart.",
                file.string());
  }
  DOPPLER_ASSIGN(recording.prompt_ids, read_ids(*prompt));
  if (recording.prompt_ids.empty())
    return fail(ErrorCode::kMismatch, "The recording {} has no prompt tokens.", file.string());
  if (const TensorView* greedy = recording.tensors.find("greedy_ids")) {
    DOPPLER_ASSIGN(recording.greedy_ids, read_ids(*greedy));
  }
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    if (std::find(std::begin(kIdTensors), std::end(kIdTensors), name) != std::end(kIdTensors)) continue;
    if (name.ends_with(".attn_scores")) continue;  // -inf where masked, and of its own shape
    DOPPLER_TRY(check_stage_tensor(tensor, recording.prompt_ids.size(), recording.greedy_ids.size()));
  }
  return recording;
}

Status record_run(Backend& backend, const RecordOptions& options, const std::filesystem::path& file) {
  const std::uint64_t length = options.prompt_ids.size() + std::uint64_t{options.decode_steps};
  if (options.prompt_ids.empty()) {
    return fail(ErrorCode::kUsage, "The prompt to record has no tokens. Give at least one.");
  }
  if (length > backend.options().context) {
    return fail(
        ErrorCode::kLimit,
        "The prompt of {} tokens and {} decode steps exceed the context of {}. Raise the context or shorten "
        "the recording.",
        options.prompt_ids.size(), options.decode_steps, backend.options().context);
  }
  const std::size_t vocab = backend.plan().vocab_size;
  std::vector<SafetensorsWriter::Entry> after;
  if (options.decode_steps > 0) {
    after = {{"decode_logits", DType::kF32, {options.decode_steps, vocab}},
             {"greedy_ids", DType::kI32, {options.decode_steps + std::uint64_t{1}}}};
  }
  std::map<std::string, std::string> metadata = options.metadata;
  metadata.merge(run_metadata(backend));
  // Made before the work, so that a place that cannot be written costs no run.
  DOPPLER_ASSIGN(const auto writer, RecordingWriter::create(file, backend.plan(), options.prompt_ids,
                                                            options.attention_scores, after, metadata));
  backend.clear(0);
  DOPPLER_ASSIGN(std::span<const float> logits, feed(backend, 0, options.prompt_ids, 0, true, writer.get()));
  DOPPLER_TRY(writer->end_stages());
  std::vector<std::int32_t> greedy;
  const auto choose = [&]() -> Status {
    greedy.push_back(argmax(logits.last(vocab)));
    if (greedy.back() >= 0) return {};
    return fail(ErrorCode::kMismatch, "The logits of decode step {} are all NaN. Check the weights.",
                greedy.size() - 1);
  };
  if (options.decode_steps > 0) DOPPLER_TRY(choose());
  for (std::uint32_t step = 0; step < options.decode_steps; ++step) {
    DOPPLER_ASSIGN(logits, feed(backend, 0, std::span(&greedy.back(), 1), 0, true, nullptr));
    DOPPLER_TRY(writer->write(std::as_bytes(logits)));
    DOPPLER_TRY(choose());
  }
  DOPPLER_TRY(writer->write(std::as_bytes(std::span(greedy))));
  return writer->finish();
}

}  // namespace doppler
