// StageRecorder: a tap that measures every stage of a run, row by row, for triage and reports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/statistics.h"

namespace doppler::diagnosis {

// One stage of one layer: of all tokens of the prompt, and of all tokens decoded after it.
struct StageRecord {
  Stage stage = Stage::kNone;
  int layer = -1;
  std::size_t width = 0;
  Statistics prompt, decode;
  // By row of the prompt, in order.
  std::vector<std::int64_t> tokens;  // positions
  std::vector<float> row_rms;
  std::vector<float> row_peak;  // the largest magnitude
  std::vector<std::uint32_t> row_peak_dim;
  std::vector<bool> row_zero;  // nothing but zeros
  // Columns at the end of the row that are zero for every token, prompt and decode.
  std::size_t zero_tail = 0;
  std::string key() const { return stage_key(stage, layer); }
};

class StageRecorder final : public Tap {
 public:
  // Tokens from `prompt_tokens` on are decoded ones. Of their rows the first are kept for later comparison,
  // at most `keep_floats` values in all.
  StageRecorder(std::size_t prompt_tokens, std::uint64_t keep_floats);

  bool wants(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

  // In the order in which a step computes them.
  const std::vector<StageRecord>& records() const { return records_; }

  // A decoded token's row of a stage, by index into records(); empty if it was not kept.
  std::span<const float> kept(std::size_t record, std::int64_t token) const;

 private:
  StageRecord& record_of(const TapEvent& event);
  const std::int64_t prompt_tokens_;
  std::uint64_t room_;
  std::vector<StageRecord> records_;
  std::map<std::pair<Stage, int>, std::size_t> index_;
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<float>> kept_;
};

}  // namespace doppler::diagnosis
