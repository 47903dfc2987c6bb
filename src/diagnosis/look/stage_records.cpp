#include "diagnosis/look/stage_records.h"

#include <algorithm>

#include "backend/row_tokens.h"

namespace doppler::diagnosis {

StageRecorder::StageRecorder(std::size_t prompt_tokens, std::uint64_t keep_floats)
    : prompt_tokens_(static_cast<std::int64_t>(prompt_tokens)), room_(keep_floats) {}

bool StageRecorder::wants(Stage stage, int) const {
  return stage != Stage::kAttnScores;  // -inf where masked, and of a size that grows with every token
}

StageRecord& StageRecorder::record_of(const TapEvent& event) {
  const auto [at, fresh] = index_.try_emplace({event.stage, event.layer}, records_.size());
  if (fresh) {
    records_.push_back({.stage = event.stage, .layer = event.layer, .width = event.width});
    records_.back().zero_tail = event.width;
  }
  return records_[at->second];
}

void StageRecorder::on_stage(const TapEvent& event) {
  StageRecord& record = record_of(event);
  const auto index = static_cast<std::size_t>(&record - records_.data());
  const std::vector<std::size_t> tokens = row_tokens(event);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (event.input->slots[tokens[row]] != 0) continue;
    const std::int64_t token = event.input->positions[tokens[row]];
    const auto values = event.data.subspan(row * event.width, event.width);
    const Statistics s = measure(values);
    const auto last = std::find_if(values.rbegin(), values.rend(), [](float x) { return x != 0; });
    record.zero_tail = std::min(record.zero_tail, static_cast<std::size_t>(last - values.rbegin()));
    if (token >= prompt_tokens_) {
      record.decode.append(s);
      if (room_ >= values.size()) {
        room_ -= values.size();
        kept_[{index, token}].assign(values.begin(), values.end());
      }
      continue;
    }
    record.prompt.append(s);
    record.tokens.push_back(token);
    record.row_rms.push_back(static_cast<float>(s.rms));
    record.row_peak.push_back(s.max_abs);
    record.row_peak_dim.push_back(static_cast<std::uint32_t>(s.max_abs_index));
    record.row_zero.push_back(s.zeros == s.count);
  }
}

std::span<const float> StageRecorder::kept(std::size_t record, std::int64_t token) const {
  const auto found = kept_.find({record, token});
  return found == kept_.end() ? std::span<const float>() : std::span<const float>(found->second);
}

}  // namespace doppler::diagnosis
