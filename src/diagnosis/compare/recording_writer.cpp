#include "diagnosis/compare/recording_writer.h"

#include <algorithm>
#include <limits>

#include "plan/residual.h"

namespace doppler::diagnosis {
namespace {

// The stages whose rows transformers splits by heads; projections and the joined output of the heads are
// flat.
bool by_heads(Stage stage) {
  return stage == Stage::kQNorm || stage == Stage::kKNorm || stage == Stage::kQRope ||
         stage == Stage::kKRope || stage == Stage::kAttnScores;
}

std::unexpected<Error> scratch_failure(const std::filesystem::path& file, std::error_code error) {
  return fail(ErrorCode::kIo, "The stages of the recording {} cannot be kept beside it: {}.", file.string(),
              error.message());
}

// Copied in pieces of a megabyte: larger ones gain nothing.
constexpr std::size_t kCopyBytes = 1 << 20;

}  // namespace

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create(
    const std::filesystem::path& file, const Plan& plan, std::span<const std::int32_t> prompt_ids,
    bool attention_scores, std::vector<SafetensorsWriter::Entry> after,
    const std::map<std::string, std::string>& metadata) {
  const std::size_t tokens = prompt_ids.size();
  std::vector<SafetensorsWriter::Entry> entries = {{"prompt_ids", DType::kI32, {tokens}}};
  std::vector<Tensor> tensors;
  std::map<std::pair<Stage, int>, std::size_t> by_stage;
  const auto add = [&](Stage stage, int layer, std::size_t width, std::size_t heads) {
    if (stage == Stage::kAttnScores && !attention_scores) return;
    if (stage == Stage::kAttnScores) width = heads * tokens;
    const std::string name = stage_key(stage, layer);
    by_stage[{stage, layer}] = tensors.size();
    tensors.push_back({.name = name, .width = width});
    entries.push_back(
        {name, DType::kF32, by_heads(stage) ? Shape{tokens, heads, width / heads} : Shape{tokens, width}});
  };
  // An op shows the stages fused into it before its own output.
  for (const Op& op : plan.ops) {
    for (const auto* list : {&op.emits, &op.outputs}) {
      for (const ValueId id : *list) {
        const Value& v = plan.values[id];
        for_each_name(plan, v, [&](Stage stage, int layer) { add(stage, layer, v.width, v.heads); });
      }
    }
  }
  entries.insert(entries.end(), std::make_move_iterator(after.begin()), std::make_move_iterator(after.end()));
  DOPPLER_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(file, entries, metadata));
  std::unique_ptr<RecordingWriter> made(new RecordingWriter(std::move(writer), file, tokens));
  made->tensors_ = std::move(tensors);
  made->by_stage_ = std::move(by_stage);
  DOPPLER_TRY(made->file_.write(std::as_bytes(prompt_ids)));
  return made;
}

void RecordingWriter::on_stage(const TapEvent& event) {
  if (status_) status_ = take(event);
}

Status RecordingWriter::take(const TapEvent& event) {
  const std::size_t index = by_stage_.at({event.stage, event.layer});
  Tensor& tensor = tensors_[index];
  std::span<const float> rows = event.data;
  std::vector<float> wider;
  if (event.width != tensor.width) {  // scores of a step that sees fewer positions than the last one will
    const std::size_t was = event.width / event.heads, now = tensor.width / event.heads;
    wider.assign(event.rows * tensor.width, -std::numeric_limits<float>::infinity());
    for (std::size_t r = 0; r < event.rows * event.heads; ++r)
      std::copy_n(&event.data[r * was], std::min(was, now), &wider[r * now]);
    rows = wider;
  }
  tensor.rows += event.rows;
  if (index != next_ || event.rows != tokens_) return set_aside(tensor, std::as_bytes(rows));
  ++next_;
  DOPPLER_TRY(file_.write(std::as_bytes(rows)));
  return advance();
}

Status RecordingWriter::set_aside(Tensor& tensor, std::span<const std::byte> bytes) {
  if (!scratch_) {
    auto made = system::ScratchFile::create(path_);
    if (!made) return scratch_failure(path_, made.error());
    scratch_ = std::move(*made);
  }
  tensor.waiting.push_back({scratch_bytes_, bytes.size()});
  if (const auto error = scratch_->write_at(scratch_bytes_, bytes)) return scratch_failure(path_, error);
  scratch_bytes_ += bytes.size();
  return {};
}

// Tensors that wait whole and whose turn has come.
Status RecordingWriter::advance() {
  for (; next_ < tensors_.size() && tensors_[next_].rows == tokens_; ++next_) {
    DOPPLER_TRY(copy(tensors_[next_]));
  }
  return {};
}

Status RecordingWriter::copy(const Tensor& tensor) {
  std::vector<std::byte> buffer(kCopyBytes);
  for (const Piece& piece : tensor.waiting) {
    for (std::uint64_t done = 0; done < piece.bytes;) {
      const auto part = std::span(buffer).first(std::min<std::uint64_t>(kCopyBytes, piece.bytes - done));
      if (const auto error = scratch_->read_at(piece.offset + done, part))
        return scratch_failure(path_, error);
      DOPPLER_TRY(file_.write(part));
      done += part.size();
    }
  }
  return {};
}

Status RecordingWriter::end_stages() {
  DOPPLER_TRY(status_);
  for (const Tensor& tensor : tensors_) {
    if (tensor.rows == tokens_) continue;
    return fail(ErrorCode::kInternal,
                "The backend has shown {} of the prompt's {} tokens at {}. This is a bug in the backend.",
                tensor.rows, tokens_, tensor.name);
  }
  return advance();
}

}  // namespace doppler::diagnosis
