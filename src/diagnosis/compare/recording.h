// Recordings: what a model computes for one prompt, stage by stage, as a safetensors file. Made by Doppler or
// by transformers; the format is the same (docs/recordings.md).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "diagnosis/compare/text_truth.h"
#include "formats/tensor_store.h"

namespace doppler::diagnosis {

// A recording opened for reading; stage tensors stay in the mapped file.
struct Recording {
  TensorStore tensors;
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> greedy_ids;  // first entry chosen by the prompt's last logits; may be empty
  std::optional<TextTruth> text;         // nothing in recordings made before there was such a part
  std::vector<std::string> notes;        // where it was understood otherwise than it says
  std::shared_ptr<const void> memory;    // of a run kept in memory: the bytes that the tensors view
};

// Errors: those of safetensors; kMismatch for a recording without prompt_ids, with tensors of other dtypes
// than float32, float16 and bfloat16 (integers for ids), with row counts that contradict prompt_ids, or with
// NaN or infinity; those of read_text_truth.
Result<Recording> open_recording(const std::filesystem::path& file);
// The same of tensors that were read already; `file` names them in messages.
Result<Recording> read_recording(TensorStore tensors, std::string_view file);

struct RecordOptions {
  std::vector<std::int32_t> prompt_ids;
  std::uint32_t decode_steps = 0;
  bool attention_scores = false;                // [tokens, heads, positions]: large
  std::map<std::string, std::string> metadata;  // for the file's header, besides what the backend says
};

// Entries of a recording's header about the model: its name, its types of weights and a fingerprint of them
// (names, shapes and some values of each), and the program's version.
std::map<std::string, std::string> model_metadata(const std::filesystem::path& model, const Weights& weights);
// Entries about how a backend computes.
std::map<std::string, std::string> run_metadata(const Backend& backend);

// Runs the prompt in slot 0 with every stage tapped, then decode_steps greedy steps, and writes the
// recording. The file appears only when complete.
Status record_run(Backend& backend, const RecordOptions& options, const std::filesystem::path& file);

// Index of the largest value; the lower id wins a tie. -1 for an empty or all-NaN row.
std::int32_t argmax(std::span<const float> row);

// Feeds ids[0..] into `slot`, continuing its cache, in steps of at most `piece` tokens (0: as many as fit).
// All rows' logits are asked for when `all_logits`, else the last one's. `trace_step` numbers the steps for
// traces: 0 for a prompt, from 1 for decode steps. Returns the last step's logits.
Result<std::span<const float>> feed(Backend& backend, std::uint32_t slot, std::span<const std::int32_t> ids,
                                    std::uint32_t piece, bool all_logits, Tap* tap,
                                    std::int64_t trace_step = 0);

}  // namespace doppler::diagnosis
