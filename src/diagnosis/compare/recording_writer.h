// A recording on its way to the disk: stages go to the file as the run shows them, so that they need not be
// kept in memory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "formats/safetensors.h"
#include "system/files.h"

namespace doppler::diagnosis {

// A tap for a run of `tokens` tokens in slot 0 that asks for all logits. The file has the plan's order: a
// whole stage whose turn it is goes straight there; pieces (of a prompt in several steps) and stages that
// come early wait in a nameless scratch file beside it.
class RecordingWriter final : public Tap {
 public:
  // `after`: tensors that follow the stages. Errors: those of OutputFile and SafetensorsWriter.
  static Result<std::unique_ptr<RecordingWriter>> create(const std::filesystem::path& file, const Plan& plan,
                                                         std::span<const std::int32_t> prompt_ids,
                                                         bool attention_scores,
                                                         std::vector<SafetensorsWriter::Entry> after,
                                                         const std::map<std::string, std::string>& metadata);

  bool wants(Stage stage, int layer) const override { return by_stage_.contains({stage, layer}); }
  void on_stage(const TapEvent& event) override;

  // Copies the waiting pieces to their places. Errors: kIo; kInternal for a stage that was not shown for
  // every token.
  Status end_stages();
  // The tensors after the stages, in their order, in pieces of any size.
  Status write(std::span<const std::byte> bytes) { return file_.write(bytes); }
  Status finish() { return file_.finish(); }

 private:
  struct Piece {
    std::uint64_t offset = 0, bytes = 0;  // in the scratch file
  };
  struct Tensor {
    std::string name;
    std::size_t width = 0, rows = 0;  // rows: shown so far
    std::vector<Piece> waiting;
  };
  RecordingWriter(SafetensorsWriter file, std::filesystem::path path, std::size_t tokens)
      : file_(std::move(file)), path_(std::move(path)), tokens_(tokens) {}
  Status take(const TapEvent& event);
  Status set_aside(Tensor& tensor, std::span<const std::byte> bytes);
  Status advance();
  Status copy(const Tensor& tensor);

  SafetensorsWriter file_;
  const std::filesystem::path path_;
  const std::size_t tokens_;
  std::vector<Tensor> tensors_;  // in the order of the file
  std::map<std::pair<Stage, int>, std::size_t> by_stage_;
  std::size_t next_ = 0;  // the first tensor that is not in the file
  std::optional<system::ScratchFile> scratch_;
  std::uint64_t scratch_bytes_ = 0;
  Status status_;
};

}  // namespace doppler::diagnosis
